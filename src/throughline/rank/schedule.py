"""How many warm-up and timed steps a run makes, where its time is capped (`at_most_s`). Pure arithmetic."""

from __future__ import annotations

WARMUP_SHARE = 1 / 3
LEAST_WARMUP, LEAST_TIMED = 2, 3
MARGIN = 0.95
"""Aim at this share of the cap: steps do not all take the same time."""


def warmup_steps(requested: int, timed: int, at_most_s: float, elapsed_s: float, step_s: float) -> int:
    """Warm-up steps in all, when LEAST_WARMUP of them took `elapsed_s` and the last one `step_s`.

    All that were asked for where everything fits, else what fits into a third of the cap.
    """
    budget = at_most_s * MARGIN
    if elapsed_s + (requested - LEAST_WARMUP + timed) * step_s <= budget:
        return max(LEAST_WARMUP, requested)
    more = int(max(0.0, budget * WARMUP_SHARE - elapsed_s) / step_s)
    return max(LEAST_WARMUP, min(requested, LEAST_WARMUP + more))


def timed_steps(requested: int, at_most_s: float, elapsed_s: float, step_s: float) -> int:
    """Timed steps that fit into what the warm-up left of the cap; at least LEAST_TIMED, never above `requested`."""
    fit = int(max(0.0, at_most_s * MARGIN - elapsed_s) / step_s)
    return min(requested, max(LEAST_TIMED, fit))

"""What the times of single steps tell about a window: it drifts, or its steps have two modes."""

from __future__ import annotations

from collections.abc import Sequence

from throughline import statistics
from throughline.records import RunRecord

SURE = 0.01  # p below which a drift or a second mode is not taken for chance
DRIFT = 0.03  # change of a step's time over the window, as a share, that is worth a word
APART = 0.05  # distance of two modes, as a share of the lower one
LEAST_SHARE = 0.05  # of the steps in the smaller mode; fewer are outliers


def warnings(runs: Sequence[RunRecord]) -> list[str]:
    """What is doubtful within the windows of these runs, in a sentence each with advice."""
    notes = []
    drifting = [(run.spec.repeat, share) for run in runs if (share := _drift(run)) is not None]
    if drifting:
        largest = max((share for _, share in drifting), key=abs)
        slower = "slower" if largest > 0 else "faster"
        notes.append(
            f"steps get {slower} within the window, by up to {100 * abs(largest):.0f} % from its first to its last "
            f"third ({_named([repeat for repeat, _ in drifting])}): "
            + (
                "the device heats up or something else begins to use the machine; look at clocks and temperature, "
                "raise runs.steps.timed"
                if largest > 0
                else "the warm-up was too short, or something else ended; raise runs.steps.warmup"
            )
        )
    double = [(run.spec.repeat, found) for run in runs if (found := _modes(run)) is not None]
    if double:
        (low, high), share = double[0][1]
        notes.append(
            f"the steps' times have two modes, {1000 * low:.3g} and {1000 * high:.3g} ms, with {100 * share:.0f} % of "
            f"the steps in the slower one ({_named([repeat for repeat, _ in double])}): a clock that switches, a "
            "loader that falls behind or another process; the median of such steps stands for neither"
        )
    return notes


def _drift(run: RunRecord) -> float | None:
    found = statistics.drift(run.step_seconds)
    return found[0] if found and abs(found[0]) > DRIFT and found[1] < SURE else None


def _modes(run: RunRecord) -> tuple[statistics.Range, float] | None:
    found = statistics.dip_test(run.step_seconds)
    if found is None or found[1] >= SURE:
        return None
    (low, high), share = statistics.two_levels(run.step_seconds)
    return ((low, high), share) if high / low - 1 > APART and LEAST_SHARE < share < 1 - LEAST_SHARE else None


def _named(repeats: Sequence[int]) -> str:
    return f"repeat{'s' if len(repeats) > 1 else ''} {', '.join(map(str, repeats))}"

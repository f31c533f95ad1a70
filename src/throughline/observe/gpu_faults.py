"""What is wrong with a GPU that should be idle before a run. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from throughline.memory import gib

GPU_BUSY = 0.1
"""Share of time or memory from which a GPU that should be idle is in use."""
LIMITS = ("power_limit_w", "power_limit_enforced_w", "sm_clock_set_mhz", "memory_clock_set_mhz", "ecc", "mig")
"""What somebody can set on a GPU, a run's speed depends on, and NVML can be asked for. A locked clock cannot."""


def of(
    index: int, state: Mapping[str, Any], facts: Mapping[str, Any], earlier: Mapping[str, Any] | None
) -> tuple[list[str], list[str]]:
    """(what refuses a run, what marks it) of a GPU that should be idle.

    state: `processes` [(pid, bytes or None)], `utilization`, `memory_used_bytes`, `ecc_uncorrected`, `ecc_corrected`
    (since the driver was loaded), `rows_pending`, `rows_failed`; facts and earlier: telemetry_cards.Card.facts of now
    and of an earlier repeat. None of it is known: no fault.
    """
    refused, marked = list[str](), list[str]()
    name = f"GPU {index}"
    for pid, held in state["processes"] or []:
        refused.append(f"{name} is used by another process ({pid}" + (f", {gib(held)})" if held else ")"))
    total, used = facts.get("memory_bytes"), state["memory_used_bytes"]
    busy = state["utilization"] or 0.0
    if not refused and (busy > GPU_BUSY or (total and used and used > GPU_BUSY * total)):
        refused.append(
            f"{name} is in use ({busy:.0%} of the time, {gib(used or 0)} of its memory), though the driver names no "
            "process here"
        )
    if state["ecc_uncorrected"]:
        refused.append(f"{name} has {state['ecc_uncorrected']} uncorrected ECC errors since the driver was loaded")
    if state["rows_failed"]:
        refused.append(f"{name} could not remap a faulty row of its memory")
    if state["rows_pending"]:
        marked.append(f"{name} waits for a reset to remap a faulty row of its memory")
    if state["ecc_corrected"]:
        marked.append(f"{name} has {state['ecc_corrected']} corrected ECC errors since the driver was loaded")
    if earlier:
        marked += [
            f"{name}: {key} was {earlier[key]} for an earlier repeat and is {facts[key]}"
            for key in LIMITS
            if None not in (earlier.get(key), facts.get(key)) and earlier[key] != facts[key]
        ]
    return refused, marked

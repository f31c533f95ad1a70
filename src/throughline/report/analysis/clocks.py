"""What clocks ran within the windows: NVML has no question for a lock (`nvidia-smi -lgc`, `-lmc`), its effect shows."""

from __future__ import annotations

from collections.abc import Sequence

from throughline.records import RunRecord

DIFFERENCE = 0.05  # of the faster clock; a card's own boost stays below it from one repeat to the next
CLOCKS = {"sm_clock_mhz": "SM clock", "memory_clock_mhz": "memory clock"}


def warnings(runs: Sequence[RunRecord]) -> list[str]:
    """A sentence for each clock that was another in one repeat than in another, on the same device of the same node."""
    return [text for name, words in CLOCKS.items() if (text := _differing(runs, name, words))]


def _differing(runs: Sequence[RunRecord], name: str, words: str) -> str | None:
    means: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for run in runs:
        for node in run.telemetry or ():
            for device in node.devices:
                if clock := getattr(device, name):
                    means.setdefault((node.node, device.index), []).append((clock.mean, run.spec.repeat))
    pairs = [(*min(ran), *max(ran), *where) for where, ran in means.items() if max(ran)[0] > 0]
    if not pairs:
        return None
    low, slow, high, fast, at, gpu = min(pairs, key=lambda pair: pair[0] / pair[2])
    if low >= (1 - DIFFERENCE) * high:
        return None
    return (
        f"the {words} of GPU {gpu} of node {at} ran at {high:.0f} MHz in repeat {fast} and at {low:.0f} MHz in repeat "
        f"{slow}: a lock (nvidia-smi -lgc, -lmc), a power cap or heat; look at throttle_reasons, set the clocks alike "
        "and run both again"
    )

"""Warn about the windows of a cell's runs: steps that drift or have two modes, and clocks that differ.

NVML cannot say whether clocks are locked (`nvidia-smi -lgc`, `-lmc`), but the clocks themselves show it.
"""

from collections.abc import Iterable, Sequence

from throughline import statistics
from throughline.numbers import milliseconds
from throughline.records import RunRecord

SURE = 0.01  # a drift or a second mode with a smaller p is not chance
DRIFT = 0.03  # a larger change of a step's time over the window, as a share, is a warning
APART = 0.05  # modes further apart are a warning, as a share of the lower one
LEAST_SHARE = 0.05  # of the steps; a mode with fewer steps consists of outliers
SLOWER = 0.05  # of the faster clock; a card's own boost varies less from one repeat to the next
CLOCKS = {"sm_clock_mhz": "SM clock", "memory_clock_mhz": "memory clock"}


def warnings(runs: Sequence[RunRecord]) -> list[str]:
    """Return what is questionable within the windows of these runs: sentences with advice."""
    notes = []
    drifts = {run.spec.repeat: share for run in runs if (share := _drift(run)) is not None}
    if drifts:
        largest = max(drifts.values(), key=abs)
        change, advice = "faster", "the warm-up was too short, or something else ended; raise runs.steps.warmup"
        if largest > 0:
            change, cause = "slower", "the device heats up or something else begins to use the machine"
            advice = f"{cause}; look at clocks and temperature, raise runs.steps.timed"
        notes.append(
            f"steps get {change} within the window, by up to {100 * abs(largest):.0f} % from its first to its last "
            f"third ({named(drifts)}): {advice}"
        )
    double = {run.spec.repeat: modes for run in runs if (modes := _modes(run)) is not None}
    if double:
        (low, high), share = next(iter(double.values()))
        notes.append(
            f"the steps' times have two modes, {milliseconds(low)} and {milliseconds(high)} ms, with "
            f"{100 * share:.0f} % of the steps in the slower one ({named(double)}): a clock that switches, a loader "
            "that falls behind or another process; the median of such steps describes neither mode"
        )
    return notes + [text for clock in CLOCKS if (text := _differing(runs, clock))]


def named(repeats: Iterable[int]) -> str:
    """Name repeats, such as `repeat 1` or `repeats 1, 2`."""
    numbers = list(map(str, repeats))
    return f"repeat{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _drift(run: RunRecord) -> float | None:
    drift = statistics.drift(run.step_seconds)
    return drift[0] if drift and abs(drift[0]) > DRIFT and drift[1] < SURE else None


def _modes(run: RunRecord) -> tuple[statistics.Range, float] | None:
    dip = statistics.dip_test(run.step_seconds)
    if dip is None or dip[1] >= SURE:
        return None
    (low, high), share = statistics.two_levels(run.step_seconds)
    return ((low, high), share) if high / low - 1 > APART and LEAST_SHARE < share < 1 - LEAST_SHARE else None


def _differing(runs: Sequence[RunRecord], clock: str) -> str | None:
    """Warn about a clock that differed between two repeats on the same device of the same node."""
    means: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for run in runs:
        for node in run.telemetry:
            for device in node.devices:
                if series := getattr(device, clock):
                    means.setdefault((node.node, device.index), []).append((series.mean, run.spec.repeat))
    pairs = [(*min(ran), *max(ran), *where) for where, ran in means.items() if max(ran)[0] > 0]
    if not pairs:
        return None
    low, slow, high, fast, at, gpu = min(pairs, key=lambda pair: pair[0] / pair[2])
    if low >= (1 - SLOWER) * high:
        return None
    return (
        f"the {CLOCKS[clock]} of GPU {gpu} of node {at} ran at {high:.0f} MHz in repeat {fast} and at {low:.0f} MHz in "
        f"repeat {slow}: a lock (nvidia-smi -lgc, -lmc), a power cap or heat; look at throttle_reasons, set the clocks "
        "alike and run both again"
    )

"""Warnings: sentences that say what is questionable about figures, and what to do about it; the notes beside results.

Within a window, steps may drift or have two modes, and clocks may differ. NVML cannot say whether clocks are locked
(`nvidia-smi -lgc`, `-lmc`), but the clocks themselves show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from throughline import frameworks, statistics
from throughline.comparables import plausibility
from throughline.grouping import grouped
from throughline.numbers import milliseconds, percent
from throughline.records import CellRecord, EquivalenceVerdict, RunRecord, Summary
from throughline.report.analysis import differences
from throughline.report.analysis.baseline import ONE_DEVICE

if TYPE_CHECKING:
    from throughline.report.analysis.cells import Cell, Group

SPREAD = 0.05  # highest - lowest repeat, as a share of the median; above it, a median of few repeats says little
FIRST = 0.05  # by how much the first repeat is slower than the median of the others
STEP_CAP = "max_total_seconds"  # is in the warning of a run whose steps were cut
FEWEST = 3  # a run times at least this many steps, whatever its time limit (LEAST_TIMED in rank/measurement.py)
UNEQUAL = ("different", "failed", "invalid", "oom")  # verdicts that forbid a comparison
NOT_CHECKED = {
    "oom": "its equivalence check ran out of memory",
    "failed": "its equivalence check failed",
    "invalid": "its equivalence check has no valid losses",
}  # verdicts that say nothing about what is computed
KERNELS = ("architecture", "attention", "convolutions", "emulated_products", "memory_format", "recorded",
           "compiler", "compiling")  # fmt: skip
"""Settings of how each framework computes, which say nothing about what it computes. Only some frameworks have them."""
SURE_DRIFT = 0.01  # a drift or a second mode with a smaller p is not chance
DRIFT = 0.03  # a larger change of a step's time over the window, as a share, is a warning
APART = 0.05  # modes further apart are a warning, as a share of the lower one
LEAST_SHARE = 0.05  # of the steps; a mode with fewer steps consists of outliers
SLOWER = 0.05  # of the faster clock; a card's own boost varies less from one repeat to the next
CLOCKS = {"sm_clock_mhz": "SM clock", "memory_clock_mhz": "memory clock"}
NAMED = 6
"""A warning about more cells than these names none of them."""
NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?!\w|\.\d|-\d)")
"""A number that is a word of its own: no part of a version, a date, a topology or a name."""


def about_cell(runs: Sequence[RunRecord], cell: CellRecord, base: str) -> list[str]:
    """Return the warnings about one cell, from its figures and from the records behind them, sorted by repeat."""
    ok = [run for run in runs if run.status == "ok"]
    notes = []
    for part in cell.left_out:
        what = "; ".join(part.differs) or "the digests of their environments differ"
        notes.append(
            f"{named(part.repeats)} ran in another environment than {named(run.spec.repeat for run in ok)} and "
            f"{'are' if len(part.repeats) > 1 else 'is'} left out of the median: {what}; run the older ones again"
        )
    silent = cell.n - cell.n_ok - sum(len(part.repeats) for part in cell.left_out)
    if cell.n_ok and silent > 0:
        notes.append(
            f"the median is over {cell.n_ok} of {cell.n} repeats: {silent} gave no valid figure; see their logs"
        )
    notes += _repeats([run.samples_per_s for run in ok if run.samples_per_s], bool(ok) and ok[0].spec.repeat == 1)
    if beyond_devices(cell):
        also = ", or smaller batches are faster here (strong scaling)" if ok and ok[0].spec.scaling == "strong" else ""
        why = f": the {base} baseline was probably slowed down by something else{also}; run it again on an idle machine"
        if not cell.speedup_range:
            why = f", but one repeat does not show by how much it varies{also}; raise runs.repeats"
        notes.append(f"speedup {cell.speedup:.2f} is more than the {cell.world_size} devices can give{why}")
    for run in ok:
        faults = plausibility.sums(run)
        notes += [f"the figures of repeat {run.spec.repeat} do not add up: {fault}" for fault in faults]
    others = merged(text for run in ok for text in run.warnings if STEP_CAP not in text)
    return [*notes, *_fewer_steps(ok), *_of_windows(ok), *others]


def beyond_devices(cell: CellRecord) -> bool:
    """True if a cell is faster than its devices can make it, beyond the noise of its repeats as far as it is known."""
    least = cell.efficiency_range[0] if cell.efficiency_range else cell.efficiency
    return least is not None and least > 1


def _repeats(speeds: Sequence[float], has_first: bool) -> list[str]:
    """Warn about a slow first repeat, or else about repeats that lie far apart."""
    lag = statistics.excess_of_first(speeds) if has_first else None
    rest = statistics.spread(speeds[1:])
    if lag is not None and lag > FIRST and (rest is None or rest <= SPREAD):
        return [
            f"the first repeat is {percent(lag, 1)} slower than the median of the others, which agree: caches were "
            "cold; raise runs.steps.warmup"
        ]
    width = statistics.spread(speeds)
    if width is not None and width > SPREAD:
        return [
            f"the repeats lie {percent(width, 1)} of the median apart: something else used the machine, or the window "
            "is short; run on an idle machine or raise runs.steps.timed"
        ]
    return []


def _fewer_steps(ok: Sequence[RunRecord]) -> list[str]:
    """Return one note about all runs whose steps were cut, in place of each run's own note."""
    timed = sorted({run.steps_timed for run in ok if run.steps_timed < run.steps_asked})
    if not timed:
        return []
    reason = f"as many as runs.steps.{STEP_CAP} allows"
    if timed[-1] <= FEWEST:
        reason = f"the fewest that a run times: runs.steps.{STEP_CAP} leaves no room for more"
    counts = " to ".join(map(str, dict.fromkeys((timed[0], timed[-1]))))
    return [f"{counts} of {ok[0].steps_asked} steps were timed, {reason}; raise {STEP_CAP} for a steadier figure"]


def unlike_baseline(runs: Sequence[RunRecord], baseline: Sequence[RunRecord], name: str) -> list[str]:
    """Return what makes the speedup of `runs` over `baseline` a comparison of unlike things."""
    ok, base = ([run for run in part if run.status == "ok"] for part in (runs, baseline))
    if not ok or not base:
        return []
    # If environments are mixed inside a cell, that cell has its own warning.
    own, others = (differences.of_run(part[-1]) for part in (ok, base))
    return [
        f"{key} is {here} here and {there} in the {name} baseline, so a speedup would compare unlike things: run the "
        "older one again"
        for key, (here, there) in differences.differing(own, others, differences.BY_TOPOLOGY).items()
    ]


def about_frameworks(
    settings: Mapping[str, Mapping[str, Any] | None], verdicts: Mapping[str, EquivalenceVerdict]
) -> dict[str, list[str]]:
    """Return warnings about frameworks that do not do the same work as the first one, or do not compute the same."""
    first = next((name for name, stated in settings.items() if stated), "")
    reference = settings.get(first) or {}
    notes = {
        name: [
            f'{key} is "{(stated or {}).get(key)}" here and "{reference.get(key)}" in {first}: '
            "they do not do the same work"
            for key in other_work(stated, reference)
        ]
        for name, stated in settings.items()
    }
    for name, check in verdicts.items():
        if check.verdict in UNEQUAL:
            what = "does not compute" if check.verdict == "different" else "is not shown to compute"
            notes.setdefault(name, []).append(
                f"it {what} what the others do ({check.reason}): see equivalence.json; do not compare it"
            )
    return notes


def other_work(stated: Mapping[str, Any] | None, reference: Mapping[str, Any] | None) -> list[str]:
    """Return the settings in which two frameworks do not do the same work.

    A setting that one of them does not state is no difference. A list of zeros is an empty list: dropout of 0 is none.
    """
    if not stated or not reference:
        return []
    keys = [key for key in reference if key not in KERNELS and None not in (stated.get(key), reference[key])]
    return [key for key in keys if _without_zeros(stated[key]) != _without_zeros(reference[key])]


def _without_zeros(value: Any) -> Any:
    return [one for one in value if one != 0] if isinstance(value, list) else value


def _of_windows(runs: Sequence[RunRecord]) -> list[str]:
    """Return what is questionable within the windows of these runs: sentences with advice."""
    notes, drifts, double = [], dict[int, float](), dict[int, tuple[statistics.Range, float]]()
    for run in runs:
        drift, dip = statistics.drift(run.step_seconds), statistics.dip_test(run.step_seconds)
        if drift and abs(drift[0]) > DRIFT and drift[1] < SURE_DRIFT:
            drifts[run.spec.repeat] = drift[0]
        if dip and dip[1] < SURE_DRIFT:
            (low, high), share = statistics.two_levels(run.step_seconds)
            if high / low - 1 > APART and LEAST_SHARE < share < 1 - LEAST_SHARE:
                double[run.spec.repeat] = (low, high), share
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


def _differing(runs: Sequence[RunRecord], clock: str) -> str | None:
    """Warn about a clock that differed between two repeats on the same device of the same node."""
    means: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for run in runs:
        for node in run.telemetry:
            for device in node.devices:
                if series := getattr(device, clock):
                    means.setdefault((node.node, device.index), []).append((series.mean, run.spec.repeat))
    pairs = [(*min(ran), *max(ran), *where) for where, ran in means.items() if max(ran)[0] > 0]
    low, slow, high, fast, at, gpu = min(pairs, key=lambda pair: pair[0] / pair[2], default=(1.0, 0, 1.0, 0, 0, 0))
    if low >= (1 - SLOWER) * high:
        return None
    return (
        f"the {CLOCKS[clock]} of GPU {gpu} of node {at} ran at {high:.0f} MHz in repeat {fast} and at {low:.0f} MHz in "
        f"repeat {slow}: a lock (nvidia-smi -lgc, -lmc), a power cap or heat; look at throttle_reasons, set the clocks "
        "alike and run both again"
    )


def merged(texts: Iterable[str]) -> list[str]:
    """Return the texts in their order. Of texts that differ only in their numbers, the one with the largest remains."""
    return list(map(_largest, grouped(texts, form).values()))


def _largest(texts: Iterable[str]) -> str:
    return max(texts, key=lambda text: list(map(float, NUMBER.findall(text))))


def form(text: str) -> str:
    """Return a text with `#` for its numbers."""
    return NUMBER.sub("#", text)


@dataclass(frozen=True)
class Note:
    """A reason or a warning, and the cells it is about."""

    where: str
    text: str
    kind: str


def notes(group: Group) -> list[Note]:
    """Return the reasons and warnings of all cells, after a note for each baseline that is not one device.

    Texts that differ only in their numbers are one note, which says whose numbers it has.
    """
    told: dict[tuple[str, str], list[tuple[Cell, str]]] = {}
    for cell in group.cells:
        for kind, texts in (("reason", cell.record.reasons), ("warning", cell.record.warnings)):
            for text in texts:
                told.setdefault((kind, form(text)), []).append((cell, text))
    text = "its speedups are relative to {}, the smallest topology on which the model's layout is possible"
    moved = {name: base for name, base in group.summary.baselines.items() if base != ONE_DEVICE}
    return [
        *(Note(name, text.format(base), "reason") for name, base in moved.items()),
        *(
            Note(_place(group, [cell for cell, _ in same]), _told(group, same), kind)
            for (kind, _), same in told.items()
        ),
    ]


def _told(group: Group, same: Sequence[tuple[Cell, str]]) -> str:
    largest = _largest(text for _, text in same)
    cells = [cell for cell, text in same if text == largest]
    return largest if len(cells) == len(same) else f"{largest} (numbers of {_place(group, cells[:1])})"


def _place(group: Group, cells: Sequence[Cell]) -> str:
    """Name these cells, such as `torch 1n1g, 1n2g; jax 1n1g`; of many, say how many."""
    named = dict.fromkeys((cell.framework, str(cell.topology)) for cell in cells)
    total = sum(bool(cell.record.statuses) for cell in group.cells)
    if len(named) > NAMED:
        return f"all {total} cells" if len(named) == total else f"{len(named)} of {total} cells"
    return in_groups(named)


def in_groups(pairs: Iterable[tuple[str, str]], colon: str = "") -> str:
    """Return pairs as text, such as `torch 1n1g, 1n2g; jax 1n1g`. colon: stands behind the first of each pair."""
    groups = grouped(dict.fromkeys(pairs), itemgetter(0))
    return "; ".join(f"{first}{colon} {', '.join(second for _, second in same)}" for first, same in groups.items())


def not_compiled(group: Group) -> Iterator[Note]:
    """Yield a note for each framework whose steps on GPUs were not compiled, although it can compile them."""
    summary = group.summary
    on_gpus = summary.device is not None and summary.device.kind != "cpu"
    if not (on_gpus and group.trains) or summary.options.compile is True:
        return
    why = eager(summary)
    if summary.options.compile is False:
        why = dict.fromkeys(group.frameworks, "options.compile is false")
    for name, reason in why.items():
        if group.series(name) and "compile" in frameworks.features(name, summary.model):
            yield Note(name, f"slower than these GPUs could be, because the step is not compiled: {reason}", "reason")


def eager(summary: Summary) -> dict[str, str]:
    """Map each framework whose runs left the model eager to the reason, if the summary's `compile` is `auto`."""
    told = {name: str((built or {}).get("compiling", "")) for name, built in (summary.settings or {}).items()}
    return {name: words for name, words in told.items() if words.startswith("not compiled")}

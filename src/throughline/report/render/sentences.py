"""The answer in sentences: how fast, how well it scales, and what to be careful with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from throughline import statistics
from throughline.records import Cell
from throughline.report.analysis import advice, comparisons
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.comparisons import Floors
from throughline.report.render.markup import percent, reading

ONE_DEVICE = "1n1g"
ENOUGH = 3  # repeats below which no rank test says anything


@dataclass(frozen=True)
class Best:
    """A measured row and the group it belongs to."""

    group: Group
    row: Row
    cell: Cell

    @property
    def speed(self) -> float:
        return self.cell.median_speed or 0.0

    @property
    def settings(self) -> str:
        return f"{self.group.precision} with batch {self.group.batch} per device"


def measured(groups: Iterable[Group]) -> list[Best]:
    """Every row with a median."""
    return [
        Best(group, row, row.cell)
        for group in groups
        for row in group.rows
        if row.cell is not None and row.cell.median_speed is not None
    ]


def fastest(groups: Sequence[Group]) -> Best | None:
    return max(measured(groups), key=lambda best: best.speed, default=None)


def headline(groups: Sequence[Group]) -> str:
    """How fast and how well it scales, in a sentence with its sample count."""
    best = fastest(groups)
    if best is None:
        return "Nothing could be measured yet."
    model = best.group.summary.model if best.group.summary else best.group.benchmark
    return (
        f"{best.row.shown} trains {model} at {reading(best.speed)} samples/s on {devices(best)} "
        f"({best.settings}){_scaling(best)}. {sample(best.cell)}"
    )


def devices(best: Best) -> str:
    """`32 devices (4n8g)`."""
    world = best.row.topology.world
    return f"{world} device{'s' if world > 1 else ''} ({best.row.topology})"


def sample(cell: Cell) -> str:
    """What the median is made of."""
    if cell.n_ok == 1:
        return "One repeat only: how much it varies is not known."
    return f"Median of {cell.n_ok} repeats, which lie between {reading(cell.min)} and {reading(cell.max)} samples/s."


def _scaling(best: Best) -> str:
    if best.row.topology.world == 1:
        return ", the fastest of all that was measured"
    if best.cell.speedup is None:
        return f"; its speedup is not known, because {ONE_DEVICE} has no valid repeat"
    ends = best.cell.speedup_range
    between = f" (speedup {ends[0]:.2f} to {ends[1]:.2f} by the ranges of the repeats)" if ends else ""
    return (
        f": {best.cell.speedup:.2f} times one device, {percent(best.cell.efficiency)} of what "
        f"{best.row.topology.world} devices could ideally give{between}"
    )


@dataclass(frozen=True)
class Finding:
    """A sentence beside the headline; a loss is where something gains nothing, or limits."""

    text: str
    loss: bool = False


def further(groups: Sequence[Group], everything: Sequence[Group] = (), known: Floors | None = None) -> list[Finding]:
    """Findings beside the headline: first where nothing is gained and what limits, then how things compare.

    Below the smallest difference that A/A runs show on a device, there is none.
    """
    floors = known or {}
    losses, gains = _precision(groups, floors)
    limits = [*losses, *_more_devices(groups, floors), *_switches(groups, everything, floors), *_loader(groups)]
    rest = [*_frameworks(groups, floors), *gains]
    return [*(Finding(text, loss=True) for text in limits), *(Finding(text) for text in rest)]


def _switches(groups: Sequence[Group], everything: Sequence[Group], known: Floors) -> Iterable[str]:
    """Compiled models that are no faster."""
    for pair in comparisons.switches(groups, everything, known):
        if pair.what.startswith("compile ") and pair.verdict != "faster":
            yield (
                f"compile gains nothing: {pair.ratio:.3f} times the throughput ({pair.where}; {pair.verdict}, "
                f"{pair.why}). Leave it off here."
            )


def _frameworks(groups: Sequence[Group], known: Floors) -> Iterable[str]:
    """Two frameworks on the largest topology they share."""
    best = fastest(groups)
    if best is None:
        return
    series = {name: best.group.series(name) for name in best.group.frameworks}
    for name, rows in series.items():
        if name == best.row.framework:
            continue
        pairs = [
            (other, mine) for other in rows for mine in series[best.row.framework] if mine.topology == other.topology
        ]
        if not pairs:
            continue
        other, mine = pairs[-1]
        a, b = mine.cell, other.cell
        if not (a and b and a.median_speed and b.median_speed and a.min and a.max and b.min and b.max):
            continue
        if min(a.n_ok, b.n_ok) < ENOUGH:
            continue
        where = f"on {mine.topology} ({best.settings})"
        pair = comparisons.Pair("", where, b, a, known.get(comparisons.device(best.group)))
        if pair.verdict == "no difference":
            size = percent(abs(pair.ratio - 1), 1)
            yield f"No difference between {mine.framework} and {name} {where}: {size}, {pair.why}."
        elif pair.verdict == "not told apart":
            yield f"{mine.framework} and {name} cannot be told apart {where}: {pair.why} of the rank test."
        else:
            ahead, behind = (mine.framework, name) if pair.ratio > 1 else (name, mine.framework)
            gain = max(pair.ratio, 1 / pair.ratio) - 1
            yield f"{ahead} is {percent(gain, 1)} faster than {behind} {where}; {pair.why} of the rank test."


def _precision(groups: Sequence[Group], known: Floors) -> tuple[list[str], list[str]]:
    """Precisions that are no faster than fp32 (else tf32) on one device, and those that are; at the fastest batch."""
    losses: list[str] = []
    gains: list[str] = []
    for framework in dict.fromkeys(name for group in groups for name in group.frameworks):
        speeds: dict[str, Best] = {}
        for best in measured(groups):
            if best.row.framework == framework and str(best.row.topology) == ONE_DEVICE:
                kept = speeds.get(best.group.precision)
                speeds[best.group.precision] = best if kept is None or best.speed > kept.speed else kept
        full = speeds.get("fp32") or speeds.get("tf32")
        for precision in ("bf16", "fp16"):
            half = speeds.get(precision)
            if full is None or half is None:
                continue
            device = half.group.summary.device if half.group.summary else None
            floor = known.get(comparisons.device(half.group))
            text = advice.gains_nothing(
                half.speed, full.speed, precision, full.group.precision, device.fp16_native if device else None,
                floor.share if floor else 0.0,
            )  # fmt: skip
            pair = comparisons.Pair("", "", full.cell, half.cell, floor)
            against = f"on one device (batch {half.group.batch} against {full.group.batch})"
            if text:
                losses.append(f"{framework}: {text}.")
            elif pair.verdict == "faster":
                gains.append(
                    f"{framework}: {precision} is {pair.ratio:.2f} times as fast as {full.group.precision} {against}; "
                    f"{pair.why} of the rank test."
                )
            else:
                gains.append(
                    f"{framework}: {precision} and {full.group.precision} cannot be told apart {against}: the medians' "
                    f"ratio is {pair.ratio:.2f}, {pair.why}."
                )
    return losses, gains


def _more_devices(groups: Sequence[Group], known: Floors) -> Iterable[str]:
    for group in groups:
        for framework in group.frameworks:
            rows = group.series(framework)
            floor = known.get(comparisons.device(group))
            least = 1 + (floor.share if floor else 0.0)
            for before, after in pairwise(rows):
                a, b = before.cell, after.cell
                grew = after.topology.world > before.topology.world
                if grew and a and b and a.median_speed and b.median_speed and b.median_speed <= a.median_speed * least:
                    yield (
                        f"{framework}: {after.topology} is no faster than {before.topology} "
                        f"({reading(b.median_speed)} against {reading(a.median_speed)} samples/s, {group.precision}, "
                        f"batch {group.batch}): the additional devices gain nothing. Look at what the devices share: "
                        "cores, memory bandwidth, the network; a larger batch per device exchanges less often."
                    )


def _loader(groups: Sequence[Group]) -> Iterable[str]:
    for best in measured(groups):
        share = best.cell.loader_stall_share
        if share is not None and share > 0.05:
            yield (
                f"{best.row.framework} {best.row.topology} waits {percent(share)} of its time for data "
                f"({best.settings}): the figure measures reading as well. Put the corpus on a faster disk, "
                "or compare with the extra `synthetic`."
            )


def compared_with_origin(groups: Sequence[Group], origin: Sequence[Group], extra: str) -> str | None:
    """What a derived benchmark (`bert__aa`, `bert__synthetic`) says about the one it is derived from."""
    there = {(b.group.name, b.row.framework, b.row.topology): b.speed for b in measured(origin)}
    ratios = [
        best.speed / there[key]
        for best in measured(groups)
        if (key := (best.group.name, best.row.framework, best.row.topology)) in there
    ]
    if not ratios:
        return None
    name = origin[0].benchmark
    if extra == "aa":
        widest = max(abs(ratio - 1) for ratio in ratios)
        return (
            f"The same configurations as {name} once more: their medians differ by up to {percent(widest, 1)} "
            f"({len(ratios)} compared). Differences below that are noise here."
        )
    if extra == "synthetic":
        middle = statistics.median(ratios) or 1.0
        return (
            f"The configurations of {name} with tokens that are made up instead of read: {middle:.3f} times its "
            f"throughput (median of {len(ratios)}). What is above 1 is the price of reading the corpus."
        )
    if extra == "noexchange":
        return (
            f"The configurations of {name}, but every rank keeps its gradients: it trains as many models as there are "
            f"devices, up to {max(ratios):.3f} times as fast. No speedup of a training, but the most that a faster "
            "exchange could give."
        )
    return None

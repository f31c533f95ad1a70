"""Where a step's time goes: compute, exposed communication and input, from runs that leave one of them out.

    communication = step - step without exchange (extra `no_gradient_sync`)
    input         = step - step without reading  (extra `synthetic`)
    compute       = step - communication - input

Differences are taken between repeats of the same number. These ran one after the other, so that a slow hour affects
both. The median of the differences is the figure, and their range is its noise.
docs/explanation/method-memory-and-time.md says what this assumes.

A second table has a step's exchange beside the same messages alone, which ranks send after the window (NETWORK_NOTES).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline.numbers import milliseconds, percent, reading
from throughline.report.analysis.advice import Note
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.differences import derived
from throughline.report.render import plots as draws
from throughline.report.render import table_files
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table, in_csv
from throughline.report.topic import Drawing, Scope, Topic
from throughline.statistics import median
from throughline.workloads.collectives import factor

EXTRAS = {"communication": "no_gradient_sync", "input": "synthetic"}
"""Map a part of the step to the derived runs that leave it out."""
INTRO = (
    "Communication is the time of a step minus that of a step without exchange (extra `no_gradient_sync`), input minus "
    "that without reading (extra `synthetic`), each between repeats of the same number. The table shows the median of "
    "these differences, its share of the step, and the smallest and the largest difference. A part whose range "
    "contains 0 cannot be told from noise. A negative part is shown as 0."
)


@dataclass(frozen=True)
class Part:
    """One part of a step: how many seconds each repeat is longer than the same repeat without the part.

    control: there is nothing to measure (the exchange of a single rank), so the differences are noise.
    """

    differences: Sequence[float]
    control: bool = False

    @property
    def seconds(self) -> float:
        """The seconds that are shown. They are never negative."""
        return 0.0 if self.control else max(0.0, median(self.differences) or 0.0)

    @property
    def doubt(self) -> str:
        """Why the part may be nothing; empty if it is certain."""
        if self.control:
            return "a single rank exchanges nothing"
        if len(self.differences) == 1:
            return "one pair, so its noise is not known"
        return "within the noise" if min(self.differences) <= 0.0 <= max(self.differences) else ""


@dataclass(frozen=True)
class Split:
    """The step of one cell. parts: its known parts. shown: their seconds, after those of the rest. notes: what makes
    parts unknown."""

    cell: Cell
    step_s: float
    parts: dict[str, Part]
    shown: dict[str, float]
    notes: list[str]

    def text(self, name: str) -> str:
        """Return milliseconds and share of what is shown."""
        return f"{milliseconds(self.shown[name])} ({percent(self.shown[name] / self.step_s)})"


def split(group: Group, everything: Sequence[Group]) -> list[Split]:
    """Return the splits of a group's measured cells for which runs without a part were measured."""
    return [step for cell in group.measured if (step := _of_cell(cell, everything))]


def _of_cell(cell: Cell, everything: Iterable[Group]) -> Split | None:
    steps, parts, notes = cell.step_seconds, dict[str, Part](), list[str]()
    for name, extra in EXTRAS.items():
        without, unlike = derived(cell, extra, everything)
        shorter = without.step_seconds if without else {}
        if unlike:
            why = "; ".join(unlike)
            notes.append(f"{name} is not known, because the runs without it are not comparable: {why}")
        elif without and (both := sorted(steps.keys() & shorter.keys())):
            control = cell.topology.world == 1 and not without.group.exchanges
            parts[name] = Part([steps[repeat] - shorter[repeat] for repeat in both], control)
    if not parts and not notes:
        return None
    step_s, spent = median([*steps.values()]) or 0.0, {name: part.seconds for name, part in parts.items()}
    rest = step_s - sum(spent.values())
    if rest < 0:
        notes.append("communication and input take longer than the step: they overlap, so compute is not known")
    unknown = " and ".join(["compute", *(name for name in EXTRAS if name not in parts)])
    return Split(cell, step_s, parts, {unknown: max(0.0, rest), **spent}, notes)


def _compute(step: Split) -> Entry:
    """Return the rest; its seconds are those of computing only if both parts are known."""
    rest, seconds = next(iter(step.shown.items()))
    return Entry(step.text(rest), seconds) if rest == "compute" else Entry(f"{step.text(rest)}, {rest}")


def _columns(name: str) -> Iterator[Column]:
    """Yield the columns of a part: time, share, range and doubt, and in the CSV its differences."""

    def read(step: Split) -> Entry:
        part = step.parts.get(name)
        if part is None or part.control:
            return Entry() if part is None else Entry(f"0, {part.doubt}", part.seconds)
        low, high = min(part.differences), max(part.differences)
        ends = f"{milliseconds(low)} to {milliseconds(high)}" if len(part.differences) > 1 else ""
        return Entry(", ".join(filter(None, (step.text(name), ends, part.doubt))), part.seconds)

    def in_file(end: str, of: Callable[[Sequence[float]], float | None]) -> Column:
        return in_csv(f"{name}_{end}", lambda step: of(step.parts[name].differences) if name in step.parts else None)

    yield Column(f"{name}_s", f"{name}, ms", read=read)
    yield from (in_file("difference_s", median), in_file("difference_min_s", min), in_file("difference_max_s", max))
    yield in_file("pairs", len)


COLUMNS = (
    *table_files.IDENTITY,
    in_csv("devices", lambda step: step.cell.topology.world),
    Column("step_s", "step, ms", read=lambda step: step.step_s, show=milliseconds),
    Column("compute_s", "compute, ms", read=_compute),
    *(column for name in EXTRAS for column in _columns(name)),
    in_csv("notes", lambda step: "; ".join(step.notes)),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each split: the step and its parts, with their shares and ranges. None without derived runs."""
    steps = [step for group in scope.groups for step in split(group, scope.everything)]
    forms = (PAGE, CSV) if any(step.parts for step in steps) else (CSV,)
    return Table.if_any(steps, COLUMNS, forms=forms)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a plot for every group with a part that derived runs have measured."""
    for group in scope.groups:
        if steps := [step for step in split(group, scope.everything) if step.parts]:
            heading = f"{group.benchmark}: where a step's time goes"
            yield Drawing(f"{group.name}_split", heading, partial(draw, group, steps), group)


LOOKS = {"communication": (1, "///", -0.37), "input": (2, "\\\\\\", 0.37)}
"""Colour and hatch of a part, which tell the parts apart also without colours, and how far above or below the middle of
its bar the range of the part is."""


def draw(group: Group, splits: Sequence[Split], theme: draws.Theme) -> Plot:
    """Draw a horizontal bar for each framework and topology, in ms per step, with the range of each measured part."""
    heading = f"{group.benchmark}: a step's time, {group.settings}"
    names = [step.cell.name for step in splits]
    figure, axes = draws.lying(names, theme, heading, each=0.3, right=0.75, top=0.72)
    axes.set_xlabel("ms per step; black lines: range of a part", color=theme.muted, fontsize=9, x=0.3)
    for row, step in enumerate(splits):
        end = furthest = 0.0
        for name, seconds in step.shown.items():
            index, hatch, beside = LOOKS.get(name, (0, "", 0.0))
            paint: dict[str, Any] = {"facecolor": theme.colour(index), "edgecolor": theme.surface, "hatch": hatch}
            axes.barh(row, 1000 * seconds, 0.56, left=end, label=name, lw=0, **paint)
            part = step.parts.get(name)
            if part and len(part.differences) > 1 and not part.control:
                ends = [max(0.0, end + 1000 * limit) for limit in (min(part.differences), max(part.differences))]
                axes.plot(ends, [row + beside] * 2, "|-", color=theme.ink, lw=1.1, ms=3.5, zorder=4)
                furthest = max(furthest, *ends)
            end += 1000 * seconds
        total: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8.5}
        where = max(end, furthest), row
        axes.annotate(f"{milliseconds(step.step_s)} ms", where, color=theme.muted, annotation_clip=False, **total)
    axes.set_xlim(left=0)
    draws.legend_above(axes, theme, 3)
    return figure


def notes(scope: Scope, group: Group) -> list[Note]:
    """Return what makes parts of a group's steps unknown."""
    return [Note(step.cell.name, text, "split") for step in split(group, scope.everything) for text in step.notes]


TOPIC = Topic("split", "Where a step's time goes", INTRO, 30, table=table, drawings=drawings, notes=notes)


NO_EXTRA = "no repeat of the extra no_gradient_sync can be compared"
NETWORK_NOTES = (
    "After the window, the ranks exchange messages of the same sizes again (all-reduce) without computing: the same "
    "alone is the time of these messages. Algorithm bandwidth is the gradients' bytes divided by this time. Bus "
    "bandwidth is algorithm bandwidth times 2 (n - 1) / n for n replicas. nccl-tests define both like this.",
    "Exchange is the time of a step minus that of a step where ranks keep their gradients (extra no_gradient_sync). "
    "Explained is the smaller one of exchange and the same alone. Where the same alone is larger, a step hides "
    "the rest of the messages behind its computation.",
)


@dataclass(frozen=True)
class Exchange:
    """The exchange of one cell: what its step spends on it, and figures of its messages alone by the keys of their
    columns, as far as they are known. reason: why the messages are not known."""

    cell: Cell
    reason: str | None
    communication_s: float | None
    alone: dict[str, float | None]


def exchanges(groups: Iterable[Group], everything: Sequence[Group]) -> list[Exchange]:
    """Return the exchange of every measured cell whose ranks exchanged messages alone, or said why they did not."""
    found = []
    for group in groups:
        parts = {step.cell: step.parts.get("communication") for step in split(group, everything)}
        for cell in group.measured:
            if network := cell.record.network:
                part, figures = parts.get(cell), dict[str, float | None]()
                spent = part.seconds if part else None
                if network.seconds and network.bytes_per_step is not None:
                    rate = network.bytes_per_step / network.seconds / 1e9
                    figures = {
                        "messages": network.messages,
                        "bytes_per_step": network.bytes_per_step,
                        "alone_s": network.seconds,
                        "explained_s": None if spent is None else min(network.seconds, spent),
                        "algorithm_gb_per_s": rate,
                        "bus_gb_per_s": rate * factor("all-reduce", cell.record.replicas),
                    }
                found.append(Exchange(cell, network.reason, spent, figures))
    return found


def _of_network(key: str, heading: str, small: str, show: Callable[[Any], str] = reading) -> Column:
    """Return the column of a figure that has the network's own reason if it is not known."""
    return Column(key, heading, small, lambda one: Entry.of(one.alone.get(key), show, one.reason or NO_EXTRA))


NETWORK_COLUMNS = (
    Column("step_s", "step", "ms", lambda one: one.cell.record.global_batch / one.cell.median, milliseconds),
    Column("communication_s", "exchange", "ms of the step", attrgetter("communication_s"), milliseconds, NO_EXTRA),
    _of_network("messages", "messages", "of a step", str),
    _of_network("bytes_per_step", "gradients", "MB a step", lambda count: reading(count / 1e6)),
    _of_network("alone_s", "the same alone", "ms", milliseconds),
    _of_network("explained_s", "explained", "ms", milliseconds),
    _of_network("algorithm_gb_per_s", "algorithm bandwidth", "GB/s"),
    _of_network("bus_gb_per_s", "bus bandwidth", "GB/s"),
)


def network(scope: Scope) -> Table | None:
    """Return a line for each cell with an exchange; None without any."""
    return Table.if_any(exchanges(scope.groups, scope.everything), NETWORK_COLUMNS, notes=NETWORK_NOTES, of_cells=True)


NETWORK = Topic("network", "A step's exchange, and the network alone", order=40, table=network)

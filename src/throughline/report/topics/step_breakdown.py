"""Where a step's time goes: compute, exposed communication and input, from runs that leave one of them out.

    communication = step - step without exchange (extra `no_gradient_sync`)
    input         = step - step without reading  (extra `synthetic`)
    compute       = step - communication - input

Differences are taken between repeats of the same number. These ran one after the other, so that a slow hour affects
both. The median of the differences is the figure, and their range is its noise.
docs/method-memory-and-time.md says what this assumes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline import statistics
from throughline.numbers import milliseconds, percent
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.differences import derived
from throughline.report.analysis.notes import Note
from throughline.report.render import plots as draws
from throughline.report.render import table_files
from throughline.report.render.plots import Theme
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table
from throughline.report.topic import Drawing, Scope, Topic

EXTRAS = {"communication": "no_gradient_sync", "input": "synthetic"}
"""Map a part of the step to the derived runs that leave it out."""
FIELDS = {
    "_difference_s": "median_s",
    "_difference_min_s": "low_s",
    "_difference_max_s": "high_s",
    "_pairs": "n",
}
"""Map the ends of the CSV's column names to the fields of a part."""
INTRO = (
    "Communication is the time of a step minus that of a step without exchange (extra `no_gradient_sync`). Input is "
    "the time of a step minus that of a step without reading (extra `synthetic`). Both steps are from repeats of the "
    "same number. The table shows the median of these differences, its share of the step, and the smallest and the "
    "largest difference. A part whose range contains 0 cannot be told from noise. A negative part is shown as 0."
)


@dataclass(frozen=True)
class Part:
    """One part of a step in seconds: the median of the differences of `n` pairs, and their range.

    control: there is nothing to measure (the exchange of a single rank), so the difference is noise.
    """

    median_s: float
    low_s: float
    high_s: float
    n: int
    control: bool = False

    @property
    def shown_s(self) -> float:
        """The seconds that are shown. They are never negative."""
        return 0.0 if self.control else max(0.0, self.median_s)

    @property
    def doubt(self) -> str:
        """Why the part may be nothing; empty if it is certain."""
        if self.control:
            return "a single rank exchanges nothing"
        if self.n == 1:
            return "one pair, so its noise is not known"
        return "within the noise" if self.low_s <= 0.0 <= self.high_s else ""


@dataclass(frozen=True)
class Split:
    """The step of one cell and its known parts. unlike: why a part is not known although there are runs without it."""

    cell: Cell
    step_s: float
    parts: dict[str, Part]
    unlike: dict[str, str]

    @property
    def rest(self) -> str:
        """What remains without the known parts."""
        return " and ".join(["compute", *(name for name in EXTRAS if name not in self.parts)])

    @property
    def shown(self) -> dict[str, float]:
        """The rest and the known parts, in seconds."""
        parts = {name: part.shown_s for name, part in self.parts.items()}
        return {self.rest: max(0.0, self.step_s - sum(parts.values())), **parts}

    @property
    def notes(self) -> list[str]:
        """What makes parts unknown."""
        notes = [
            f"{name} is not known, because the runs without it are not comparable: {text}"
            for name, text in self.unlike.items()
        ]
        if sum(part.shown_s for part in self.parts.values()) > self.step_s:
            notes.append("communication and input take longer than the step: they overlap, so compute is not known")
        return notes


def split(group: Group, everything: Iterable[Group]) -> list[Split]:
    """Return the splits of a group's measured cells for which runs without a part were measured."""
    everything, splits = list(everything), []
    for cell in group.measured:
        steps, parts, unlike = cell.step_seconds, dict[str, Part](), dict[str, str]()
        for name, extra in EXTRAS.items():
            without, differing = derived(cell, extra, everything)
            if differing:
                unlike[name] = "; ".join(differing)
            elif without:
                shorter = without.step_seconds
                pairs = [steps[repeat] - shorter[repeat] for repeat in sorted(steps.keys() & shorter.keys())]
                if (middle := statistics.median(pairs)) is not None:
                    control = cell.topology.world == 1 and not without.group.exchanges
                    parts[name] = Part(middle, min(pairs), max(pairs), len(pairs), control)
        if parts or unlike:
            splits.append(Split(cell, statistics.median([*steps.values()]) or 0.0, parts, unlike))
    return splits


def _time(step: Split, seconds: float) -> str:
    return f"{milliseconds(seconds)} ({percent(seconds / step.step_s)})"


def _compute(step: Split) -> Entry:
    """Return the rest; its seconds are those of computing only if both parts are known."""
    seconds, is_compute = step.shown[step.rest], step.rest == "compute"
    text = _time(step, seconds) + ("" if is_compute else f", {step.rest}")
    return Entry(text, seconds if is_compute else None)


def _part(name: str, step: Split) -> Entry:
    """Return time, share, range and doubt of a part."""
    part = step.parts.get(name)
    if part is None or part.control:
        return Entry() if part is None else Entry(f"0, {part.doubt}", part.shown_s)
    ends = f"{milliseconds(part.low_s)} to {milliseconds(part.high_s)}" if part.n > 1 else ""
    return Entry(", ".join(filter(None, (_time(step, part.shown_s), ends, part.doubt))), part.shown_s)


def _field(name: str, field: str, step: Split) -> float | None:
    value: float | None = getattr(step.parts.get(name), field, None)
    return value


COLUMNS = (
    *table_files.IDENTITY,
    Column("devices", read=lambda step: step.cell.topology.world, forms=(CSV,)),
    Column("step_s", "step, ms", read=lambda step: step.step_s, show=milliseconds),
    Column("compute_s", "compute, ms", read=_compute),
    *(
        column
        for name in EXTRAS
        for column in (
            Column(f"{name}_s", f"{name}, ms", read=partial(_part, name)),
            *(Column(f"{name}{end}", read=partial(_field, name, field), forms=(CSV,)) for end, field in FIELDS.items()),
        )
    ),
    Column("notes", read=lambda step: "; ".join(step.notes), forms=(CSV,)),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each split: the step and its parts, with their shares and ranges. None without derived runs."""
    steps = [step for group in scope.groups for step in split(group, scope.everything)]
    forms = (PAGE, CSV) if any(step.parts for step in steps) else (CSV,)
    return Table.of(steps, COLUMNS, forms=forms) if steps else None


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a plot for every group with a part that derived runs have measured."""
    for group in scope.groups:
        if steps := [step for step in split(group, scope.everything) if step.parts]:
            words = []
            for step in steps:
                shares = (f"{name} {percent(seconds / step.step_s, 1)}" for name, seconds in step.shown.items())
                words.append(f"{step.cell.name}: {milliseconds(step.step_s)} ms a step; {', '.join(shares)}.")
            heading = f"{group.benchmark}: where a step's time goes"
            yield Drawing(f"{group.name}_split", heading, partial(draw, group, steps), " ".join(words), group)


LOOKS = {"communication": (1, "///", -0.37), "input": (2, "\\\\\\", 0.37)}
"""Colour and hatch of a part, which tell the parts apart also without colours, and how far above or below the middle of
its bar the range of the part is."""


def draw(group: Group, splits: Sequence[Split], theme: Theme) -> Plot:
    """Draw a horizontal bar for each framework and topology, in ms per step, with the range of each measured part."""
    names = [step.cell.name for step in splits]
    heading = f"{group.benchmark}: a step's time, {group.settings}"
    figure, axes = draws.lying(names, theme, heading, each=0.3, right=0.75, top=0.72)
    axes.set_xlabel("ms per step; black lines: range of a part", color=theme.muted, fontsize=9, x=0.3)
    named: set[str] = set()
    for row, step in enumerate(splits):
        end, furthest = 0.0, 0.0
        for name, seconds in step.shown.items():
            index, hatch, beside = LOOKS.get(name, (0, "", 0.0))
            paint: dict[str, Any] = {"facecolor": theme.colour(index), "edgecolor": theme.surface, "hatch": hatch}
            axes.barh(row, 1000 * seconds, 0.56, left=end, label=None if name in named else name, lw=0, **paint)
            named.add(name)
            part = step.parts.get(name)
            if part and part.n > 1 and not part.control:
                ends = [max(0.0, end + 1000 * limit) for limit in (part.low_s, part.high_s)]
                axes.plot(ends, [row + beside] * 2, "|-", color=theme.ink, lw=1.1, ms=3.5, zorder=4)
                furthest = max(furthest, *ends)
            end += 1000 * seconds
        total: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 8.5}
        where = max(end, furthest), row
        axes.annotate(f"{milliseconds(step.step_s)} ms", where, color=theme.muted, annotation_clip=False, **total)
    axes.set_xlim(left=0)
    draws.legend_above(axes, theme, 3)
    return figure


TOPIC = Topic(
    "split",
    "Where a step's time goes",
    INTRO,
    order=30,
    table=table,
    drawings=drawings,
    notes=lambda scope, group: [
        Note(step.cell.name, text, "split") for step in split(group, scope.everything) for text in step.notes
    ],
)

"""Where a step's time goes: its parts as stacked bars, as a table and as a CSV, and how certain each part is.

Split a step's time into compute, exposed communication and input, from runs that leave one of them out.

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
from throughline.records import Cell
from throughline.report.analysis import derived_runs
from throughline.report.analysis.cells import Group, Note, Row
from throughline.report.analysis.sides import Side, differences
from throughline.report.render import plots as draws
from throughline.report.render import table_files, tables
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Table
from throughline.report.render.throughput_plots import settings
from throughline.report.topic import ABOUT, Drawing, Finding, Scope, Topic

EXTRAS = {"communication": "no_gradient_sync", "input": "synthetic"}
"""Map a part of the step to the derived runs that leave it out."""


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


@dataclass(frozen=True)
class Split:
    """The split of one framework on one topology. A part without derived runs is None, and belongs to the rest.

    unlike: which derived runs cannot be used, because they ran in another environment or on other data.
    """

    row: Row
    step_s: float
    communication: Part | None
    input: Part | None
    unlike: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Part]:
        """The known parts by their names."""
        return {name: part for name in EXTRAS if (part := getattr(self, name))}

    @property
    def rest_s(self) -> float:
        """The seconds that remain without the known parts."""
        return max(0.0, self.step_s - sum(part.shown_s for part in self.parts.values()))

    @property
    def rest(self) -> str:
        """What the rest consists of."""
        return " and ".join(["compute", *(name for name in EXTRAS if name not in self.parts)])

    @property
    def name(self) -> str:
        return f"{self.row.shown} {self.row.topology}"

    @property
    def notes(self) -> list[str]:
        """Sentences on how sure the parts are."""
        notes = [*self.unlike]
        notes += [doubt for name, part in self.parts.items() if (doubt := _doubt(name, part))]
        if sum(part.shown_s for part in self.parts.values()) > self.step_s:
            notes.append(
                "communication and input together take longer than the step: they overlap, so compute is not known"
            )
        return notes


def _doubt(name: str, part: Part) -> str | None:
    """Return what a reader has to know about one part before believing it."""
    low, high = milliseconds(part.low_s), milliseconds(part.high_s)
    size = f"{milliseconds(part.median_s)} ms, the {part.n} pairs lie between {low} and {high} ms"
    zero = "" if part.median_s >= 0 else ", shown as 0"
    if part.control:
        return f"a single rank has nobody to exchange with: {name} is 0, and the measured difference is noise ({size})"
    if part.n == 1:
        return f"{name} is {milliseconds(part.median_s)} ms, from one pair of repeats{zero}: its noise is not known"
    if part.low_s <= 0.0 <= part.high_s:
        return f"{name} is within the noise ({size}){zero}"
    if part.median_s < 0:
        return f"{name} is negative beyond the noise ({size}), shown as 0: the runs without it have other costs instead"
    return None


def split(group: Group, derived: Iterable[Group]) -> list[Split]:
    """Return the splits of a group's measured rows, from the groups among `derived` that are derived from it."""
    named = {(other.benchmark, other.name): other for other in derived}
    others = {name: named.get((f"{group.benchmark}__{extra}", group.name)) for name, extra in EXTRAS.items()}
    splits = []
    for row in group.measured:
        unlike = {name: _unlike(group, row, other) for name, other in others.items()}
        parts = {name: None if unlike[name] else _part(row, other) for name, other in others.items()}
        middle = statistics.median(list(_steps(row.cell).values())) if row.cell else None
        if middle and (any(parts.values()) or any(unlike.values())):
            reasons = (
                f"{name} is not known, because the runs without it are not comparable: {text}"
                for name, text in unlike.items()
                if text
            )
            splits.append(Split(row, middle, **parts, unlike=tuple(reasons)))
    return splits


def _unlike(group: Group, row: Row, other: Group | None) -> str:
    """Return how the surroundings of a row's derived runs differ from its own."""
    there = other.row(row.framework, row.topology) if other else None
    if not (other and there and there.cell and there.cell.n_ok):
        return ""
    return "; ".join(differences(Side(group, row), Side(other, there)))


def _part(row: Row, other: Group | None) -> Part | None:
    """Subtract the step of the same row in `other` from the step of `row`, repeat by repeat."""
    there = other.row(row.framework, row.topology) if other else None
    if not (other and there and there.cell and row.cell):
        return None
    with_it, without = _steps(row.cell), _steps(there.cell)
    pairs = [with_it[repeat] - without[repeat] for repeat in sorted(with_it.keys() & without.keys())]
    middle = statistics.median(pairs)
    control = row.topology.world == 1 and not other.exchanges
    return None if middle is None else Part(middle, min(pairs), max(pairs), len(pairs), control)


def _steps(cell: Cell) -> dict[int, float]:
    """Map each repeat to its seconds per optimizer step."""
    return {repeat: cell.global_batch / value for repeat, value in enumerate(cell.values, 1) if value}


LABELLED = 0.12  # a part that takes at least this share of the longest step has its own share written on it
BAR = 0.27  # inches for each bar
LETTER = 0.072  # inches for each letter of a bar's name
WHISKERS = {"communication": -0.2, "input": 0.2}
"""The distance from the middle of a bar to the range of a part: no range covers another."""
LOOKS = {"communication": (1, "///"), "input": (2, "\\\\\\")}
"""Colour and hatch of a part. Without colours the hatch tells the parts apart."""
FIELDS = {
    "_s": "shown_s",
    "_difference_s": "median_s",
    "_difference_min_s": "low_s",
    "_difference_max_s": "high_s",
    "_pairs": "n",
}
"""Map the ends of the CSV's column names to the fields of a part."""
HEADER = ["framework", "topology", "precision, batch", "step, ms", "compute, ms", "communication, ms", "input, ms"]
INTRO = (
    "Communication is the time of a step minus that of a step without exchange (extra `no_gradient_sync`). Input is "
    "the time of a step minus that of a step without reading (extra `synthetic`). Both steps are from repeats of the "
    "same number. The table shows the median of these differences, its share of the step, and the smallest and the "
    "largest difference. A part whose range contains 0 cannot be told from noise."
)


def csv(scope: Scope) -> Table | None:
    """Return a line for each split, in unrounded seconds; None if there are no derived runs."""
    rows = [
        {
            "benchmark": group.benchmark,
            "precision": group.precision,
            **table_files.batch_columns(group, step.row),
            "framework": step.row.framework,
            "topology": str(step.row.topology),
            "devices": step.row.topology.world,
            "step_s": step.step_s,
            "compute_s": step.rest_s if step.communication and step.input else None,
            **{f"communication{end}": getattr(step.communication, name, None) for end, name in FIELDS.items()},
            **{f"input{end}": getattr(step.input, name, None) for end, name in FIELDS.items()},
            "notes": "; ".join(step.notes),
        }
        for group in scope.groups
        for step in split(group, scope.everything)
    ]
    return tables.records(rows) if rows else None


def shown(step: Split) -> dict[str, float]:
    """Map the parts of a step to their seconds. The first one contains the parts that are not known."""
    known = {"communication": step.communication, "input": step.input}
    return {step.rest: step.rest_s, **{name: part.shown_s for name, part in known.items() if part}}


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a figure for every group with a part that derived runs have measured."""
    for group in scope.groups:
        if parts := [step for step in split(group, scope.everything) if step.parts]:
            heading, words = f"{group.benchmark}: where a step's time goes", " ".join(map(_words, parts))
            yield Drawing(f"{group.name}_split", heading, partial(draw, group, parts), words, group)


def draw(group: Group, splits: Sequence[Split], theme: Theme) -> Plot:
    """Draw a horizontal bar for each framework and topology, in ms per step, with the range of each measured part.

    The figure is higher the more bars there are, so that there is always room for their names.
    """
    names = [step.name for step in splits]
    left, right, bottom, top = min(0.25 + LETTER * max(map(len, names)), theme.size[0] / 2), 0.75, 0.55, 0.72
    width, height = theme.size[0], bottom + top + BAR * len(splits)
    figure = Plot(figsize=(width, height))
    corners = (left / width, bottom / height, 1 - (left + right) / width, BAR * len(splits) / height)
    axes = figure.add_axes(corners)
    draws.style(axes, theme, f"{group.benchmark}: a step's time, {settings(group)}", "", left)
    axes.set_xlabel("ms per step; black lines: range of a part over the repeats", color=theme.muted, fontsize=9, x=0.3)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, lw=0.8)
    longest = 1000 * max(step.step_s for step in splits)
    named: set[str] = set()
    for row, step in enumerate(splits):
        end = 0.0
        for name, seconds in shown(step).items():
            index, hatch = LOOKS.get(name, (0, ""))
            colour, label = theme.colour(index), None if name in named else name
            paint: dict[str, Any] = {"facecolor": colour, "edgecolor": theme.surface, "hatch": hatch, "lw": 0}
            axes.barh(row, 1000 * seconds, 0.7, left=end, label=label, **paint)
            named.add(name)
            if 1000 * seconds >= LABELLED * longest:
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "fontweight": "bold"}
                box = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}
                middle = (end + 500 * seconds, row)
                axes.annotate(percent(seconds / step.step_s), middle, color=theme.surface, bbox=box, **look)
            part = step.parts.get(name)
            if part and part.n > 1 and not part.control:
                ends = [max(0.0, end + 1000 * limit) for limit in (part.low_s, part.high_s)]
                axes.plot(ends, [row + WHISKERS[name]] * 2, "|-", color=theme.ink, lw=1.1, ms=3.5, zorder=4)
            end += 1000 * seconds
        total: dict[str, Any] = {
            "xytext": (5, 0),
            "textcoords": "offset points",
            "va": "center",
            "annotation_clip": False,
        }
        axes.annotate(f"{milliseconds(step.step_s)} ms", (end, row), fontsize=8.5, color=theme.muted, **total)
    axes.set_yticks(range(len(splits)), names, parse_math=False)
    axes.set_ylim(len(splits) - 0.4, -0.6)
    axes.set_xlim(left=0)
    legend: dict[str, Any] = {"handlelength": 1.0, "borderpad": 0.2, "columnspacing": 1.4, "ncols": 3}
    legend |= {"fontsize": 8, "frameon": False, "labelcolor": theme.ink}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **legend)
    return figure


def table(scope: Scope) -> Table | None:
    """Return a row for each split: the step and its parts in ms, with their shares and ranges."""
    rows = [
        [
            step.row.shown,
            str(step.row.topology),
            f"{group.precision}, {group.batch_of(step.row)}",
            milliseconds(step.step_s),
            _rest(step),
            *(_part_text(step, name) for name in EXTRAS),
        ]
        for group in scope.groups
        for step in split(group, scope.everything)
        if step.parts
    ]
    return tables.texts(HEADER, rows) if rows else None


def _rest(step: Split) -> str:
    """Return time and share of the rest, and its parts if it contains more than compute."""
    return _time(step, step.rest_s) + ("" if step.rest == "compute" else f", {step.rest}")


def _part_text(step: Split, name: str) -> str:
    """Return time, share and range of a part. A single pair of repeats has no range."""
    part = step.parts.get(name)
    if part is None or part.control:
        return tables.NOT_KNOWN if part is None else "0, a single rank"
    ends = f"{milliseconds(part.low_s)} to {milliseconds(part.high_s)}" if part.n > 1 else "one pair"
    return f"{_time(step, part.shown_s)}, {ends}"


def _time(step: Split, seconds: float) -> str:
    return f"{milliseconds(seconds)} ({percent(seconds / step.step_s)})"


def _words(step: Split) -> str:
    shares = ", ".join(f"{name} {percent(seconds / step.step_s, 1)}" for name, seconds in shown(step).items())
    return f"{step.name}: {milliseconds(step.step_s)} ms a step; {shares}."


def notes(scope: Scope, group: Group) -> list[Note]:
    """Return how certain the parts are."""
    return [Note(step.name, text, "split") for step in split(group, scope.everything) for text in step.notes]


def findings(scope: Scope) -> Iterator[Finding]:
    """Return what a derived benchmark (`<name>__aa`, `<name>__synthetic`) says about the original benchmark."""
    return (Finding(text, ABOUT) for text in derived_runs.sentences(scope.groups, scope.everything))


TOPIC = Topic(
    "split",
    "Where a step's time goes",
    INTRO,
    order=30,
    csv=csv,
    table=table,
    drawings=drawings,
    notes=notes,
    findings=findings,
)

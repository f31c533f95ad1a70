"""The overview above all benchmarks: the fastest cell of every framework."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from throughline.numbers import reading
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.leader import leader
from throughline.report.render import cell_entries, tables
from throughline.report.render.head import measured
from throughline.report.render.tables import Column, Entry, Table
from throughline.report.topic import Scope


@dataclass(frozen=True)
class Line:
    """One framework in a benchmark: its fastest cell, or its first cell if none has a figure.

    `leads`: this framework is the fastest, and the page's comparisons tell it apart from every other one.
    `measured` of `cells` cells have a figure.
    """

    group: Group
    row: Row
    leads: bool
    measured: int
    cells: int

    @property
    def cell(self) -> Cell | None:
        """The cell, if it has a figure."""
        return self.row.cell if self.row.status == "ok" else None


COLUMNS = (
    Column(heading="benchmark", small="model", names=True),
    Column(heading="framework", style="text name named"),
    Column(heading="throughput", small="median", by_value=True),
    Column(heading="topology", style="text", by_value=True),
    Column(heading="precision", small="batch", style="text"),
    Column(heading="per device", style="devices", by_value=True),
    Column(heading="speedup", by_value=True),
    Column(heading="efficiency", by_value=True),
    Column(heading="repeats", small="median ± 5 %", style="text plain"),
    Column(heading="cells", small="with a figure", by_value=True),
    Column(heading="warnings", small="of this cell"),
)


def table(lines: Iterable[tables.Line]) -> Table:
    """Return the overview of several benchmarks."""
    return Table(COLUMNS, list(lines), style="results")


def lines(scope: Scope, identity: str) -> Iterator[tables.Line]:
    """Yield the lines of one benchmark. `identity` is the id of its section on the page."""
    for number, line in enumerate(fastest_cells(scope)):
        row, star = line.row, " ★" if line.leads else ""
        style = row.status + ("" if number else " first")
        yield tables.Line(_entries(line, identity), line.group, row, f"{row.shown}{star}", style)


def _entries(line: Line, identity: str) -> list[Entry]:
    group, row, cell = line.group, line.row, line.cell
    model = Markup("<small>{}</small>").format(group.summary.model) if group.summary else ""
    best = Markup(' <span class="best" title="faster than every other framework, by the comparisons below">★</span>')
    precision = Markup("{}<small>{}</small>").format(group.precision, group.batch_name)
    return [
        Entry(html=Markup('<a href="#{}">{}</a>{}').format(identity, group.benchmark, model)),
        Entry(html=Markup("{}{}").format(row.shown, best if line.leads else "")),
        _median(line),
        Entry(str(row.topology), row.topology.world),
        Entry(html=precision),
        cell_entries.per_device(group, row),
        cell_entries.speedup(group, row),
        cell_entries.efficiency(group, row),
        cell_entries.repeats(group, row),
        Entry(f"{line.measured}/{line.cells}", line.measured, kind="short" if line.measured < line.cells else ""),
        Entry(str(len(cell.warnings)) if cell else ""),
    ]


def _median(line: Line) -> Entry:
    cell = line.cell
    if cell is None:
        return Entry.outcome(line.row)
    html = Markup('{} <span class="unit">{}</span>{}')
    median, others = reading(cell.median_speed), cell_entries.in_other_units(cell)
    return Entry(median, cell.median_speed, kind="strong", html=html.format(median, line.group.unit, others))


def fastest_cells(scope: Scope) -> Iterator[Line]:
    """Yield the fastest cell of each framework of one benchmark."""
    groups, leads = scope.groups, leader(scope.groups, scope.pairs)
    for framework in dict.fromkeys(name for group in groups for name in group.frameworks):
        rows = [(group, row) for group in groups for row in group.rows if row.framework == framework]
        known = [best for best in measured(groups) if best.row.framework == framework]
        top = max(known, key=lambda best: best.speed, default=None)
        group, row = (top.group, top.row) if top else rows[0]
        yield Line(group, row, leads is not None and row is leads, len(known), len(rows))

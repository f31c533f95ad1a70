"""The overview above all benchmarks: the fastest usable cell of every framework."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from throughline.report.analysis.cells import Cell
from throughline.report.analysis.leader import leader, usable
from throughline.report.render import cell_columns
from throughline.report.render.tables import Column, Entry, Line, Table
from throughline.report.topic import Scope


@dataclass(frozen=True)
class Best:
    """The best cell of a framework, one of so many `cells`, of which `measured` have figures.

    leads: the comparisons find it faster than all other frameworks. identity: the id of the benchmark's section.
    """

    cell: Cell
    leads: bool
    measured: int
    cells: int
    identity: str

    @property
    def name(self) -> str:
        return self.cell.shown + " ★" * self.leads


def best_cells(scope: Scope, identity: str) -> Iterator[Best]:
    """Yield the fastest usable cell of each framework, or its first cell if none has a figure."""
    leads = leader(scope.groups, scope.pairs)
    for framework in dict.fromkeys(cell.framework for cell in scope.cells):
        cells = [cell for cell in scope.cells if cell.framework == framework]
        measured = [cell for cell in cells if cell.ok]
        best = usable(measured, scope.pairs) or cells[0]
        yield Best(best, best is leads, len(measured), len(cells), identity)


def _benchmark(best: Best) -> Entry:
    summary = best.cell.group.summary
    html = Markup('<a href="#{}">{}</a><small>{}</small>').format(best.identity, summary.benchmark, summary.model)
    return Entry(html=html)


def _framework(best: Best) -> Entry:
    star = Markup(' <span class="best" title="faster than every other framework, by the comparisons">★</span>')
    return Entry(html=Markup("{}{}").format(best.cell.shown, star if best.leads else ""))


def _precision(best: Best) -> Entry:
    group = best.cell.group
    return Entry(html=Markup("{}<small>{}</small>").format(group.precision, group.batch_name))


def _of_cell(column: Column) -> Column:
    return replace(column, read=lambda best: column.read(best.cell))


def table(every: Sequence[Best]) -> Table:
    """Return the overview of several benchmarks."""
    columns = [
        Column(heading="benchmark", small="model", names=True, read=_benchmark),
        Column(heading="framework", style="text name named", read=_framework),
        Column(
            heading="throughput",
            small="median",
            by_value=True,
            read=lambda best: cell_columns.median(best.cell, best.cell.group.unit),
        ),
        replace(_of_cell(cell_columns.TOPOLOGY), style="text"),
        Column(heading="precision", small="batch", style="text", read=_precision),
        _of_cell(cell_columns.PER_DEVICE),
        _of_cell(cell_columns.SPEEDUP),
        _of_cell(cell_columns.EFFICIENCY),
        _of_cell(cell_columns.repeats([best.cell for best in every])),
        _of_cell(cell_columns.STEPS),
        Column(
            heading="cells",
            small="with a figure",
            by_value=True,
            read=lambda best: Entry(
                f"{best.measured}/{best.cells}", best.measured, kind="short" * (best.measured < best.cells)
            ),
        ),
    ]
    lines, before = [], None
    for best in every:
        style = best.cell.status + ("" if best.identity == before else " first")
        lines.append(Line([column.entry(best) for column in columns], best.cell, best.name, style))
        before = best.identity
    return Table(columns, lines, style="results")

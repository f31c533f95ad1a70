"""The overview above all benchmarks: the fastest cell of every framework."""

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from throughline.numbers import reading
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.leader import leader
from throughline.report.render import cell_entries
from throughline.report.render.tables import Column, Entry, Line, Table
from throughline.report.topic import Scope

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


def table(lines: Iterable[Line]) -> Table:
    """Return the overview of several benchmarks."""
    return Table(COLUMNS, list(lines), style="results")


def lines(scope: Scope, identity: str) -> Iterator[Line]:
    """Yield a line for the fastest cell of each framework. `identity` is the id of the benchmark's section."""
    leads = leader(scope.groups, scope.pairs)
    for number, framework in enumerate(dict.fromkeys(cell.framework for cell in scope.cells)):
        cells = [cell for cell in scope.cells if cell.framework == framework]
        measured = [cell for cell in cells if cell.ok]
        best = max(measured, key=lambda cell: cell.median, default=cells[0])
        star = " ★" if best is leads else ""
        figures = Entry(f"{len(measured)}/{len(cells)}", len(measured), kind="short" * (len(measured) < len(cells)))
        entries = _entries(best, identity, figures, best is leads)
        yield Line(entries, best, f"{best.shown}{star}", best.status + ("" if number else " first"))


def _entries(cell: Cell, identity: str, figures: Entry, leads: bool) -> list[Entry]:
    group = cell.group
    model = Markup("<small>{}</small>").format(group.summary.model)
    star = Markup(' <span class="best" title="faster than every other framework, by the comparisons below">★</span>')
    precision = Markup("{}<small>{}</small>").format(group.precision, group.batch_name)
    return [
        Entry(html=Markup('<a href="#{}">{}</a>{}').format(identity, group.benchmark, model)),
        Entry(html=Markup("{}{}").format(cell.shown, star if leads else "")),
        _median(cell),
        Entry(str(cell.topology), cell.topology.world),
        Entry(html=precision),
        cell_entries.per_device(cell),
        cell_entries.speedup(cell),
        cell_entries.efficiency(cell),
        cell_entries.repeats(cell),
        figures,
        Entry(str(len(cell.record.warnings)) if cell.ok else ""),
    ]


def _median(cell: Cell) -> Entry:
    if not cell.ok:
        return Entry.outcome(cell)
    html = Markup('{} <span class="unit">{}</span>{}')
    others = cell_entries.in_other_units(cell)
    text = reading(cell.median)
    return Entry(text, cell.median, kind="strong", html=html.format(text, cell.group.unit, others))

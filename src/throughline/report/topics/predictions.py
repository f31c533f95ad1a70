"""Predictions of topologies that nobody has measured, in a table of their own.

Nothing here is measured. So each heading, each column of the CSV and each sentence says `predicted`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from throughline.numbers import milliseconds, percent, reading
from throughline.records import Cost, PredictedCell, PredictedSeries
from throughline.report.analysis import cost
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import CSV, FORMS, PEOPLE, Column, Entry, Line, Table, in_csv, series
from throughline.report.topic import Scope, Topic
from throughline.spec import Topology

INTRO = (
    "Nobody has measured these topologies. Each line follows from the measured topologies of the same framework, "
    "batch and precision, with a model of a step: computing, the exchange, waiting for the slowest rank, and input. "
    "The range holds the throughput with the stated probability if the machine with more devices is like the measured "
    "one: the model knows no other network, no congestion and no failures."
)
TERMS = ("compute", "exchange", "waiting", "input")
"""What a step's time is spent on, in the order of the columns."""


@dataclass(frozen=True)
class Predicted:
    """A topology that was asked for. cell: its prediction; None with the reason `why`. largest: the measured cell with
    the most devices."""

    series: PredictedSeries
    largest: Cell
    topology: Topology
    cell: PredictedCell | None
    why: str = ""

    def cost_at(self, end: str) -> Cost | None:
        """Return what the whole training costs at an end of the predicted throughput, on devices like the largest
        measured; None without a prediction. end: `samples_per_s`, `low` or `high`."""
        if self.cell is None:
            return None
        measured = self.largest.record.cost
        price, money = measured.price_per_device_hour, measured.currency or ""
        rated = cost.Rate(price, money, "") if price else measured.reasons.get("task_price", "")
        return cost.of(getattr(self.cell, end), self.topology.world, rated, measured.total_samples)

    @property
    def efficiency(self) -> float | None:
        """The predicted efficiency over the baseline of the measured ones.

        None if that was not measured, or if the prediction leaves it out because it ran elsewhere.
        """
        base = self.largest.group.cell(self.series.framework, self.largest.baseline)
        used = [point.topology for point in self.series.measured]
        if not (self.cell and base and base.ok and str(base.topology) in used):
            return None
        return self.cell.samples_per_s / base.median / (self.topology.world / base.topology.world)


def asked(scope: Scope) -> list[Predicted]:
    """Return every topology that was asked for: for each series those with a prediction, then those without."""
    found = []
    for group in scope.groups:
        for one in scope.predicted(group):
            cells = group.series(one.framework) or [cell for cell in group.cells if cell.framework == one.framework]
            found += [Predicted(one, cells[-1], Topology.parse(cell.topology), cell) for cell in one.predicted]
            found += [Predicted(one, cells[-1], Topology.parse(no.topology), None, no.why) for no in one.not_predicted]
    return found


def _of_cell(
    key: str, heading: str, read: Callable[[PredictedCell], Any], show: Callable[[Any], str] = str, **fields: Any
) -> Column:
    """Return the column of a figure of a predicted cell; without a prediction, the entry has the reason."""
    small, of = "predicted" if heading else "", lambda one: one.cell and read(one.cell)
    fields = {"by_value": bool(heading), "forms": FORMS if heading else (CSV,)} | fields
    return Column(key, heading, small, of, show, lambda one: one.why or "not known", **fields)


def _task(name: str, end: str = "samples_per_s") -> Callable[[Predicted], float | None]:
    """Return the reader of what the whole training costs at an end of the predicted throughput."""
    return lambda one: getattr(one.cost_at(end), name, None)


def _price(one: Predicted) -> Entry | None:
    made = one.cost_at("samples_per_s")
    known = made.task_price if made else None
    return Entry(f"{reading(known)} {made.currency}", known) if made and known is not None else None


def _why_no_task(one: Predicted) -> str | None:
    made = one.cost_at("samples_per_s")
    return made.reasons.get("task_hours") or made.reasons.get("task_price") if made else one.why


def _speed(one: Predicted) -> Entry:
    if one.cell is None:
        return Entry("no prediction", reason=one.why)
    return Entry(f"{reading(one.cell.samples_per_s)} {one.series.unit}", one.cell.samples_per_s)


def _range(cell: PredictedCell) -> str:
    return f"{reading(cell.low)} to {reading(cell.high)} ({percent(cell.level)})"


def _term(term: str) -> Callable[[PredictedCell], float | None]:
    return lambda cell: cell.terms.get(term)


COLUMNS = (
    Column(heading="framework", read=lambda one: Entry.framework(one.largest), forms=PEOPLE, names=True),
    Column(heading="topology", small="predicted", read=lambda one: f"{one.topology} (predicted)", forms=PEOPLE,
           style="text named"),
    Column(heading="precision", small="batch", forms=PEOPLE, style="text named",
           read=lambda one: f"{one.series.precision}, {one.largest.group.batch_name}"),
    in_csv("benchmark", lambda one: one.largest.group.benchmark),
    in_csv("precision", lambda one: one.series.precision),
    in_csv("batch", lambda one: str(one.series.batch)),
    in_csv("framework", lambda one: one.series.framework),
    in_csv("predicted_topology", lambda one: str(one.topology)),
    Column("predicted_devices", "devices", "predicted", lambda one: one.topology.world, whole=True),
    _of_cell("predicted_global_batch", "", lambda cell: cell.global_batch, whole=True),
    Column("predicted_samples_per_s", "throughput", "predicted", _speed, by_value=True),
    _of_cell("predicted_samples_per_s_at_least", "", lambda cell: cell.low),
    _of_cell("predicted_samples_per_s_at_most", "", lambda cell: cell.high),
    _of_cell("", "range", _range, forms=PEOPLE),
    _of_cell("predicted_range_probability", "", lambda cell: cell.level),
    in_csv("unit", lambda one: one.series.unit if one.cell else None),
    Column("predicted_efficiency", "efficiency", "predicted", lambda one: one.efficiency, percent,
           lambda one: one.why or "the baseline has no valid repeat, or ran elsewhere", by_value=True),
    _of_cell("predicted_step_s", "step, ms", lambda cell: cell.step_s, milliseconds),
    *(_of_cell(f"predicted_{term}_s", f"{term}, ms", _term(term), milliseconds) for term in TERMS),
    Column("predicted_task_hours", "hours", "predicted, task", _task("task_hours"), reading, _why_no_task,
           by_value=True),
    in_csv("predicted_task_hours_at_least", _task("task_hours", "high")),
    in_csv("predicted_task_hours_at_most", _task("task_hours", "low")),
    Column("predicted_task_price", "price", "predicted, task", _price, reading, _why_no_task, by_value=True),
    _of_cell("predicted_times_measured_devices", "times the measured devices", lambda cell: cell.times_beyond,
             "{:.3g}".format),
    in_csv("predicted_warnings", lambda one: one.cell and "; ".join(one.cell.warnings)),
    in_csv("not_predicted_because", lambda one: one.why),
)  # fmt: skip


def table(scope: Scope) -> Table | None:
    """Return a line for each topology that is asked for, with a prediction or without; None without any."""
    found = asked(scope)
    shown = Table.of(found, COLUMNS, heading="Predicted, not measured", style="grid", notes=list(notes(found)))
    lines = [
        Line(line.entries, name=f"{one.topology}, predicted", style=series(one.largest))
        for one, line in zip(found, shown.lines, strict=True)
    ]
    return replace(shown, lines=lines) if found else None


def notes(found: Iterable[Predicted]) -> Iterator[str]:
    """Yield what else has to be known: warnings, and topologies without a prediction."""
    refused: dict[str, list[str]] = {}
    for one in found:
        where = f"{one.series.framework}, {one.series.precision}, {one.largest.group.batch_name}"
        if one.cell is None:
            refused.setdefault(f"{where}: no prediction, because {one.why}", []).append(str(one.topology))
        else:
            yield from (f"{where}, {one.topology} (predicted): {text}" for text in one.cell.warnings)
    yield from (f"{', '.join(topologies)}, {text}" for text, topologies in refused.items())


TOPIC = Topic("predictions", "Predicted, not measured", INTRO, order=15, table=table)

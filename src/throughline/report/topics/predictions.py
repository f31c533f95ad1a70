"""Predictions of topologies that nobody has measured, in a table of their own.

Nothing here is measured. So each heading, each column of the CSV and each sentence says `predicted`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from throughline.numbers import milliseconds, percent, reading
from throughline.prediction import FAR
from throughline.records import Cost, PredictedCell, PredictedSeries
from throughline.report.analysis import cost, predictions
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import CSV, PAGE, TEXT, Column, Entry, Line, Table, series
from throughline.report.topic import Scope, Topic
from throughline.spec import Topology

INTRO = (
    "Nobody has measured these topologies. Each line follows from the measured topologies of the same framework, "
    "batch and precision, with a model of a step: computing, the exchange, waiting for the slowest rank, and input. "
    "The range holds the throughput with the stated probability if the machine with more devices is like the measured "
    "one: the model knows no other network, no congestion and no failures."
)
PEOPLE = (PAGE, TEXT)
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

    def cost_at(self, speed: float) -> Cost:
        """Return what the whole training costs at this speed, on devices like the largest measured."""
        measured = self.largest.record.cost
        price, money = measured.price_per_device_hour, measured.currency or ""
        rated = cost.Rate(price, money, "") if price else measured.reasons.get("task_price", "")
        return cost.of(speed, self.topology.world, rated, measured.total_samples)

    @property
    def efficiency(self) -> float | None:
        """The predicted efficiency over the baseline of the measured ones.

        None if that was not measured, or if the prediction leaves it out because it ran elsewhere.
        """
        name = self.largest.group.summary.baselines.get(self.series.framework)
        base = self.largest.group.cell(self.series.framework, name) if name else None
        if not (self.cell and base and base.ok and name in {point.topology for point in self.series.measured}):
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
    return Column(key, heading, "predicted" if heading else "", by_value=bool(heading), read=lambda one: Entry.of(
        read(one.cell) if one.cell else None, show, one.why or "not known"), **fields)  # fmt: skip


def _speed(one: Predicted) -> Entry:
    if one.cell is None:
        return Entry("no prediction", reason=one.why)
    return Entry(f"{reading(one.cell.samples_per_s)} {one.series.unit}", one.cell.samples_per_s)


def _range(cell: PredictedCell) -> str:
    return f"{reading(cell.low)} to {reading(cell.high)} ({percent(cell.level)})"


def _term(term: str, cell: PredictedCell) -> float | None:
    return cell.terms.get(term)


def _hours(one: Predicted) -> Entry:
    if one.cell is None:
        return Entry(reason=one.why)
    made, least, most = (one.cost_at(speed) for speed in (one.cell.samples_per_s, one.cell.high, one.cell.low))
    ends = f" ({reading(least.task_hours)} to {reading(most.task_hours)})"
    return Entry.of(made.task_hours, lambda hours: reading(hours) + ends, made.reasons.get("task_hours"))


def _price(one: Predicted) -> Entry:
    if one.cell is None:
        return Entry(reason=one.why)
    made = one.cost_at(one.cell.samples_per_s)
    return Entry.of(made.task_price, lambda paid: f"{reading(paid)} {made.currency}", made.reasons.get("task_price"))


COLUMNS = (
    Column(heading="framework", read=lambda one: Entry.framework(one.largest), forms=PEOPLE, names=True),
    Column(heading="topology", small="predicted", read=lambda one: f"{one.topology} (predicted)", forms=PEOPLE,
           style="text named"),
    Column(heading="precision", small="batch", forms=PEOPLE, style="text named",
           read=lambda one: f"{one.series.precision}, {one.largest.group.batch_name}"),
    Column("benchmark", read=lambda one: one.largest.group.benchmark, forms=(CSV,)),
    Column("precision", read=lambda one: one.series.precision, forms=(CSV,)),
    Column("batch", read=lambda one: str(one.series.batch), forms=(CSV,)),
    Column("framework", read=lambda one: one.series.framework, forms=(CSV,)),
    Column("predicted_topology", read=lambda one: str(one.topology), forms=(CSV,)),
    Column("predicted_devices", "devices", "predicted", lambda one: one.topology.world, whole=True),
    _of_cell("predicted_global_batch", "", lambda cell: cell.global_batch, forms=(CSV,), whole=True),
    Column("predicted_samples_per_s", "throughput", "predicted", _speed, by_value=True),
    _of_cell("predicted_samples_per_s_at_least", "", lambda cell: cell.low, forms=(CSV,)),
    _of_cell("predicted_samples_per_s_at_most", "", lambda cell: cell.high, forms=(CSV,)),
    _of_cell("", "range", _range, forms=PEOPLE),
    _of_cell("predicted_range_probability", "", lambda cell: cell.level, forms=(CSV,)),
    Column("unit", read=lambda one: one.series.unit if one.cell else None, forms=(CSV,)),
    Column("predicted_efficiency", "efficiency", "predicted", lambda one: Entry.of(
        one.efficiency, percent, one.why or "the baseline has no valid repeat, or ran elsewhere"), by_value=True),
    _of_cell("predicted_step_s", "step, ms", lambda cell: cell.step_s, milliseconds),
    *(_of_cell(f"predicted_{term}_s", f"{term}, ms", partial(_term, term), milliseconds) for term in TERMS),
    Column("predicted_task_hours", "hours", "predicted, task", _hours, by_value=True),
    Column("predicted_task_hours_at_least", forms=(CSV,), read=lambda one: one.cell and one.cost_at(
        one.cell.high).task_hours),
    Column("predicted_task_hours_at_most", forms=(CSV,), read=lambda one: one.cell and one.cost_at(
        one.cell.low).task_hours),
    Column("predicted_task_price", "price", "predicted, task", _price, by_value=True),
    _of_cell("predicted_times_measured_devices", "times the measured devices", lambda cell: cell.times_beyond,
             "{:.3g}".format),
    Column("predicted_warnings", read=lambda one: one.cell and "; ".join(one.cell.warnings), forms=(CSV,)),
    Column("not_predicted_because", read=lambda one: one.why, forms=(CSV,)),
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
    """Yield what else has to be known: far extrapolations, warnings, and topologies without a prediction."""
    refused: dict[tuple[str, str], list[str]] = {}
    for one in found:
        where = f"{one.series.framework}, {one.series.precision}, {one.largest.group.batch_name}"
        if one.cell is None:
            refused.setdefault((where, one.why), []).append(str(one.topology))
            continue
        if one.cell.times_beyond > FAR:
            yield f"{where}: {predictions.in_words(one.series, one.cell)}"
        yield from (f"{where}, {one.topology} (predicted): {text}" for text in one.cell.warnings)
    for (where, why), topologies in refused.items():
        yield f"{where}: no prediction for {', '.join(topologies)}, because {why}"


TOPIC = Topic("predictions", "Predicted, not measured", INTRO, order=15, table=table)

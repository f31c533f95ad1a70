"""Predictions of topologies that nobody has measured: a table of its own, and a sentence.

Nothing here is measured. So each heading, each column of the CSV and each sentence says `predicted`.
"""

from collections.abc import Iterable, Iterator

from throughline.numbers import milliseconds, percent, reading
from throughline.prediction import FAR
from throughline.records import PredictedCell, PredictedSeries
from throughline.report.analysis import cost, predictions
from throughline.report.analysis.cells import Group
from throughline.report.render.tables import CSV, FORMS, PAGE, TEXT, Column, Entry, Line, Table, series
from throughline.report.topic import GAIN, Finding, Scope, Topic
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
COLUMNS = (
    Column(heading="framework", forms=PEOPLE, names=True),
    Column(heading="topology", small="predicted", forms=PEOPLE, style="text named"),
    Column(heading="precision", small="batch", forms=PEOPLE, style="text named"),
    *(Column(key, forms=(CSV,)) for key in ("benchmark", "precision", "batch", "framework", "predicted_topology")),
    Column("predicted_devices", "devices", "predicted", whole=True),
    Column("predicted_global_batch", forms=(CSV,), whole=True),
    Column("predicted_samples_per_s", "throughput", "predicted", by_value=True),
    Column("predicted_samples_per_s_at_least", forms=(CSV,)),
    Column("predicted_samples_per_s_at_most", forms=(CSV,)),
    Column(heading="range", small="predicted", forms=PEOPLE),
    Column("predicted_range_probability", forms=(CSV,)),
    Column("unit", forms=(CSV,)),
    Column("predicted_efficiency", "efficiency", "predicted", by_value=True),
    Column("predicted_step_s", "step", "predicted, ms", by_value=True),
    *(Column(f"predicted_{term}_s", term, "predicted, ms", by_value=True) for term in TERMS),
    Column("predicted_task_hours", "hours", "predicted, task", by_value=True),
    Column("predicted_task_hours_at_least", forms=(CSV,)),
    Column("predicted_task_hours_at_most", forms=(CSV,)),
    Column("predicted_task_price", "price", "predicted, task", by_value=True),
    Column("predicted_times_measured_devices", "devices", "times the most measured", by_value=True),
    Column("predicted_warnings", forms=(CSV,)),
    Column("not_predicted_because", forms=(CSV,)),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each topology that is asked for, with a prediction or without; None without any."""
    lines = [line for group, one in _series(scope) for line in (*_lines(group, one), *_refused(group, one))]
    if not lines:
        return None
    heading = "Predicted, not measured"
    return Table(COLUMNS, lines, notes=list(notes(scope)), heading=heading, forms=FORMS, spaced=True, style="grid")


def _series(scope: Scope) -> Iterator[tuple[Group, PredictedSeries]]:
    return ((group, one) for group in scope.groups for one in scope.predicted(group))


def _lines(group: Group, one: PredictedSeries) -> Iterator[Line]:
    for cell in one.predicted:
        topology, low, high = Topology.parse(cell.topology), reading(cell.low), reading(cell.high)
        yield Line(
            [
                *_names(group, one, cell.topology),
                Entry(str(topology.world), topology.world),
                Entry(value=cell.global_batch),
                Entry(f"{reading(cell.samples_per_s)} {one.unit}", cell.samples_per_s),
                Entry(value=cell.low),
                Entry(value=cell.high),
                Entry.words(f"{low} to {high} ({percent(cell.level)})"),
                Entry(value=cell.level),
                Entry.words(one.unit),
                Entry.of(efficiency(group, one, cell), percent, "the baseline has no valid repeat, or ran elsewhere"),
                Entry.of(cell.step_s, milliseconds),
                *(Entry.of(cell.terms.get(term), milliseconds, "not known") for term in TERMS),
                *_task(group, one, cell),
                Entry(f"{cell.times_beyond:.3g}", cell.times_beyond),
                Entry.words("; ".join(cell.warnings)),
                Entry.words(""),
            ],
            style=_colour(group, one),
            name=f"{cell.topology}, predicted",
        )


def _task(group: Group, one: PredictedSeries, cell: PredictedCell) -> Iterator[Entry]:
    """Yield the hours of the whole training with their ends, and its price, on devices like the largest measured."""
    measured = [row.cell.cost for row in group.series(one.framework) if row.cell][-1]
    price, money = measured.price_per_device_hour, measured.currency or ""
    rated = cost.Rate(price, money, "") if price else measured.reasons.get("task_price", "")
    world, samples = Topology.parse(cell.topology).world, measured.total_samples
    made, most, least = (cost.of(speed, world, rated, samples) for speed in (cell.samples_per_s, cell.low, cell.high))
    ends = f" ({reading(least.task_hours)} to {reading(most.task_hours)})"
    yield Entry.of(made.task_hours, lambda hours: reading(hours) + ends, made.reasons.get("task_hours"))
    yield from (Entry(value=least.task_hours), Entry(value=most.task_hours))
    yield Entry.of(made.task_price, lambda paid: f"{reading(paid)} {money}", made.reasons.get("task_price"))


def _refused(group: Group, one: PredictedSeries) -> Iterator[Line]:
    for refused in one.not_predicted:
        devices = Topology.parse(refused.topology).world
        known = [*_names(group, one, refused.topology), Entry(str(devices), devices), Entry()]
        speed = Entry("no prediction", reason=refused.why)
        nothing = [Entry(reason=refused.why) for _ in COLUMNS[len(known) + 1 : -1]]
        yield Line([*known, speed, *nothing, Entry.words(refused.why)], style=_colour(group, one))


def _names(group: Group, one: PredictedSeries, topology: str) -> list[Entry]:
    """Return the entries that say what is predicted, for people and for the CSV."""
    row = next(row for row in group.rows if row.framework == one.framework)
    batch = Entry.words(f"{one.precision}, {group.batch_name}")
    named = [group.benchmark, one.precision, str(one.batch), one.framework, topology]
    return [Entry.framework(row), Entry.words(f"{topology} (predicted)"), batch, *map(Entry.words, named)]


def _colour(group: Group, one: PredictedSeries) -> str:
    return next(series(group, row) for row in group.rows if row.framework == one.framework)


def efficiency(group: Group, one: PredictedSeries, cell: PredictedCell) -> float | None:
    """Return the predicted efficiency over the baseline of the measured ones.

    None if that was not measured, or if the prediction leaves it out because it ran elsewhere.
    """
    name = group.summary.baselines.get(one.framework) if group.summary else None
    base = name and group.row(one.framework, Topology.parse(name))
    if not base or base.cell is None or not base.cell.median_speed or name not in {p.topology for p in one.measured}:
        return None
    more = Topology.parse(cell.topology).world / base.topology.world
    return cell.samples_per_s / base.cell.median_speed / more


def notes(scope: Scope) -> Iterator[str]:
    """Yield what else has to be known: warnings, topologies without a prediction, and where they come from."""
    for group, one in _series(scope):
        where = f"{one.framework}, {group.precision}, {group.batch_name}"
        for cell in one.predicted:
            if cell.times_beyond > FAR:
                yield f"{where}: {predictions.in_words(one, cell)}"
            yield from (f"{where}, {cell.topology} (predicted): {text}" for text in cell.warnings)
        why: dict[str, list[str]] = {}
        for refused in one.not_predicted:
            why.setdefault(refused.why, []).append(refused.topology)
        for text, topologies in why.items():
            yield f"{where}: no prediction for {', '.join(topologies)}, because {text}"


def findings(scope: Scope) -> Iterable[Finding]:
    """Say what the fastest framework is predicted to give on the most devices."""
    every = [(group, one, one.predicted[-1]) for group, one in _series(scope) if one.predicted]
    if every:
        most = max(cell.times_beyond for _, _, cell in every)
        largest = [found for found in every if found[2].times_beyond == most]
        group, one, cell = max(largest, key=lambda found: found[2].samples_per_s)
        where = f"{one.framework}, {group.precision}, {group.batch_text}"
        yield Finding(f"Not measured, {where}: {predictions.in_words(one, cell)}.", GAIN)


TOPIC = Topic("predictions", "Predicted, not measured", INTRO, order=15, table=table, findings=findings)

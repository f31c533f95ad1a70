"""The plan of a whole training: hours and money of every topology, measured or predicted, and the deadline.

A predicted figure has `predicted` before it, and a column of its own in the CSV.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from throughline.numbers import percent, reading
from throughline.prediction import LEVEL
from throughline.report.analysis import judged_pairs, plan
from throughline.report.analysis.plan import Range, Step, Way
from throughline.report.render.tables import CSV, PAGE, TEXT, Column, Entry, Line, Table, series
from throughline.report.topic import GAIN, Finding, Scope, Topic

PEOPLE = (PAGE, TEXT)
NAMED = 4
"""How many of several ways that cannot be distinguished are named."""
KINDS = ("measured", "predicted")
FIGURES: dict[str, Callable[[Way], Range | None]] = {
    "samples_per_s": lambda way: way.speed,
    "task_hours": lambda way: way.hours,
    "task_price": lambda way: way.money,
    "samples_per_currency_unit": lambda way: way.samples_per_money,
}
"""The figures of a way by their names in the CSV, which has each of them as measured and as predicted."""
INTRO = (
    "What the whole training takes on each topology. A figure is predicted where the table says so; the others follow "
    f"from measured throughput. Ranges hold with {percent(LEVEL)} probability. They are those of short runs: they do "
    "not know of failures, evaluations and checkpoints of a long training."
)
COLUMNS = (
    Column(heading="framework", forms=PEOPLE, names=True),
    Column(heading="topology", forms=PEOPLE, style="text named"),
    Column(heading="precision", small="batch", forms=PEOPLE, style="text named"),
    *(Column(key, forms=(CSV,)) for key in ("benchmark", "precision", "batch", "framework", "topology", "kind")),
    Column("devices", "devices", whole=True),
    *(
        Column(f"{kind}_{name}{end}", forms=(CSV,))
        for kind in KINDS
        for name in FIGURES
        for end in ("", "_at_least", "_at_most")
    ),
    Column(heading="throughput", forms=PEOPLE, by_value=True),
    Column(heading="hours", small="task", forms=PEOPLE, by_value=True),
    Column(heading="price", small="task", forms=PEOPLE, by_value=True),
    Column(heading="samples", small="per unit of money", forms=PEOPLE, by_value=True),
    Column("currency", forms=(CSV,)),
    Column("deadline_hours", forms=(CSV,)),
    Column("meets_deadline", "meets the deadline", style="text"),
    Column(heading="from the line before", forms=PEOPLE, style="text"),
)


def of(scope: Scope) -> list[list[Way]]:
    """Return the ways to train, together those of one framework, batch and precision."""
    every = (plan.ways(group, one) for group in scope.groups for one in scope.predicted(group))
    return [ways for ways in every if ways]


def _deadline(scope: Scope) -> float | None:
    return scope.predictions.deadline_hours if scope.predictions else None


def table(scope: Scope) -> Table | None:
    """Return a line for each topology; None if nothing is predicted and there is no deadline."""
    every, deadline = of(scope), _deadline(scope)
    if not (deadline or any(way.predicted for ways in every for way in ways)):
        return None
    lines = []
    for ways in every:
        before = {id(step.after): step for step in plan.steps(ways)}
        lines += [_line(way, before.get(id(way)), deadline) for way in ways]
    costs = [way.cost for ways in every for way in ways]
    sources = dict.fromkeys(cost.price_source for cost in costs if cost.price_source)
    tasks = dict.fromkeys(cost.total_samples for cost in costs if cost.total_samples)
    facts = [("price", source) for source in sources] + [("whole task", f"{samples:,} samples") for samples in tasks]
    reasons = dict.fromkeys(reason for cost in costs for reason in cost.reasons.values())
    notes = [*(f"n/a: {reason}" for reason in reasons), *([by_deadline(scope)] if deadline else [])]
    return Table(COLUMNS, lines, facts, notes, heading="Plan, measured and predicted", spaced=True, style="grid")


def _line(way: Way, step: Step | None, deadline: float | None) -> Line:
    group, row, cost = way.group, way.row, way.cost
    kind = "predicted" if way.predicted else "measured"
    meets = "" if deadline is None or way.hours is None else "yes" if way.meets(deadline) else "not with 90 %"
    named = [group.benchmark, group.precision, str(group.batch), row.framework, str(way.topology), kind]
    money = cost.currency or ""
    shown = [way.speed, way.hours, way.money, way.samples_per_money]
    units = (group.unit, "", money, "")
    return Line(
        [
            Entry.framework(row),
            Entry.words(f"{way.topology} (predicted)" if way.predicted else str(way.topology)),
            Entry.words(f"{group.precision}, {group.batch_name}"),
            *map(Entry.words, named),
            Entry(str(way.topology.world), way.topology.world),
            *_in_csv(way, kind),
            *(_figure(way, figure, unit) for figure, unit in zip(shown, units, strict=True)),
            Entry.words(money),
            Entry(value=deadline),
            Entry.words(meets),
            Entry.words(_stepped(step) if step else ""),
        ],
        name=f"{way.topology}, {kind}",
        style=series(group, row),
    )


def _in_csv(way: Way, kind: str) -> Iterator[Entry]:
    """Yield every figure as measured, then as predicted; those of the other kind are empty."""
    for each in KINDS:
        for read in FIGURES.values():
            found = read(way) if each == kind else None
            yield from (Entry(value=end) for end in ((found.middle, found.low, found.high) if found else [None] * 3))


def _figure(way: Way, figure: Range | None, unit: str) -> Entry:
    return Entry(_told(way, figure, unit), figure.middle) if figure else Entry(reason="see below")


def _told(way: Way, figure: Range | None, unit: str) -> str:
    """Return a figure with its range, which says so if it is predicted."""
    if figure is None:
        return ""
    text = f"{'predicted ' if way.predicted else ''}{reading(figure.middle)} {unit}".strip()
    ends = f" ({reading(figure.low)} to {reading(figure.high)})" if figure.low and figure.high else ""
    return text + ends


def _stepped(step: Step) -> str:
    """Say what a step to more devices costs and gains, or why the two must not be compared."""
    if step.unlike:
        return f"not comparable: {'; '.join(step.unlike)}"
    predicted = "predicted: " if step.after.predicted or step.before.predicted else ""
    return f"{predicted}{_times(step.speed)} times the speed, {_more(step.paid)} {_paid(step)}"


def _paid(step: Step) -> str:
    return "money" if step.after.per_hour else "device hours"


def in_words(step: Step) -> str:
    """Return the sentence about a step, such as: from 64 to 128 devices you pay 9 to 16 % more for ..."""
    before, after = step.before.topology.world, step.after.topology.world
    kind = " (predicted)" if step.after.predicted else ""
    verb = "pay" if step.after.per_hour else "use device hours:"
    return (
        f"from {before} to {after} devices{kind} you {verb} {_more(step.paid)} for {_times(step.speed)} times the speed"
    )


def _times(ratio: Range) -> str:
    return f"{ratio.low:.3g} to {ratio.high:.3g}" if ratio.low and ratio.high else f"{ratio.middle:.3g}"


def _more(ratio: Range) -> str:
    """Return a ratio as a change in per cent: `9 to 16 % more`, `2 % less to 5 % more`."""
    low, high = (100 * (end - 1) for end in (ratio.low or ratio.middle, ratio.high or ratio.middle))
    if round(low) == round(high):
        return f"{abs(low):.0f} % {'more' if high > 0 else 'less'}"
    if low >= 0:
        return f"{low:.0f} to {high:.0f} % more"
    if high <= 0:
        return f"{-high:.0f} to {-low:.0f} % less"
    return f"{-low:.0f} % less to {high:.0f} % more"


def by_deadline(scope: Scope) -> str:
    """Name the cheapest way that meets the deadline and those not distinguishable from it, or say that none does."""
    deadline = _deadline(scope) or 0.0
    every = [way for ways in of(scope) for way in ways if way.hours]
    again = judged_pairs.twice_measured(scope.groups, scope.everything, ())
    found, sure = plan.cheapest(every, deadline, again), f"with at least {percent(LEVEL)} probability"
    if found:
        in_money = plan.in_one_currency([way for way in every if way.meets(deadline)])
        which = "the cheapest {}" if in_money else "the {} with the fewest device hours"
        way = which.format("ways" if len(found) > 1 else "way")
        return f"{way} to train in at most {deadline:,.10g} hours, {sure}{_all_named(found)}"
    if not every:
        return f"nothing can be said about a deadline of {deadline:,.10g} hours"
    late = f"nothing here trains in at most {deadline:,.10g} hours {sure}"
    quickest = plan.fastest(every, again)
    return f"{late}; the fastest {'ways' if len(quickest) > 1 else 'way'}{_all_named(quickest)}"


def _all_named(ways: Sequence[Way]) -> str:
    """Return a way after a colon, or several with the word that the verdict is inconclusive."""
    named = "; ".join(map(_named, ways[:NAMED]))
    more = f"; and {len(ways) - NAMED} more" if len(ways) > NAMED else ""
    return f", inconclusive: {named}{more}" if len(ways) > 1 else f": {named}"


def _named(way: Way) -> str:
    group, kind = way.group, " (predicted)" if way.predicted else ""
    money = way.cost.currency or ""
    price = f", {_told(way, way.money, money)}" if way.money else ""
    where = f"{way.row.framework} on {way.topology}{kind}, {group.precision}, {group.batch_name}"
    return f"{where}: {_told(way, way.hours, 'hours')}{price}"


def findings(scope: Scope) -> Iterable[Finding]:
    """Say which way meets the deadline, and what the last step to more devices costs."""
    every = of(scope)
    if _deadline(scope):
        yield Finding(f"{by_deadline(scope)[0].upper()}{by_deadline(scope)[1:]}.", GAIN)
    steps = [
        [step for step in plan.steps(ways) if not step.unlike] for ways in every if any(way.predicted for way in ways)
    ]
    last = [those[-1] for those in steps if those]
    if last:
        step = max(last, key=lambda step: (step.after.topology.world, step.after.speed.middle))
        way = step.after
        yield Finding(f"{way.row.framework}, {way.group.precision}, {way.group.batch_text}: {in_words(step)}.", GAIN)


TOPIC = Topic("plan", "Plan, measured and predicted", INTRO, order=145, table=table, findings=findings)

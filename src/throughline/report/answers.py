"""What a reader with one minute wants to know of a benchmark: five questions, answered in a sentence or two each.

Which is the fastest, and is that certain? How far does it scale? What limits it? What does it cost? What comes next?
Every answer follows from the verdicts and figures below it on the page. An answer that is not known says what would
tell it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from throughline import statistics
from throughline.numbers import percent, reading, span
from throughline.report.analysis import advice, comparison, judged_pairs, leader
from throughline.report.analysis import asked_pairs as asked
from throughline.report.analysis.cells import Cell
from throughline.report.render import head
from throughline.report.topic import Scope
from throughline.report.topics import hardware, step_breakdown
from throughline.study.config import block_name

SPLIT = "extras: [no_gradient_sync, synthetic] tells it"


@dataclass(frozen=True)
class Answer:
    """A question in a word or two, and its answer. telling: False if the answer is that it is not known."""

    question: str
    text: str
    telling: bool = True


def answers(scope: Scope) -> list[Answer]:
    """Return the answers for one benchmark. Without a figure, or for derived runs, there is only the first one."""
    best = asked.fastest(scope.groups)
    first = Answer("Fastest", fastest(scope))
    if best is None or scope.benchmark != block_name(scope.benchmark):
        return [first]
    return [first, scales(scope, best), limits(scope, best), costs(best), Answer("Next", next_step(scope, best))]


def fastest(scope: Scope) -> str:
    """Say what is the fastest, and whether the comparisons tell it apart from the other frameworks."""
    said = head.headline(scope.groups, scope.pairs, scaling=False)
    if leader.leader(scope.groups, scope.pairs):
        said += " All comparisons with other frameworks confirm it."
    return said


def scales(scope: Scope, best: Cell) -> Answer:
    """Say how far the fastest configuration scales, and whether its last step up is certain."""
    series, record = best.group.series(best.framework), best.record
    if len(series) < 2:
        return Answer("Scales", "Not measured: there is one topology. runs.topologies takes more.", False)
    if not best.scales:
        return _does_not_scale(scope, best, series[-1])
    if record.speedup is None:
        return Answer("Scales", f"Not known: {head.no_speedup(best)}.", False)
    kind = ", with strong scaling" if best.group.strong else ""
    between = f" ({span(record.speedup_range)} within the ranges of the repeats)" if record.speedup_range else ""
    said = (
        f"{record.speedup:.2f} times {head.over(best.baseline)} on {best.devices}{kind}{between}, "
        f"{percent(record.efficiency)} of the ideal."
    )
    for pair in scope.pairs:
        if pair.kind == "devices" and pair.other is best and pair.gains is not True:
            said += f" The comparisons do not find it faster than {pair.base.topology}: {pair.words}."
    return Answer("Scales", said)


def _does_not_scale(scope: Scope, best: Cell, widest: Cell) -> Answer:
    """Say what the comparison of the widest topology with the fastest one says; its median alone decides nothing."""
    again = judged_pairs.twice_measured(scope.groups, scope.everything, ())
    one, other = widest.topology, best.topology
    if one == other:
        return Answer("Scales", f"Not known: no topology with a figure has more devices than {other}.", False)
    pair = judged_pairs.of_cells(best, widest, again)
    if pair.gains is False:
        than = "slower" if pair.verdict == "slower" else "no faster"
        return Answer("Scales", f"Not here: {one} is {than} than {other}{pair.here}.")
    return Answer("Scales", f"Not known: {one} and {other} are {pair.verdict} ({pair.reason}).", False)


def limits(scope: Scope, best: Cell) -> Answer:
    """Say where the fastest configuration's step goes, as far as the runs tell."""
    for split in step_breakdown.split(best.group, scope.everything):
        if split.cell is best and split.parts:
            shares = [f"{name} {percent(seconds / split.step_s)}" for name, seconds in split.shown.items()]
            noise = [name for name, part in split.parts.items() if not part.control and part.low_s <= 0 <= part.high_s]
            doubt = f" Within the noise: {' and '.join(noise)}." if noise else ""
            return Answer("Limited by", f"A step of {split.cell.name} takes: {', '.join(shares)}.{doubt}")
    waits = best.record.loader_stall_share
    if waits is not None and waits > hardware.WAITS:
        return Answer("Limited by", f"Reading: {best.topology} waits {percent(waits)} of its time for data.")
    device, used = best.device, best.record.utilization
    share = None if used is None else used.gpu if device and device.kind != "cpu" else used.cpu
    busy = f"The devices are busy for {percent(share)} of the time. " if share is not None else ""
    return Answer(
        "Limited by",
        f"{busy}What a step spends is not measured: extras: [no_gradient_sync, synthetic] tells it.",
        False,
    )


def costs(best: Cell) -> Answer:
    """Say what the fastest configuration costs."""
    cost = best.record.cost
    if cost.per_million_samples is None:
        return Answer("Costs", f"Not known: {cost.reasons['per_million_samples']}.", False)
    unit = best.group.unit.removesuffix("/s")
    said = f"{reading(cost.per_million_samples)} {cost.currency} for a million {unit}"
    if cost.task_price is not None and cost.task_hours is not None:
        said += f"; the whole task: {reading(cost.task_hours)} hours, {reading(cost.task_price)} {cost.currency}"
    return Answer("Costs", f"{said} ({cost.price_source}).")


def next_step(scope: Scope, best: Cell) -> str:
    """Return what is worth doing first: the most serious doubt that the reader can fix."""
    return next(_worth_doing(scope, best))


def _worth_doing(scope: Scope, best: Cell) -> Iterator[str]:
    if barred := list(dict.fromkeys(cell.framework for cell in scope.measured if cell.barred)):
        yield f"Find out why {', '.join(barred)} is not shown to compute what the others do: equivalence.json."
    without = sum(not cell.ok for cell in scope.cells)
    if without:
        yield f"{without} cell{'s have' if without > 1 else ' has'} no figure: the tables say why."
    widths = [statistics.spread(cell.repeats) or 0.0 for cell in scope.measured]
    if unsteady := [width for width in widths if width > advice.SPREAD]:
        yield (
            f"Let the machine idle and measure again: repeats lie up to {percent(max(unsteady))} apart, and above "
            f"{percent(advice.SPREAD)} a median of few repeats says little."
        )
    if few := comparison.too_few(scope.pairs):
        yield few
    if more := comparison.would_tell(scope.pairs):
        yield f"Raise runs.repeats to {more[2]}: that would decide the inconclusive comparisons."
    if scope.pairs and not any(pair.floor for pair in scope.pairs):
        yield "Add extras: [aa]: it tells whether the differences would hold tomorrow."
    yield from (f"{aim}: {verdict}. {why}." for verdict, aim, why in head.judged(scope.groups) if verdict == "not met")
    if not limits(scope, best).telling:
        yield f"Find out what a step spends: {SPLIT}."
    yield "Nothing is in doubt. Larger topologies and other batch sizes would tell more."

"""What a reader with one minute wants to know of a benchmark: five questions, answered in a sentence or two each.

Which is the fastest, and is that certain? How far does it scale? What limits it? What does it cost? What comes next?
Every answer follows from the verdicts and figures below it on the page. An answer that is not known says what would
tell it. A derived benchmark (`<name>__aa`, `__synthetic`, `__no_gradient_sync`) has one sentence about its origin.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from throughline import statistics
from throughline.numbers import percent, reading, span
from throughline.report.analysis import advice, asked_pairs, comparison, differences, goals, judged_pairs, leader
from throughline.report.analysis.asked_pairs import untested
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Cell
from throughline.report.topic import Scope
from throughline.report.topics import hardware, step_breakdown
from throughline.spec.program import DECIDES
from throughline.study.config import block_name

OTHERWISE = {
    "synthetic": ("with synthetic batches", "A gain is the cost of reading the data."),
    "no_gradient_sync": (
        "without an exchange, so each rank trains a model of its own",
        "A gain is no speedup of a training: it is the most that a faster exchange could give.",
    ),
}
"""Map an extra to what it does otherwise, and to what a gain means."""


@dataclass(frozen=True)
class Answer:
    """A question in a word or two, and its answer. telling: False if the answer is that it is not known."""

    question: str
    text: str
    telling: bool = True


def answers(scope: Scope) -> list[Answer]:
    """Return the answers for one benchmark. Without a figure, or for derived runs, there is only the first one."""
    first = Answer("Fastest", headline(scope))
    if scope.best is None or scope.benchmark != block_name(scope.benchmark):
        return [first]
    limit = limits(scope, scope.best)
    following = Answer("Next", next(_worth_doing(scope, limit)))
    return [first, scales(scope, scope.best), limit, costs(scope.best), following]


def headline(scope: Scope) -> str:
    """Say how fast a benchmark is, and whether the comparisons find that faster than all other frameworks.

    No framework is called the fastest that the verdicts do not find faster than all others.
    """
    best = scope.best
    if best is None and scope.measured:
        reasons = ", ".join(dict.fromkeys(f"{cell.framework} {cell.doubt}" for cell in scope.measured))
        return f"No figure is shown here: {reasons} (equivalence.json)."
    if best is None:
        return "Nothing could be measured yet."
    said = (
        f"{_rivals(scope, best)}{best.shown} {'trains' if best.group.trains else 'calls'} {best.group.summary.model} "
        f"at {reading(best.median)} {best.group.unit} on {best.devices} in {best.group.precision} "
        f"with {best.group.batch_text}."
    )
    if best.group.summary.model == DECIDES:
        where = ", ".join([f"on {best.devices}", *best.group.stated(best.group.batch_text)])
        said = f"{_rivals(scope, best)}{best.shown} trains at {reading(best.median)} {best.group.unit} {where}."
    if leader.leader(scope.groups, scope.pairs) is best:
        said += " All comparisons with other frameworks confirm it."
    highest = asked_pairs.fastest(scope.groups)
    if highest and highest is not best:
        said += (
            f" A higher median, {reading(highest.median)} {highest.group.unit} in {highest.group.precision}, does not "
            f"count: the comparisons do not find that {highest.group.precision} gains here."
        )
    return said


def _rivals(scope: Scope, best: Cell) -> str:
    """Return what has to stand before a highest median that is no winner: which frameworks it does not beat.

    Frameworks that their equivalence check bars from a comparison are no rivals.
    """
    others = [other for other in asked_pairs.best_of_others(scope.groups, best) if not other.barred]
    open_ = leader.not_beaten(best, others, scope.pairs, beyond_runs=False)
    tested, unlike = set[str](), set[str]()
    for pair in scope.pairs:
        if pair.about(best):
            (unlike if pair.unlike else tested).update({pair.base.framework, pair.other.framework})
    reasons = {
        "the highest median cannot be distinguished from {}": [name for name in open_ if name in tested - unlike],
        "the highest median is not comparable with that of {}": [name for name in open_ if name in unlike],
        "no test compares it with {}": [name for name in open_ if name not in tested | unlike],
        f"there is no figure on {best.topology} ({best.group.precision}) of {{}}": [
            name for name in asked_pairs.without_figure(scope.groups, best) if name not in open_
        ],
    }
    why = [text.format(" and ".join(", ".join(names).rsplit(", ", 1))) for text, names in reasons.items() if names]
    return f"No framework is shown to be the fastest: {', and '.join(why)}. " if why else ""


def derived(scope: Scope) -> str:
    """Return what the runs of a derived benchmark say about their origin; empty for any other benchmark."""
    name, _, extra = scope.benchmark.partition("__")
    origins = [cell for group in scope.everything if extra and group.benchmark == name for cell in group.measured]
    found = [(cell, *differences.derived(cell, extra, scope.groups)) for cell in origins]
    twice = [(cell, there, unlike) for cell, there, unlike in found if there]
    alike = [(cell, there) for cell, there, unlike in twice if not unlike]
    said = []
    if len(alike) < len(twice):
        reason = next(unlike[0] for _, _, unlike in twice if unlike)
        said.append(f"{len(twice) - len(alike)} of {len(twice)} are not compared with {name}: {reason}.")
    again = judged_pairs.twice_measured(scope.groups, scope.everything)
    if extra == "aa" and alike:
        logs = [abs(pair.log) for pair in again if pair.other.group.benchmark == scope.benchmark]
        apart = "not within a day, so no verdict counts them"
        if logs:
            most = math.expm1(max(logs))
            apart = f"the two differ by up to {percent(most, 1)} ({len(logs)} of {len(alike)} compared)"
        said.append(f"The same configurations as {name}, measured again: {apart}.")
    elif extra in OTHERWISE:
        exchanging = [both for both in alike if extra == "synthetic" or both[0].topology.world > 1]
        pairs = judged_pairs.tested([untested(*both) for both in exchanging], again)
        if pairs:
            (how, gain), counts = OTHERWISE[extra], Counter(pair.words for pair in pairs)
            verdicts = ", ".join(f"{count} of {len(pairs)} {words}" for words, count in counts.items())
            ratios = [pair.tested.ratio if pair.tested else pair.ratio for pair in pairs]
            times = " to ".join(dict.fromkeys(f"{ratio:.3f}" for ratio in (min(ratios), max(ratios))))
            said.append(f"The same configurations as {name}, {how}: {verdicts}; {times} times the throughput. {gain}")
    return " ".join(said)


def figures(best: Cell | None) -> list[tuple[str, str, str]]:
    """Return the headline's numbers to be shown large: value, unit, and what it is."""
    if best is None:
        return []
    record = best.record
    precision = "" if best.group.precision == DECIDES else f", {best.group.precision}"
    rows = [(reading(best.median), best.group.unit, f"on {best.devices}{precision}")]
    rows += [(reading(value / record.world_size), unit, "per device") for unit, value in record.other_units.items()]
    if best.scales and record.speedup is not None:
        kind = "strong-scaling speedup" if best.group.strong else "speedup"
        rows.append((f"{record.speedup:.2f}", "×", f"{kind} over {_over(best.baseline)}"))
        rows.append((percent(record.efficiency), "", "efficiency"))
    width = statistics.spread(best.repeats)
    return [*rows, (percent(width, 1) or "n/a", "", f"spread of {record.n_ok} of {record.n} repeats")]


def _over(topology: str) -> str:
    """Return a baseline in words."""
    return "one device" if topology == ONE_DEVICE else topology


def scales(scope: Scope, best: Cell) -> Answer:
    """Say how far the fastest configuration scales, and whether its last step up is certain."""
    series, record = best.group.series(best.framework), best.record
    if len(series) < 2:
        return Answer("Scales", "Not measured: there is one topology. runs.topologies takes more.", False)
    if not best.scales:
        one, other = series[-1].topology, best.topology
        if one == other:
            return Answer("Scales", f"Not known: no topology with a figure has more devices than {other}.", False)
        again = judged_pairs.twice_measured(scope.groups, scope.everything)
        (pair,) = judged_pairs.tested([untested(best, series[-1])], again)
        if pair.gains is not False:
            return Answer("Scales", f"Not known: {one} and {other} are {pair.verdict} ({pair.reason}).", False)
        than = "slower" if pair.verdict == "slower" else "no faster"
        here = pair.words.removeprefix(pair.verdict)
        return Answer("Scales", f"Not here: {one} is {than} than {other}{here}.")
    if record.speedup is None:
        return Answer("Scales", f"Not known: {best.no_speedup}.", False)
    kind = ", with strong scaling" if best.group.strong else ""
    between = f" (range {span(record.speedup_range)})" if record.speedup_range else ""
    said = (
        f"{record.speedup:.2f} times {_over(best.baseline)} on {best.devices}{kind}{between}, "
        f"{percent(record.efficiency)} of the ideal."
    )
    for pair in scope.pairs:
        if pair.kind == "devices" and pair.other is best and pair.gains is not True:
            said += f" The comparison does not find it faster than {pair.base.topology}: {pair.words}."
    return Answer("Scales", said)


def limits(scope: Scope, best: Cell) -> Answer:
    """Say where the fastest configuration's step goes, as far as the runs tell. Noise is no share of a step."""
    for split in step_breakdown.split(best.group, scope.everything):
        if split.cell is best and split.parts:
            doubts = {name: part.doubt for name, part in split.parts.items()}
            shares = [
                f"{name} {doubts.get(name) or percent(seconds / split.step_s)}" for name, seconds in split.shown.items()
            ]
            return Answer("Limited by", f"A step of {best.name} takes: {', '.join(shares)}.")
    waits, used = best.record.loader_stall_share, best.record.utilization
    if waits is not None and waits > hardware.WAITS:
        return Answer("Limited by", f"Reading: {best.topology} waits {percent(waits)} of its time for data.")
    share = None if used is None else used.gpu if best.device and best.device.kind != "cpu" else used.cpu
    busy = f"The devices are busy for {percent(share)} of the time. " if share is not None else ""
    said = "What a step spends is not measured: `extras: [no_gradient_sync, synthetic]` measures it."
    if best.group.summary.model == DECIDES:
        said = "A program's step is not taken apart; the program's own profiler shows what it spends."
    return Answer("Limited by", busy + said, False)


def costs(best: Cell) -> Answer:
    """Say what the fastest configuration costs."""
    cost = best.record.cost
    if cost.per_million_samples is None:
        return Answer("Costs", f"Not known: {cost.reasons['per_million_samples']}.", False)
    said = f"{reading(cost.per_million_samples)} {cost.currency} for a million {best.group.unit.removesuffix('/s')}"
    if cost.task_price is not None and cost.task_hours is not None:
        said += f"; the whole task: {reading(cost.task_hours)} hours, {reading(cost.task_price)} {cost.currency}"
    return Answer("Costs", f"{said} ({cost.price_source}).")


def _worth_doing(scope: Scope, limit: Answer) -> Iterator[str]:
    """Yield what is worth doing, the most serious doubt that the reader can fix first."""
    if barred := dict.fromkeys(cell.framework for cell in scope.measured if cell.barred):
        yield f"Find out why {', '.join(barred)} is not shown to compute what the others do: equivalence.json."
    if without := len(scope.cells) - len(scope.measured):
        yield f"{without} cell{'s have' if without > 1 else ' has'} no figure: the tables say why."
    widest = max((statistics.spread(cell.repeats) or 0.0 for cell in scope.measured), default=0.0)
    if widest > advice.SPREAD:
        yield (
            f"Let the machine idle and measure again: repeats lie up to {percent(widest)} apart, and above "
            f"{percent(advice.SPREAD)} a median of few repeats says little."
        )
    if few := comparison.too_few(scope.pairs):
        yield few
    if more := comparison.would_tell(scope.pairs):
        yield f"Raise runs.repeats to {more[2]}: that would decide the inconclusive comparisons."
    if scope.pairs and not any(pair.floor for pair in scope.pairs):
        yield "Add `extras: [aa]`: it tells whether the differences would hold tomorrow."
    judged = goals.over_groups(scope.groups)
    yield from (f"{aim}: {verdict}. {why}." for verdict, aim, why in judged if verdict == "not met")
    if not limit.telling and scope.groups[0].summary.model != DECIDES:
        yield "Find out what a step spends: `extras: [no_gradient_sync, synthetic]` measures it."
    yield "Nothing is in doubt. Larger topologies and other batch sizes would tell more."

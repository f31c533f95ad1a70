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
from throughline.report.analysis import advice, comparison, differences, goals, judged_pairs, predictions
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Cell
from throughline.report.topic import Scope
from throughline.report.topics import step_breakdown
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
    """Return the answers for one benchmark. Without a figure, or for derived runs, there is only the first one.

    Single calls have no step to take apart, no speedup and no price.
    """
    first = Answer("Fastest" if scope.cells[1:] else "Speed", headline(scope))
    if scope.best is None or scope.benchmark != block_name(scope.benchmark):
        return [first]
    limit = limits(scope, scope.best) if scope.best.group.trains else None
    of_training = [scales(scope, scope.best), limit, costs(scope.best)] if limit else []
    return [first, *of_training, Answer("Next", next(_worth_doing(scope, limit)))]


def headline(scope: Scope) -> str:
    """Say how fast a benchmark is, and whether the comparisons find that faster than all other frameworks.

    No framework is called the fastest that the verdicts do not find faster than all others.
    """
    best, highest = scope.best, judged_pairs.fastest(scope.groups)
    if best is None:
        reasons = ", ".join(dict.fromkeys(f"{cell.framework} {cell.doubt}" for cell in scope.measured))
        unshown = f"No figure is shown here: {reasons} (equivalence.json)."
        return unshown if reasons else "Nothing could be measured yet."
    group, speed = best.group, f"at {reading(best.median)} {best.group.unit} on {best.devices}"
    does = "reads for" if group.reads_alone else "trains" if group.trains else "calls"
    said = f"{best.shown} {does} {group.summary.model} {speed} in {group.precision} with {group.batch_text}."
    if group.summary.model == DECIDES:
        said = f"{best.shown} trains {', '.join([speed, *group.stated(group.batch_text)])}."
    if judged_pairs.leader(scope.groups, scope.pairs) is best:
        said += " All comparisons with other frameworks confirm it."
    elif doubts := _doubts(scope, best):
        noun = "program" if group.summary.model == DECIDES else "framework"
        said = f"No {noun} is shown to be the fastest: {'; '.join(doubts)}. {said}"
    if highest and highest is not best:
        precision = highest.group.precision
        said += (
            f" A higher median, {reading(highest.median)} {highest.group.unit} in {precision}, does not count: the "
            f"comparisons do not find that {precision} gains here."
        )
    return said


def _doubts(scope: Scope, best: Cell) -> list[str]:
    """Return which frameworks the highest median does not beat. Frameworks that are barred are no rivals."""
    others = [other for other in judged_pairs.best_of_others(scope.groups, best) if not other.barred]
    open_ = judged_pairs.not_beaten(best, others, scope.pairs, beyond_runs=False)
    without = [name for name in judged_pairs.without_figure(scope.groups, best) if name not in open_]
    doubts = {
        f"no comparison finds {best.framework} faster than": open_,
        f"there is no figure on {best.topology} ({best.group.precision}) of": without,
    }
    return [f"{text} {', '.join(names)}" for text, names in doubts.items() if names]


def derived(scope: Scope) -> str:
    """Return what the runs of a derived benchmark say about their origin; empty for any other benchmark."""
    name, _, extra = scope.benchmark.partition("__")
    origins = [cell for group in scope.everything if extra and group.benchmark == name for cell in group.measured]
    found = [(cell, *differences.derived(cell, extra, scope.groups)) for cell in origins]
    alike = [(cell, there) for cell, there, unlike in found if there and not unlike]
    if extra == "reading":
        return f"The loader of {name} alone, without training: the table *Reading alone* of {name} compares both."
    said, reasons = list[str](), [unlike[0] for _, _, unlike in found if unlike]
    if reasons:
        said.append(f"{len(reasons)} of {len(reasons) + len(alike)} are not compared with {name}: {reasons[0]}.")
    again = judged_pairs.twice_measured(scope.groups, scope.everything)
    if extra == "aa" and alike:
        logs = [abs(pair.log) for pair in again if pair.other.group.benchmark == scope.benchmark]
        apart = "not within a day, so no verdict counts them"
        if logs:
            most = percent(math.expm1(max(logs)), 1)
            apart = f"the two differ by up to {most} ({len(logs)} of {len(alike)} compared)"
        said.append(f"The same configurations as {name}, measured again: {apart}.")
    exchanging = [both for both in alike if extra == "synthetic" or both[0].topology.world > 1]
    if extra in OTHERWISE and exchanging:
        untested, (how, gain) = [judged_pairs.untested(*both) for both in exchanging], OTHERWISE[extra]
        pairs = judged_pairs.tested(untested, again)
        verdicts = Counter(pair.words for pair in pairs)
        counts = ", ".join(f"{count} of {len(pairs)} {words}" for words, count in verdicts.items())
        ratios = sorted(pair.tested.ratio if pair.tested else pair.ratio for pair in pairs)
        times = " to ".join(dict.fromkeys(f"{ratio:.3f}" for ratio in (ratios[0], ratios[-1])))
        said.append(f"The same configurations as {name}, {how}: {counts}; {times} times the throughput. {gain}")
    return " ".join(said)


def figures(best: Cell | None) -> list[tuple[str, str, str]]:
    """Return the headline's numbers to be shown large: value, unit, and what it is."""
    if best is None:
        return []
    record = best.record
    precision = "" if best.group.precision == DECIDES else f", {best.group.precision}"
    rows = [(reading(best.median), best.group.unit, f"on {best.devices}{precision}")]
    rows += [(reading(value / record.world_size), unit, "per device") for unit, value in record.other_units.items()]
    if best.scales and record.speedup is not None and not best.beyond_devices:
        kind = "strong-scaling speedup" if best.group.strong else "speedup"
        rows.append((f"{record.speedup:.2f}", "×", f"{kind} over {_over(best.baseline)}"))
        rows.append((percent(record.efficiency), "", "efficiency"))
    width, valid = statistics.spread(best.repeats), f"{record.n_ok} of {record.n}"
    return [*rows, (valid, "", "repeats") if width is None else (percent(width, 1), "", f"spread of {valid} repeats")]


def _over(topology: str) -> str:
    """Return a baseline in words."""
    return "one device" if topology == ONE_DEVICE else topology


def scales(scope: Scope, best: Cell) -> Answer:
    """Say how far the fastest configuration scales, and whether its last step up is certain."""
    record, steps = best.record, [pair for pair in scope.pairs if pair.kind == "devices"]
    if len(best.group.series(best.framework)) < 2:
        return Answer("Scales", "Not measured: there is one topology. runs.topologies takes more.", False)
    if not best.scales:
        up = next((pair for pair in steps if pair.base is best), None)
        if up is None:
            more = f"no topology with a figure has more devices than {best.topology}"
            return Answer("Scales", f"Not known: {more}.", False)
        known = up.gains is False
        return Answer("Scales", f"{'Not here' if known else 'Not known'}: {up.what} is {up.words}.", known)
    if record.speedup is None:
        return Answer("Scales", f"Not known: {best.no_speedup}.", False)
    if best.beyond_devices:
        more = f"{record.speedup:.2f} times {_over(best.baseline)} is more than {best.devices} can give"
        return Answer("Scales", f"Not known: {more}; the notes below say why.", False)
    kind = ", with strong scaling" if best.group.strong else ""
    between = f" (range {span(record.speedup_range)})" if record.speedup_range else ""
    said = (
        f"{record.speedup:.2f} times {_over(best.baseline)} on {best.devices}{kind}{between}, "
        f"{percent(record.efficiency)} of the ideal."
    )
    open_ = [pair for pair in steps if pair.other is best and pair.gains is not True]
    said += "".join(f" The comparison with {pair.base.topology}: {pair.words}." for pair in open_)
    return Answer("Scales", said)


def limits(scope: Scope, best: Cell) -> Answer:
    """Say where the fastest configuration's step goes, as far as the runs tell. Noise is no share of a step."""
    for split in step_breakdown.split(best.group, scope.everything):
        if split.cell is best and split.parts:
            doubts = {name: part.doubt for name, part in split.parts.items()}
            shares = [f"{name} {doubts.get(name) or percent(s / split.step_s)}" for name, s in split.shown.items()]
            return Answer("Limited by", f"A step of {best.name} takes: {', '.join(shares)}.")
    waits = best.record.loader_stall_share or 0.0
    if waits > predictions.WAITS:
        return Answer("Limited by", f"Reading: {best.topology} waits {percent(waits)} of its time for data.")
    said = "What a step spends is not measured: `extras: [no_gradient_sync, synthetic]` measures it."
    if best.group.summary.model == DECIDES:
        said = "A program's step is not taken apart; the program's own profiler shows what it spends."
    return Answer("Limited by", said, False)


def costs(best: Cell) -> Answer:
    """Say what the fastest configuration costs."""
    cost = best.record.cost
    if cost.per_million_samples is None:
        why = cost.reasons["per_million_samples"]
        return Answer("Costs", f"{why[:1].upper()}{why[1:]}.", False)
    said = f"{reading(cost.per_million_samples)} {cost.currency} for a million {best.group.unit.removesuffix('/s')}"
    if cost.task_price is not None and cost.task_hours is not None:
        said += f"; the whole task: {reading(cost.task_hours)} hours, {reading(cost.task_price)} {cost.currency}"
    return Answer("Costs", f"{said} ({cost.price_source}).")


def _worth_doing(scope: Scope, limit: Answer | None) -> Iterator[str]:
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
    if any(len(cell.repeats) == 1 for cell in scope.measured):
        yield "Raise runs.repeats: one repeat does not show by how much it varies."
    if limit and not limit.telling and scope.groups[0].summary.model != DECIDES:
        yield "Find out what a step spends: `extras: [no_gradient_sync, synthetic]` measures it."
    yield "Nothing is in doubt. Larger topologies and other batch sizes would tell more."

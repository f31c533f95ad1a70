"""Choose pairs of cells and compare them: by how much they differ, how sure that is, and whether this machine can tell.

Only this file makes tested pairs; the page, the tables and the sentences print their verdicts. The test is chosen from
the design of the repeats, one for all pairs of a benchmark. A/A runs (the extra `aa`) measure one configuration twice.
How much they differ is the noise of a machine: it enters the test, and judges only runs of its own environment,
workload and day. The verdicts say which framework is the fastest, and which cells are the best value.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from throughline import ratios
from throughline.grouping import grouped
from throughline.records import Cost
from throughline.report.analysis import advice
from throughline.report.analysis.cells import Cell, Group, in_rounds, real
from throughline.report.analysis.comparison import Comparison, Floor, Pair, adjusted
from throughline.report.analysis.differences import differences, unlike
from throughline.study import runs
from throughline.study.config import block_name

AA = "__aa"
LOWER = ("bf16", "fp16")
NEAR = timedelta(days=1)
"""An A/A run judges only runs within this time of it."""


def judge(groups: Sequence[Group], everything: Sequence[Group] = ()) -> list[Pair]:
    """Return all comparisons of one benchmark, with their verdicts.

    They compare frameworks, precisions, topologies, and the benchmark with those among `everything` that differ from it
    in one option only, which this one has switched on.
    """
    pairs = [*_frameworks(groups), *_fastest(groups), *_precisions(groups), *_devices(groups),
             *_switches(groups, everything)]  # fmt: skip
    return tested(pairs, twice_measured(groups, everything, pairs))


def twice_measured(groups: Sequence[Group], everything: Sequence[Group], asked: Sequence[Pair] = ()) -> list[Pair]:
    """Return the A/A pairs of the blocks of these groups, and of the benchmarks that they are compared with."""
    compared = [cell.group for pair in asked for cell in (pair.base, pair.other)]
    blocks = {block_name(group.benchmark) for group in [*compared, *groups]}
    return list(measured_twice([g for g in everything or groups if block_name(g.benchmark) in blocks]))


def tested(pairs: Sequence[Pair], again: Sequence[Pair], *, elsewhere: bool = False) -> list[Pair]:
    """Test pairs together, beside the A/A pairs `again`. Pairs that must not be compared have no test.

    elsewhere: one side of each pair was measured at another time or place. Then its surroundings may differ, and the
    repeats share no rounds.
    """
    if not elsewhere:
        pairs = [replace(pair, unlike=unlike(pair.base, pair.other)) for pair in pairs]
    alike = [pair for pair in pairs if not pair.unlike]
    rounds = not elsewhere and in_rounds(cell for pair in alike for cell in (pair.base, pair.other))
    judged = []
    for pair in pairs:
        cells = pair.base, pair.other
        noise = noise_of(cells, again)
        test = None if pair.unlike else ratios.tested(pair.before, pair.after, paired=rounds, noise=noise)
        floor, margin = floor_of(cells, again), min(cell.group.summary.margin for cell in cells)
        judged.append(replace(pair, tested=test, in_rounds=rounds, floor=floor, margin=margin))
    return adjusted(judged)


def measured_twice(groups: Sequence[Group]) -> Iterator[Pair]:
    """Yield the cells that were measured twice, in the same environment and within a day: the A/A pairs."""

    def key(cell: Cell) -> tuple[str, str, str, str]:
        return cell.group.name, cell.framework, str(cell.topology), cell.group.benchmark.removesuffix(AA)

    cells = [cell for group in groups for cell in group.measured]
    first = {key(cell): cell for cell in cells if not cell.group.benchmark.endswith(AA)}
    for again in (cell for cell in cells if cell.group.benchmark.endswith(AA)):
        origin = first.get(key(again))
        if origin and not differences(origin, again) and _near(origin, again):
            paired = in_rounds((origin, again))
            test = ratios.tested(origin.repeats, again.repeats, paired=paired)
            pair = untested(origin, again, "aa", "again", origin.where)
            yield replace(pair, tested=test, in_rounds=paired)


def floor_of(cells: Sequence[Cell], again: Sequence[Pair]) -> Floor | None:
    """Return the widest A/A ratio that belongs to one of two cells, with the framework of that cell."""
    own = [pair for pair in again if any(_belongs(pair, cell, of_framework=True) for cell in cells)]
    names = dict.fromkeys(pair.base.framework for pair in own)
    return Floor(" and ".join(names), max(abs(pair.log) for pair in own), len(own)) if own else None


def noise_of(cells: Sequence[Cell], again: Sequence[Pair]) -> ratios.Noise | None:
    """Return by how much whole measurements differ beyond their repeats, from the A/A runs of all frameworks."""
    belong = [pair for pair in again if any(_belongs(pair, cell) for cell in cells)]
    return ratios.between_measurements([pair.tested for pair in belong if pair.tested])


def _belongs(pair: Pair, cell: Cell, *, of_framework: bool = False) -> bool:
    """True if an A/A pair was measured in the environment, with the workload and within a day of a cell.

    of_framework: it has to be of the same framework, too.
    """
    return all(
        (one.framework == cell.framework or not of_framework)
        and one.group.summary.model == cell.group.summary.model
        and one.group.summary.parameters == cell.group.summary.parameters
        and _near(one, cell)
        and not differences(one, cell)
        for one in (pair.base, pair.other)
    )


def _near(first: Cell, second: Cell) -> bool:
    """True if at most a day lies between two measurements; False if a summary does not tell when they took place."""
    records = first.record, second.record
    try:
        starts = [datetime.fromisoformat(record.started) for record in records if record.started]
        ends = [datetime.fromisoformat(record.ended) for record in records if record.ended]
        return len(starts) == len(ends) == 2 and max(starts) - min(ends) <= NEAR
    except (ValueError, TypeError):
        return False


def untested(
    base: Cell, other: Cell, kind: str = "", what: str = "", where: str = "", family: str = "", among: int = 0
) -> Pair:
    """Return a pair of measured cells that nobody has tested yet."""
    return Pair(
        kind=kind, what=what, where=where, base=base, other=other, family=family, among=among,
        before=base.repeats, after=other.repeats,
    )  # fmt: skip


def fastest(groups: Iterable[Group]) -> Cell | None:
    """Return the cell with the highest median of those whose equivalence check does not forbid a comparison.

    Simulated nodes count only where there are no others.
    """
    cells = (cell for group in groups for cell in group.measured if not cell.barred)
    return max(real(cells), key=lambda cell: cell.median, default=None)


def _frameworks(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare every framework with the first one that computes what it should, on each topology that both have.

    Where the highest median of all is, its framework is compared with the others too. The figures decide which one that
    is. So p is adjusted for all pairs of frameworks at one place.
    """
    top = fastest(groups)
    for group in groups:
        equal = [cell.framework for cell in group.measured if not cell.barred]
        name = next(iter(equal or group.frameworks), "")
        for cell in (cell for cell in group.measured if cell.framework != name):
            beside = [one for one in group.measured if one.topology == cell.topology]
            for base in sorted(beside, key=lambda one: one.framework != name):
                if base is not cell and (base.framework == name or cell is top):
                    kind = "frameworks" if base.framework == name else "fastest"
                    what = f"{cell.shown} over {name if base.framework == name else base.shown}"
                    family, among = f"frameworks on {cell.place}", math.comb(len(beside), 2)
                    yield untested(base, cell, kind, what, cell.place, family, among)


def best_of_others(groups: Iterable[Group], first: Cell) -> list[Cell]:
    """Return the cell with the highest median of every other framework that has a figure."""
    others = real(cell for group in groups for cell in group.measured if cell.framework != first.framework)
    by_framework = grouped(others, lambda cell: cell.framework)
    return [max(same, key=lambda cell: cell.median) for same in by_framework.values()]


def without_figure(groups: Iterable[Group], first: Cell) -> list[str]:
    """Return the other frameworks that have no figure on the topology of `first` in its precision, with any batch.

    They may be faster there. A framework that supports no such run is none of them.
    """
    statuses: dict[str, set[str]] = {}
    for cell in (cell for group in groups for cell in group.cells if cell.framework != first.framework):
        here = (cell.group.precision, cell.topology) == (first.group.precision, first.topology)
        statuses.setdefault(cell.framework, set()).update([cell.status] if here else [])
    return [name for name, there in statuses.items() if "ok" not in there and there != {"unsupported"}]


def _fastest(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare the cell with the highest median with the best cells of frameworks whose best cells are elsewhere.

    Without these pairs nothing could say that it is the fastest. All of them were chosen by their figures, from all
    pairs of cells.
    """
    if top := fastest(groups):
        among = math.comb(sum(len(group.measured) for group in groups), 2)
        for other in best_of_others(groups, top):
            if other.group is not top.group or other.topology != top.topology:
                what, where = f"{top.shown} over {other.shown}", f"{top.place} against {other.place}"
                yield untested(other, top, "fastest", what, where, "the fastest against those elsewhere", among)


def _precisions(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare lower precisions with fp32 (or else tf32), each at its fastest batch, on every topology."""
    cells = (cell for group in groups for cell in group.measured)
    for same in grouped(cells, lambda cell: (cell.framework, cell.topology)).values():
        by_precision = grouped(same, lambda cell: cell.group.precision)
        of_precision = {name: max(alike, key=lambda cell: cell.median) for name, alike in by_precision.items()}
        full = of_precision.get("fp32") or of_precision.get("tf32")
        for lower in (of_precision[precision] for precision in LOWER if full and precision in of_precision):
            assert full
            where = f"{lower.framework} {lower.topology}, {lower.group.batch_name} against {full.group.batch}"
            what = f"{lower.group.precision} over {full.group.precision}"
            yield untested(full, lower, "precisions", what, where, "precisions")


def _devices(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare each topology with the next smaller one."""
    for group in groups:
        for name in group.frameworks:
            for before, after in pairwise(group.series(name)):
                if after.topology.world > before.topology.world:
                    where = f"{name}, {group.precision}, {group.batch_name}"
                    what = f"{after.topology} over {before.topology}"
                    yield untested(before, after, "devices", what, where, "devices")


def _switches(groups: Sequence[Group], everything: Sequence[Group]) -> Iterator[Pair]:
    """Compare each group with the same one of a benchmark that differs in one option only.

    The benchmark of `groups` has that option switched on.
    """
    for group in groups:
        for other in (other for other in everything if other.name == group.name):
            if changed := runs.switch(other.summary, group.summary):
                key, before, after = changed
                what = f"{key} over none" if (before, after) == (False, True) else f"{key} {after} over {before}"
                for cell in group.measured:
                    base = other.cell(cell.framework, cell.topology)
                    if base and base.ok:
                        where = f"{cell.place}, {group.benchmark} against {other.benchmark}"
                        yield untested(base, cell, "switches", what, where, "options")


def leader(groups: Sequence[Group], pairs: Sequence[Pair]) -> Cell | None:
    """Return the cell with the highest median, if its framework is the fastest of the benchmark; else None.

    That takes a test for every other framework, at that framework's own best place, which finds it slower beyond the
    A/A runs. All of them have to be equal in the equivalence check, and their settings have to be those of the same
    work. They need a figure on its topology in its precision, too: fewer devices are slower for other reasons. A
    benchmark with a single framework has no leader.
    """
    first = fastest(groups)
    if first is None or first.equivalence != "equal" or without_figure(groups, first):
        return None
    others = best_of_others(groups, first)
    alike = all(one.equivalence == "equal" and not advice.other_work(first.settings, one.settings) for one in others)
    return first if others and alike and not not_beaten(first, others, pairs, beyond_runs=True) else None


def not_beaten(first: Cell, others: Sequence[Cell], pairs: Sequence[Pair], *, beyond_runs: bool) -> list[str]:
    """Return the frameworks of `others` that no pair finds slower than `first`.

    beyond_runs: a verdict about these runs alone does not count.
    """
    counted = [pair for pair in pairs if pair.floor or not beyond_runs]
    beaten = [pair.base for pair in counted if pair.other is first and pair.verdict == "faster"]
    beaten += [pair.other for pair in counted if pair.base is first and pair.verdict == "slower"]
    return [other.framework for other in others if other not in beaten]


def usable(cells: Iterable[Cell], pairs: Iterable[Pair]) -> Cell | None:
    """Return the cell with the highest median whose precision gains something; None without a cell.

    Simulated nodes count only where there are no others.
    A lower precision gains nothing where its comparison with fp32 says so. Where the device only emulates it, the
    comparison has to find it faster. If no precision is left, the highest median of all counts.
    """
    gains = {
        (pair.other.framework, str(pair.other.topology), pair.other.group.precision): pair.gains
        for pair in pairs
        if pair.kind == "precisions"
    }

    def pays(cell: Cell) -> bool:
        gain = gains.get((cell.framework, str(cell.topology), cell.group.precision))
        emulated = cell.group.precision == "fp16" and cell.device is not None and cell.device.fp16_native is False
        return gain is True or (gain is None and not (emulated or cell.settings.get("emulated_products")))

    cells = real(cells)
    return max([cell for cell in cells if pays(cell)] or cells, key=lambda cell: cell.median, default=None)


def best_value(costs: Mapping[Cell, Cost], again: Sequence[Pair]) -> tuple[list[Cell], str]:
    """Return the cell with the lowest cost per sample, and after it those that cannot be distinguished from it.

    No cell if no price is known or not all are in one currency; then the reason stands beside it. Samples for a unit of
    money are tested as throughputs are (see `ratios`): all others against the best. The figures decide which one that
    is, so p is adjusted for all pairs.
    """
    prices = {cell: price for cell, cost in costs.items() if (price := cost.price_per_device_hour)}
    currencies = sorted({costs[cell].currency or "" for cell in prices})
    if len(currencies) != 1:
        return [], f"prices are in {' and '.join(currencies)}" if currencies else "no price is known"
    rates = {cell: price * cell.topology.world / 3600 for cell, price in prices.items()}
    best, *others = sorted(rates, key=lambda cell: -cell.median / rates[cell])
    rounds, pairs = in_rounds(rates), []
    for cell in others:
        mine, theirs = ([speed / rates[one] for speed in one.repeats] for one in (cell, best))
        tested = ratios.tested(mine, theirs, paired=rounds, noise=noise_of((cell, best), again))
        floor, among = floor_of((cell, best), again), math.comb(len(rates), 2)
        pairs.append(Comparison(before=mine, after=theirs, tested=tested, floor=floor, among=among))
    verdicts = [pair.verdict for pair in adjusted(pairs)]
    return [best, *(cell for cell, verdict in zip(others, verdicts, strict=True) if verdict != "faster")], ""

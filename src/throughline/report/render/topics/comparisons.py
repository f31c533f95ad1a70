"""Comparisons: every pair of a benchmark with its ratio and verdict, and in sentences what gains nothing or differs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pandas as pd

from throughline.report.analysis import advice, comparisons
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.comparisons import Pair
from throughline.report.analysis.values import MEASURED, of_cell
from throughline.report.numbers import percent, reading, span
from throughline.report.render import markup
from throughline.report.render.head import Best, fastest, measured
from throughline.report.render.tables import Chip, Table
from throughline.report.topics import LOSS, Finding, Scope, Topic

ENOUGH = 3  # repeats below which no rank test says anything
COLUMNS = ["compared", "where", "ratio", "ratio_at_least", "ratio_at_most", "rank_test_p", "smallest_difference",
           "a_a_pairs", "verdict"]  # fmt: skip


def frame(scope: Scope) -> pd.DataFrame:
    """Every pair, judged by the A/A runs of its device."""
    rows = []
    for pair in comparisons.pairs(scope.groups, scope.groups, scope.floors):
        ends, floor = pair.range or (None, None), pair.floor
        noise = (floor.share, floor.compared) if floor else (None, 0)
        names = markup.spreadsheet(pair.what), markup.spreadsheet(pair.where)
        rows.append([*names, pair.ratio, *ends, pair.p, *noise, pair.verdict])
    return pd.DataFrame(rows, columns=COLUMNS)


def table(scope: Scope) -> Table:
    """The pairs as the page shows them, those with other benchmarks included."""
    unit = scope.groups[0].unit if scope.groups else ""
    header = ["compared", "where", f"{unit}, medians", "ratio", "range of the ratio", "verdict", "because"]
    return header, [_row(pair) for pair in comparisons.pairs(scope.groups, scope.everything, scope.floors)]


def _row(pair: Pair) -> list[str | Chip]:
    medians = " against ".join(
        reading(value.median) + ("" if value.source == MEASURED else f" ({value.source})")
        for value in (pair.other, pair.one)
    )
    verdict = (pair.verdict.replace(" ", "-"), pair.verdict)
    return [pair.what, pair.where, medians, f"{pair.ratio:.3f}", span(pair.range, 3) or "n/a", verdict, pair.why]


def remarks(scope: Scope) -> Iterator[str]:
    """What the devices can tell apart, and what the figures mean."""
    here = {comparisons.device(group) for group in scope.groups}
    floors = [floor for name, floor in scope.floors.items() if name in here]
    yield from (f"{floor.text}." for floor in floors)
    if not floors:
        yield (
            "No A/A run on this device: the smallest difference that it can report is not known. extras: [aa] measures "
            "it."
        )
    yield (
        "Ranges hold the true ratio as often as both medians lie in their repeats' ranges; p is that of the rank test "
        "between the repeats."
    )


def findings(scope: Scope) -> Iterator[Finding]:
    """How frameworks and precisions compare, and what gains nothing; below what A/A runs differ by, nothing differs."""
    yield from (*_frameworks(scope), *_precisions(scope), *_more_devices(scope), *_switches(scope))


def _switches(scope: Scope) -> Iterator[Finding]:
    """Compiled models that are no faster."""
    for pair in comparisons.switches(scope.groups, scope.everything, scope.floors):
        if pair.what.startswith("compile ") and pair.verdict != "faster":
            yield Finding(
                f"compile gains nothing: {pair.ratio:.3f} times the throughput ({pair.where}; {pair.verdict}, "
                f"{pair.why}). Leave it off here.",
                LOSS,
            )


def _frameworks(scope: Scope) -> Iterator[Finding]:
    """The fastest framework and every other one, on the largest topology that they share."""
    best = fastest(scope.groups)
    if best is None:
        return
    fastest_of = {row.topology: row for row in best.group.series(best.row.framework)}
    for name in best.group.frameworks:
        shared = [row for row in best.group.series(name) if row.topology in fastest_of]
        if name == best.row.framework or not shared:
            continue
        mine = fastest_of[shared[-1].topology]
        one, other = of_cell(name, shared[-1].cell), of_cell(mine.framework, mine.cell)
        if one and other and min(len(one.repeats), len(other.repeats)) >= ENOUGH:
            where = f"on {mine.topology} ({best.settings})"
            yield Finding(_faster(Pair("", where, one, other, scope.floors.get(comparisons.device(best.group)))))


def _faster(pair: Pair) -> str:
    """Which of two is faster, and how sure that is."""
    names, gain = (pair.other.label, pair.one.label), pair.ratio - 1
    if pair.verdict == "no difference":
        return f"No difference between {' and '.join(names)} {pair.where}: {percent(abs(gain), 1)}, {pair.why}."
    if pair.verdict == "not told apart":
        return f"{' and '.join(names)} cannot be told apart {pair.where}: {pair.why} of the rank test."
    ahead, behind = names if gain > 0 else names[::-1]
    gain = max(pair.ratio, 1 / pair.ratio) - 1
    return f"{ahead} is {percent(gain, 1)} faster than {behind} {pair.where}; {pair.why} of the rank test."


def _precisions(scope: Scope) -> Iterator[Finding]:
    """Lower precisions against fp32 (else tf32) on one device, each at its fastest batch."""
    top: dict[tuple[str, str], Best] = {}
    for best in measured(scope.groups):
        key = best.row.framework, best.group.precision
        if str(best.row.topology) == ONE_DEVICE and (key not in top or best.speed > top[key].speed):
            top[key] = best
    for framework in dict.fromkeys(name for group in scope.groups for name in group.frameworks):
        full = top.get((framework, "fp32")) or top.get((framework, "tf32"))
        for precision in comparisons.LOWER:
            if full and (half := top.get((framework, precision))):
                yield _precision(scope, framework, half, full)


def _precision(scope: Scope, framework: str, half: Best, full: Best) -> Finding:
    precision, reference = half.group.precision, full.group.precision
    device = half.group.summary.device if half.group.summary else None
    floor = scope.floors.get(comparisons.device(half.group))
    native, noise = device.fp16_native if device else None, floor.share if floor else 0.0
    if text := advice.gains_nothing(half.speed, full.speed, precision, reference, native, noise):
        return Finding(f"{framework}: {text}.", LOSS)
    one, other = of_cell(reference, full.cell), of_cell(precision, half.cell)
    assert one and other
    pair = Pair("", "", one, other, floor)
    against = f"on one device (batch {half.group.batch} against {full.group.batch})"
    text = (
        f"{precision} is {pair.ratio:.2f} times as fast as {reference} {against}; {pair.why} of the rank test."
        if pair.verdict == "faster"
        else f"{precision} and {reference} cannot be told apart {against}: the medians' ratio is {pair.ratio:.2f}, "
        f"{pair.why}."
    )
    return Finding(f"{framework}: {text}")


def _more_devices(scope: Scope) -> Iterator[Finding]:
    """Topologies that are no faster than the next smaller one."""
    for group in scope.groups:
        floor = scope.floors.get(comparisons.device(group))
        for framework in group.frameworks:
            for before, after in pairwise(group.series(framework)):
                a, b = of_cell("", before.cell), of_cell("", after.cell)
                more = after.topology.world > before.topology.world
                if more and a and b and b.median <= a.median * (1 + (floor.share if floor else 0.0)):
                    yield Finding(
                        f"{framework}: {after.topology} is no faster than {before.topology} ({reading(b.median)} "
                        f"against {reading(a.median)} {group.unit}, {group.precision}, batch {group.batch}): the "
                        "additional devices gain nothing. Look at what the devices share: cores, memory bandwidth, the "
                        "network; a larger batch per device exchanges less often.",
                        LOSS,
                    )


TOPIC = Topic("comparisons", "Comparisons", frame=frame, table=table, remarks=remarks, findings=findings)

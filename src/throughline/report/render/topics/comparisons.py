"""Comparisons: every pair of a benchmark with its ratio and verdict, and in sentences what gains nothing or differs."""

from collections.abc import Iterator

import pandas as pd

from throughline.report.analysis import advice, comparisons
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.comparisons import Pair
from throughline.report.analysis.values import MEASURED
from throughline.report.numbers import percent, reading, span
from throughline.report.render import markup
from throughline.report.render.head import fastest
from throughline.report.render.tables import Chip, Table
from throughline.report.topics import LOSS, Finding, Scope, Topic

COLUMNS = ["compared", "where", "ratio", "ratio_at_least", "ratio_at_most", "rank_test_p", "rank_test_p_holm",
           "pairs_tested", "smallest_difference", "a_a_pairs", "verdict", "because"]  # fmt: skip


def frame(scope: Scope) -> pd.DataFrame:
    """Every pair with its verdict."""
    rows = []
    for pair in scope.pairs:
        ends, floor = pair.range or (None, None), pair.floor
        noise = (floor.share, floor.compared) if floor else (None, 0)
        names = markup.spreadsheet(pair.what), markup.spreadsheet(pair.where)
        tested = pair.p, pair.adjusted, pair.family
        rows.append([*names, pair.ratio, *ends, *tested, *noise, pair.verdict, markup.spreadsheet(pair.why)])
    return pd.DataFrame(rows, columns=COLUMNS)


def table(scope: Scope) -> Table:
    """The same pairs as the page shows them."""
    unit = scope.groups[0].unit if scope.groups else ""
    header = ["compared", "where", f"{unit}, medians", "ratio", "range of the ratio", "verdict", "because"]
    return header, [_row(pair) for pair in scope.pairs]


def _row(pair: Pair) -> list[str | Chip]:
    medians = " against ".join(
        reading(value.median) + ("" if value.source == MEASURED else f" ({value.source})")
        for value in (pair.other, pair.one)
    )
    verdict = (pair.verdict.replace(" ", "-"), pair.verdict)
    return [pair.what, pair.where, medians, f"{pair.ratio:.3f}", span(pair.range, 3) or "n/a", verdict, pair.why]


def remarks(scope: Scope) -> Iterator[str]:
    """What can be told apart, and what the figures mean."""
    floors = dict.fromkeys(pair.floor for pair in scope.pairs)
    yield from (f"{floor.text}." for floor in floors if floor)
    if None in floors:
        yield (
            "For a pair without an A/A run of its environment and workload within a day, the noise of this machine is "
            "not known. extras: [aa] measures it."
        )
    family = max((pair.family for pair in scope.pairs), default=0)
    yield (
        "The range contains the true ratio if each true median lies in the range of its repeats. p comes from the rank "
        f"test between the repeats. The verdict follows p after Holm's correction (1979) for all {family} tested pairs "
        "of this benchmark."
    )
    if few := comparisons.too_few(scope.pairs):
        n, least, enough = few
        yield (
            f"{n} repeats are too few to tell any of {family} pairs apart: after Holm's correction, the smallest p "
            f"that they can give is {least:.2g}. {enough} repeats are enough."
        )


def findings(scope: Scope) -> Iterator[Finding]:
    """How frameworks and precisions compare, and what gains nothing; below what A/A runs differ by, nothing differs."""
    yield from _unequal(scope)
    best, largest, alone = fastest(scope.groups), dict[str, Pair](), dict[tuple[str, str], float]()
    for pair in scope.pairs:
        if pair.sides is None:
            continue
        group, row = pair.sides[1].group, pair.sides[1].row
        if (
            pair.kind == "frameworks"
            and best
            and group is best.group
            and not (row.unequal or pair.sides[0].row.unequal)
        ):
            largest[row.framework] = pair  # its topologies go from the smallest to the largest
        elif pair.kind == "precisions" and str(row.topology) == ONE_DEVICE:
            yield _precision(pair)
            if pair.gains:
                alone[row.framework, group.precision] = pair.ratio
        elif pair.kind == "precisions" and pair.gains is False and (row.framework, group.precision) in alone:
            yield _lost(pair, alone[row.framework, group.precision])
        elif pair.kind == "devices" and pair.gains is False:
            yield _no_faster(pair)
        elif pair.kind == "switches" and pair.what.startswith("compile ") and pair.verdict != "faster":
            yield _compiled(pair)
    for pair in largest.values():
        if best and (pair.unlike or pair.p is not None) and pair.sides:
            yield Finding(_faster(pair, f"on {pair.sides[1].row.topology} ({best.settings})"))


def _unequal(scope: Scope) -> Iterator[Finding]:
    """Frameworks that are ranked nowhere, because they compute something else."""
    for name in dict.fromkeys(row.framework for group in scope.groups for row in group.measured if row.unequal):
        yield Finding(
            f"{name} is not ranked and is in no headline: it does not compute what the others do (equivalence.json).",
            LOSS,
        )


def _compiled(pair: Pair) -> Finding:
    """A compiled model that is not known to be faster."""
    ratio = f"{pair.ratio:.3f} times the throughput ({pair.where}; {pair.verdict}, {pair.why})"
    if pair.gains is False:
        return Finding(f"compile gains nothing: {ratio}. Leave it off here.", LOSS)
    return Finding(f"Whether compile gains is not known: {ratio}.")


def _faster(pair: Pair, where: str) -> str:
    """Which of two is faster, and how sure that is."""
    names, gain = (pair.other.label, pair.one.label), pair.ratio - 1
    if pair.unlike:
        return f"{' and '.join(names)} are not comparable {where}: {pair.why}."
    if pair.verdict == "no difference":
        return f"No difference between {' and '.join(names)} {where}: {percent(abs(gain), 1)}, {pair.why}."
    if pair.verdict == "not told apart":
        return f"{' and '.join(names)} cannot be told apart {where}: the rank test gives {pair.why}."
    ahead, behind = names if gain > 0 else names[::-1]
    gain = max(pair.ratio, 1 / pair.ratio) - 1
    return f"{ahead} is {percent(gain, 1)} faster than {behind} {where}: the rank test gives {pair.why}."


def _precision(pair: Pair) -> Finding:
    """A lower precision against fp32 (else tf32) on one device, each at its fastest batch."""
    assert pair.sides
    (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
    device = group.summary.device if group.summary else None
    native, noise = device.fp16_native if device else None, pair.floor.share if pair.floor else 0.0
    speeds = pair.other.median, pair.one.median
    text = advice.gains_nothing(*speeds, group.precision, base.precision, native, noise)
    if text and not pair.unlike:
        return Finding(f"{row.framework}: {text}.", LOSS)
    against = f"on one device ({group.batch_name} against {base.batch})"
    verb = "are not comparable" if pair.unlike else "cannot be told apart"
    text = (
        f"{group.precision} is {pair.ratio:.2f} times as fast as {base.precision} {against}: the rank test gives "
        f"{pair.why}."
        if pair.verdict == "faster"
        else f"{group.precision} and {base.precision} {verb} {against}: the medians' ratio is {pair.ratio:.2f}, "
        f"{pair.why}."
    )
    return Finding(f"{row.framework}: {text}")


def _lost(pair: Pair, alone: float) -> Finding:
    """A lower precision that gains on one device, and nothing on several."""
    assert pair.sides
    (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
    return Finding(
        f"{row.framework}: {group.precision} gains nothing on {row.topology}: {pair.ratio:.2f} times the throughput of "
        f"{base.precision}, and {alone:.2f} times on one device. Either what the devices share takes most of a step, "
        f"or {group.precision} is not in use on several devices.",
        LOSS,
    )


def _no_faster(pair: Pair) -> Finding:
    """A topology that is no faster than the next smaller one."""
    assert pair.sides
    (_, before), (group, after) = ((side.group, side.row) for side in pair.sides)
    return Finding(
        f"{after.framework}: {after.topology} is no faster than {before.topology} ({reading(pair.other.median)} "
        f"against {reading(pair.one.median)} {group.unit}, {group.precision}, {group.batch_name}): the "
        "additional devices gain nothing. Look at what the devices share: cores, memory bandwidth, the "
        "network; a larger batch per device exchanges less often.",
        LOSS,
    )


TOPIC = Topic("comparisons", "Comparisons", frame=frame, table=table, remarks=remarks, findings=findings)

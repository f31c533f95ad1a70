"""Show comparisons: every pair of a benchmark with its ratio and verdict, and sentences on what gains or differs."""

from collections.abc import Iterable, Iterator

from throughline.numbers import percent, reading, span
from throughline.report.analysis import advice, judged_pairs
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.values import MEASURED
from throughline.report.render.head import Best, fastest
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry, Line, Table
from throughline.report.topic import GAIN, LOSS, Finding, Scope, Topic

DECIDED = ("slower", "no difference")
"""The verdicts that say that an option, a precision or more devices gain nothing."""


def table(scope: Scope) -> Table:
    """Return a line for each pair, with its verdict."""
    columns = (
        Column("compared", "compared"),
        Column("where", "where"),
        Column(heading=f"{scope.groups[0].unit if scope.groups else ''}, medians", forms=(PAGE,)),
        Column("ratio", "ratio"),
        Column("ratio_at_least", forms=(CSV,)),
        Column("ratio_at_most", forms=(CSV,)),
        Column(heading="range of the ratio", forms=(PAGE,)),
        Column("rank_test_p", forms=(CSV,)),
        Column("rank_test_p_holm", forms=(CSV,)),
        Column("pairs_tested", forms=(CSV,)),
        Column("smallest_difference", forms=(CSV,)),
        Column("a_a_pairs", forms=(CSV,)),
        Column("verdict", "verdict"),
        Column("because", "because"),
    )
    return Table(columns, [Line(_entries(pair)) for pair in scope.pairs], forms=(PAGE, CSV))


def _entries(pair: Pair) -> list[Entry]:
    medians = " against ".join(
        reading(value.median) + ("" if value.source == MEASURED else f" ({value.source})")
        for value in (pair.other, pair.base)
    )
    low, high = pair.range or (None, None)
    return [
        Entry.words(pair.what),
        Entry.words(pair.where),
        Entry.words(medians),
        Entry(f"{pair.ratio:.3f}", pair.ratio),
        Entry(value=low),
        Entry(value=high),
        Entry.words(span(pair.range, 3) or NOT_KNOWN),
        Entry(value=pair.p),
        Entry(value=pair.adjusted),
        Entry(value=pair.family),
        Entry(value=pair.floor.share if pair.floor else None),
        Entry(value=pair.floor.compared if pair.floor else 0),
        Entry.words(pair.verdict, chip=pair.verdict.replace(" ", "-")),
        Entry.words(pair.reason),
    ]


def remarks(scope: Scope) -> Iterator[str]:
    """Say what can be told apart, and what the figures mean."""
    floors = dict.fromkeys(pair.floor for pair in scope.pairs)
    yield from (f"{floor.text}." for floor in floors if floor)
    if None in floors:
        yield (
            "For a pair without an A/A run of its environment and workload within a day, the noise of this machine is "
            "not known. extras: [aa] measures it."
        )
    family = max((pair.family for pair in scope.pairs), default=0)
    yield "The range contains the true ratio if each true median lies in the range of its repeats."
    if family:
        corrected = f" after Holm's correction (1979) for all {family} tested pairs of this benchmark"
        yield (
            "p comes from the rank test between the repeats. The verdict follows p"
            f"{corrected if family > 1 else ', which needs no correction for a single pair'}."
        )
    if few := judged_pairs.too_few(scope.pairs):
        yield few.text


def findings(scope: Scope) -> Iterator[Finding]:
    """Say how frameworks and precisions compare, and what gains nothing. Each sentence follows its pair's verdict."""
    yield from _unequal(scope)
    few = judged_pairs.too_few(scope.pairs)
    if few:
        yield Finding(few.text, LOSS)
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
    if best:
        yield from _frameworks(best, largest.values(), few is not None)


def _frameworks(best: Best, pairs: Iterable[Pair], undecided: bool) -> Iterator[Finding]:
    """Say how frameworks compare with the first one. Those that cannot be told apart from it share a sentence.

    undecided: the repeats are too few to decide any pair. Another sentence says so.
    """
    alike: dict[str, list[Pair]] = {}
    for pair in pairs:
        assert pair.sides
        where = f"on {pair.sides[1].row.topology} ({best.settings})"
        if pair.verdict != "not told apart":
            yield Finding(_faster(pair, where))
        elif pair.adjusted is not None and not undecided:
            alike.setdefault(where, []).append(pair)
    for where, same in alike.items():
        names = " and ".join(", ".join(pair.other.label for pair in same).rsplit(", ", 1))
        p = [pair.adjusted for pair in same if pair.adjusted is not None]
        ends = f"{min(p):.3f}" + (f" to {max(p):.3f}" if len(p) > 1 else "")
        corrected = f" after Holm's correction for {same[0].family} pairs" if same[0].family > 1 else ""
        yield Finding(
            f"{names} cannot be told apart from {same[0].base.label} {where}: "
            f"the rank test gives p = {ends}{corrected}."
        )


def _unequal(scope: Scope) -> Iterator[Finding]:
    """Name the frameworks that are not ranked, because they compute something else."""
    for name in dict.fromkeys(row.framework for group in scope.groups for row in group.measured if row.unequal):
        yield Finding(
            f"{name} is not ranked and is in no headline: it does not compute what the others do (equivalence.json).",
            LOSS,
        )


def _compiled(pair: Pair) -> Finding:
    """Say that a compiled model gains nothing, or is not known to gain."""
    ratio = f"{pair.ratio:.3f} times the throughput ({pair.where}; {pair.verdict}, {pair.reason})"
    if pair.verdict in DECIDED:
        return Finding(f"compile gains nothing: {ratio}. Leave it off here.", LOSS)
    return Finding(f"Whether compile gains is not known: {ratio}.")


def _faster(pair: Pair, where: str) -> str:
    """Say which of two is faster, if one of them is, and how sure that is."""
    names, gain = (pair.other.label, pair.base.label), pair.ratio - 1
    if pair.unlike:
        return f"{' and '.join(names)} are not comparable {where}: {pair.reason}."
    if pair.verdict == "no difference":
        return f"No difference between {' and '.join(names)} {where}: {percent(abs(gain), 1)}, {pair.reason}."
    ahead, behind = names if gain > 0 else names[::-1]
    gain = max(pair.ratio, 1 / pair.ratio) - 1
    return f"{ahead} is {percent(gain, 1)} faster than {behind} {where}: the rank test gives {pair.reason}."


def _precision(pair: Pair) -> Finding:
    """Compare a lower precision with fp32 (or else tf32) on one device, each at its fastest batch."""
    assert pair.sides
    (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
    device = group.summary.device if group.summary else None
    if pair.verdict in DECIDED:
        native, slower = device.fp16_native if device else None, pair.verdict == "slower"
        return Finding(
            f"{row.framework}: {advice.gains_nothing(pair.ratio, group.precision, base.precision, native, slower)}.",
            LOSS,
        )
    against = f"on one device ({group.batch_name} against {base.batch})"
    verb = "are not comparable" if pair.unlike else "cannot be told apart"
    text = (
        f"{group.precision} is {pair.ratio:.2f} times as fast as {base.precision} {against}: the rank test gives "
        f"{pair.reason}."
        if pair.verdict == "faster"
        else f"{group.precision} and {base.precision} {verb} {against}: the medians' ratio is {pair.ratio:.2f}, "
        f"{pair.reason}."
    )
    return Finding(f"{row.framework}: {text}")


def _lost(pair: Pair, alone: float) -> Finding:
    """Say that a lower precision has a higher median on one device, and not on several."""
    assert pair.sides
    (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
    decided, low, high = pair.verdict in DECIDED, group.precision, base.precision
    verdict = {"slower": f"{low} is slower than {high}", "no difference": f"{low} gains nothing"}.get(
        pair.verdict, f"{low} and {high} cannot be told apart"
    )
    reason = "" if decided else f" ({pair.reason})"
    return Finding(
        f"{row.framework}: {verdict} on {row.topology}: {pair.ratio:.2f} times the throughput of {high}{reason}, and "
        f"{alone:.2f} times on one device. {'Either' if decided else 'If this is no chance, either'} what the devices "
        f"share takes most of a step, or {low} is not in use on several devices.",
        LOSS if decided else GAIN,
    )


def _no_faster(pair: Pair) -> Finding:
    """Say that a topology's median is no higher than that of the next smaller topology."""
    assert pair.sides
    (_, before), (group, after) = ((side.group, side.row) for side in pair.sides)
    medians = (
        f"{reading(pair.other.median)} against {reading(pair.base.median)} {group.unit}, {group.precision}, "
        f"{group.batch_name}"
    )
    advised = (
        "Look at what the devices share: cores, memory bandwidth, the network; a larger batch per device exchanges "
        "less often."
    )
    if pair.verdict in DECIDED:
        than = "is slower" if pair.verdict == "slower" else "is no faster"
        return Finding(
            f"{after.framework}: {after.topology} {than} than {before.topology} ({medians}): the additional devices "
            f"gain nothing. {advised}",
            LOSS,
        )
    return Finding(
        f"{after.framework}: {after.topology} and {before.topology} cannot be told apart ({medians}; {pair.reason}). "
        f"If more repeats do not show a gain: {advised[0].lower()}{advised[1:]}"
    )


TOPIC = Topic("comparisons", "Comparisons", order=180, table=table, remarks=remarks, findings=findings)

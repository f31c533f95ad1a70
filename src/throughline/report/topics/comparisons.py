"""Show comparisons: every pair of a benchmark with its ratio and verdict, and sentences on what gains or differs."""

from collections.abc import Iterable, Iterator

from throughline import ratios
from throughline.numbers import percent, reading
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
        Column("ratio", "ratio", "of the medians"),
        Column("ratio_at_least", forms=(CSV,)),
        Column("ratio_at_most", forms=(CSV,)),
        Column("tested_ratio", "tested ratio"),
        Column("tested_at_least", forms=(CSV,)),
        Column("tested_at_most", forms=(CSV,)),
        Column(heading="its interval", small=percent(ratios.INTERVAL), forms=(PAGE,)),
        Column("test", forms=(CSV,)),
        Column("p", forms=(CSV,)),
        Column("p_holm", forms=(CSV,)),
        Column("family", forms=(CSV,)),
        Column("pairs_tested", forms=(CSV,)),
        Column("margin", forms=(CSV,)),
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
    tested = pair.tested
    return [
        Entry.words(pair.what),
        Entry.words(pair.where),
        Entry.words(medians),
        Entry(f"{pair.ratio:.{judged_pairs.places(tested) if tested else 3}f}", pair.ratio),
        Entry(value=low),
        Entry(value=high),
        Entry(_ratio(pair) if tested else NOT_KNOWN, tested.ratio if tested else None),
        Entry(value=tested.low if tested else None),
        Entry(value=tested.high if tested else None),
        Entry.words(pair.interval or NOT_KNOWN),
        Entry(value=TESTS[pair.in_rounds] if tested else None),
        Entry(value=pair.p),
        Entry(value=pair.adjusted),
        Entry(value=pair.family if tested else None),
        Entry(value=pair.tests),
        Entry(value=pair.margin),
        Entry(value=pair.floor.share if pair.floor else None),
        Entry(value=pair.floor.compared if pair.floor else 0),
        Entry.words(pair.words, chip=pair.verdict.replace(" ", "-")),
        Entry.words(pair.reason),
    ]


TESTS = {True: "paired t-test of rounds", False: "Welch's t-test"}
"""Map whether the repeats ran in rounds to the test."""


def _ratio(pair: Pair) -> str:
    """Return the ratio that a sentence names: the tested one with enough digits, or else that of the medians."""
    if pair.tested is None:
        return f"{pair.ratio:.3f}"
    return f"{pair.tested.ratio:.{judged_pairs.places(pair.tested)}f}"


def _times(pair: Pair) -> str:
    """Return the ratio of a sentence with its interval."""
    return _ratio(pair) + (f" ({pair.interval})" if pair.tested else "")


def remarks(scope: Scope) -> Iterator[str]:
    """Say what can be told apart, and what the figures mean."""
    floors = dict.fromkeys(pair.floor for pair in scope.pairs)
    yield from (f"{floor.text}." for floor in floors if floor)
    if None in floors:
        yield (
            "A pair without an A/A run of its environment and workload within a day has a verdict about these runs "
            "only: whether the same runs would differ tomorrow is not known. extras: [aa] measures it."
        )
    tested = [pair for pair in scope.pairs if pair.tested]
    if tested:
        test = TESTS[tested[0].in_rounds]
        design = "all repeats ran in complete rounds" if tested[0].in_rounds else "the repeats are no complete rounds"
        margin = percent(max(pair.margin for pair in tested), 1)
        yield (
            f"All pairs have the same test, a {test} on logarithms, because {design}. The interval holds the true "
            f"ratio with {percent(ratios.INTERVAL)}. A difference is conclusive if p, after Holm's correction (1979) "
            f"for its family of questions, is below {percent(ratios.SURE)}. There is no difference if the interval "
            f"lies within {margin} (margin), or within that of the A/A runs if it is wider."
        )
    if few := judged_pairs.too_few(scope.pairs):
        yield few.text
    elif more := judged_pairs.would_tell(scope.pairs):
        difference, deviation, repeats = more
        yield (
            f"At the noise of the inconclusive pairs ({percent(deviation, 1)} per repeat at most), about "
            f"{repeats} repeats would detect differences of {percent(difference)} in 9 of 10 cases (runs.repeats)."
        )


def findings(scope: Scope) -> Iterator[Finding]:
    """Say how frameworks and precisions compare, and what gains nothing. Each sentence follows its pair's verdict."""
    yield from _unequal(scope)
    if few := judged_pairs.too_few(scope.pairs):
        yield Finding(few.text, LOSS)
    best, largest = fastest(scope.groups), dict[str, Pair]()
    for pair in scope.pairs:
        barred = pair.sides is None or any(side.row.unequal for side in pair.sides)
        if pair.kind == "frameworks" and best and pair.sides and pair.sides[1].group is best.group and not barred:
            largest[pair.sides[1].row.framework] = pair  # its topologies go from the smallest to the largest
    if best:
        yield from _frameworks(best, largest.values())
    yield from _gains(scope)


def _gains(scope: Scope) -> Iterator[Finding]:
    """Say what lower precisions, more devices and the compiler gain, or do not."""
    alone = dict[tuple[str, str], Pair]()
    for pair in scope.pairs:
        if pair.sides is None:
            continue
        group, row = pair.sides[1].group, pair.sides[1].row
        if pair.kind == "precisions" and str(row.topology) == ONE_DEVICE:
            yield _precision(pair)
            if pair.gains:
                alone[row.framework, group.precision] = pair
        elif pair.kind == "precisions" and not pair.gains and (row.framework, group.precision) in alone:
            if not pair.unlike:
                yield _lost(pair, alone[row.framework, group.precision])
        elif pair.kind == "devices" and not (pair.gains or pair.unlike):
            yield _no_faster(pair)
        elif pair.kind == "switches" and pair.what.startswith("compile ") and pair.verdict != "faster":
            yield _compiled(pair)


def _frameworks(best: Best, pairs: Iterable[Pair]) -> Iterator[Finding]:
    """Say how frameworks compare with the first one. Those that cannot be distinguished from it share a sentence."""
    alike: dict[str, list[Pair]] = {}
    for pair in pairs:
        assert pair.sides
        where = f"on {pair.sides[1].row.topology} ({best.settings})"
        if pair.verdict != "inconclusive":
            yield Finding(_faster(pair, where))
        elif pair.tested is not None:
            alike.setdefault(where, []).append(pair)
    for where, same in alike.items():
        names = " and ".join(", ".join(pair.other.label for pair in same).rsplit(", ", 1))
        intervals = ", ".join(f"{pair.other.label} {_times(pair)}" for pair in same)
        yield Finding(f"{names} cannot be distinguished from {same[0].base.label} {where}: {intervals} times as fast.")


def _unequal(scope: Scope) -> Iterator[Finding]:
    """Name the frameworks that are not ranked, and why: they compute something else, or nothing is proven."""
    barred = {row.framework: row for group in scope.groups for row in group.measured if row.unequal}
    for name, row in barred.items():
        yield Finding(f"{name} is not ranked and is in no headline: it {row.doubt} (equivalence.json).", LOSS)


def _compiled(pair: Pair) -> Finding:
    """Say that a compiled model gains nothing, or is not known to gain."""
    said = f"{_times(pair)} times the throughput ({pair.where}; {pair.words}, {pair.reason})"
    if pair.verdict in DECIDED:
        return Finding(f"compile gains nothing{pair.here}: {said}. Leave it off here.", LOSS)
    return Finding(f"Whether compile gains is not known: {said}.")


def _faster(pair: Pair, where: str) -> str:
    """Say which of two is faster, if one of them is, and how sure that is."""
    names = (pair.other.label, pair.base.label)
    if pair.unlike or pair.tested is None:
        return f"{' and '.join(names)} are not comparable {where}: {pair.reason}."
    if pair.verdict == "no difference":
        return f"No difference{pair.here} between {' and '.join(names)} {where}: {_times(pair)} times, {pair.reason}."
    ahead, behind = names if pair.verdict == "faster" else names[::-1]
    ends = pair.tested.ratio, pair.tested.low, pair.tested.high
    gain, low, high = ends if pair.verdict == "faster" else tuple(1 / end for end in (ends[0], ends[2], ends[1]))
    digits = max(1, judged_pairs.places(pair.tested) - 2)
    return (
        f"{ahead} is {percent(gain - 1, digits)} faster than {behind}{pair.here} {where}: the interval is "
        f"{percent(low - 1, digits)} to {percent(high - 1, digits)}, {pair.reason}."
    )


def _precision(pair: Pair) -> Finding:
    """Compare a lower precision with fp32 (or else tf32) on one device, each at its fastest batch."""
    assert pair.sides
    (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
    device = group.summary.device if group.summary else None
    if pair.verdict in DECIDED:
        native, slower = device.fp16_native if device else None, pair.verdict == "slower"
        advised = advice.gains_nothing(_times(pair), group.precision, base.precision, native, slower, pair.here)
        return Finding(f"{row.framework}: {advised}.", LOSS)
    against = f"on one device ({group.batch_name} against {base.batch})"
    verb = "are not comparable" if pair.unlike else "cannot be distinguished"
    text = (
        f"{group.precision} is {_times(pair)} times as fast as {base.precision}{pair.here} {against}: {pair.reason}."
        if pair.verdict == "faster"
        else f"{group.precision} and {base.precision} {verb} {against}: the ratio is {_times(pair)}, {pair.reason}."
    )
    return Finding(f"{row.framework}: {text}")


def _lost(pair: Pair, alone: Pair) -> Finding:
    """Say that a lower precision is faster on one device, and not on several, or not known to be."""
    assert pair.sides
    (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
    decided, low, high = pair.verdict in DECIDED, group.precision, base.precision
    verdict = {"slower": f"{low} is slower than {high}", "no difference": f"{low} gains nothing"}.get(
        pair.verdict, f"{low} and {high} cannot be distinguished"
    )
    reason = "" if decided else f" ({pair.reason})"
    return Finding(
        f"{row.framework}: {verdict}{pair.here} on {row.topology}: {_times(pair)} times the throughput of {high}"
        f"{reason}, and {_times(alone)} times on one device. {'Either' if decided else 'If this is no chance, either'} "
        f"what the devices share takes most of a step, or {low} is not in use on several devices.",
        LOSS if decided else GAIN,
    )


def _no_faster(pair: Pair) -> Finding:
    """Say that a topology is no faster than the next smaller one, or is not known to be."""
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
            f"{after.framework}: {after.topology} {than} than {before.topology}{pair.here} ({medians}): the additional "
            f"devices gain nothing. {advised}",
            LOSS,
        )
    return Finding(
        f"{after.framework}: {after.topology} and {before.topology} cannot be distinguished ({medians}; {_times(pair)} "
        f"times, {pair.reason}). If more repeats do not show a gain: {advised[0].lower()}{advised[1:]}"
    )


TOPIC = Topic("comparisons", "Comparisons", order=180, table=table, remarks=remarks, findings=findings)

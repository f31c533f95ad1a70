"""Show cells with an option off and on: memory, utilization and throughput, and how they change."""

from collections.abc import Iterator

from throughline.numbers import MIB, percent
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.option_changes import Change, OffOn, option, settings, switched
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic

ELSEWHERE = (
    "Three different things are called ZeRO-1. In published figures of GPT-2, OneFlow's placement of the optimizer "
    "saves about 17 bytes per parameter. DeepSpeed's stage 1 saves about 12 (an fp32 copy of the weights and two "
    "moments). PyTorch's ZeroRedundancyOptimizer saves 8 (two moments)."
)


def table(scope: Scope) -> Table | None:
    """Return a line for each pair with a benchmark that does not have the option on; None if there is none."""
    unit = scope.groups[0].unit if scope.groups else ""
    columns = (
        *(Column(key, forms=(CSV,)) for key in ("benchmark", "without")),
        Column("switched_on", "switched on"),
        Column(heading="where", forms=(PAGE,)),
        *(Column(key, forms=(CSV,)) for key in ("precision", "batch", "framework", "topology", "devices")),
        *_columns("memory_bytes", "memory, MiB"),
        *_columns("utilization_share", "utilization, %"),
        *_columns("samples_per_s", unit),
        Column("saved_bytes_per_parameter", "bytes saved"),
        Column("verdict", "throughput is"),
    )
    pairs = [Line(_entries(pair, both)) for pair, both in switched(scope.pairs)]
    return Table(columns, pairs, forms=(PAGE, CSV)) if pairs else None


def _columns(name: str, heading: str) -> list[Column]:
    """Return the column of a change on the page, and those in the CSV."""
    keys = [f"{name}_{part}" for part in ("off", "on", "change", "change_of_off")]
    return [Column(heading=heading, forms=(PAGE,)), *(Column(key, forms=(CSV,)) for key in keys)]


def _entries(pair: Pair, both: OffOn) -> list[Entry]:
    assert pair.sides
    base, group, row = pair.sides[0].group, pair.sides[1].group, pair.sides[1].row
    saved = both.saved_bytes_per_parameter
    return [
        Entry(value=group.benchmark),
        Entry(value=base.benchmark),
        Entry.words(_switched_on(pair)),
        Entry.words(f"{row.shown} {row.topology}, {group.precision}, {group.batch_name}"),
        Entry(value=group.precision),
        Entry(value=group.batch),
        Entry(value=row.framework),
        Entry(value=str(row.topology)),
        Entry(value=row.topology.world),
        *_change(both.memory, 1 / MIB),
        *_change(both.utilization, 100),
        *_change(both.throughput, 1),
        Entry("" if saved is None else f"{saved:.1f}", saved),
        Entry.words(pair.words, chip=pair.verdict.replace(" ", "-")),
    ]


def _change(change: Change, scale: float) -> list[Entry]:
    """Return a change as the page shows it, and its figures: off, on, the change, and its share of the figure off."""
    figures = (change.off, change.on, change.by, change.share)
    return [Entry(text(change, scale)), *(Entry(value=figure) for figure in figures)]


def _switched_on(pair: Pair) -> str:
    """Return what is switched on, such as `sharding optimizer` or `compile`."""
    return pair.what.partition(" over ")[0]


def text(change: Change, scale: float) -> str:
    """Return off, on, and the change, absolute and in per cent with an arrow: `95 → 88 (-7, ↓7.4 %)`."""
    off, on = (as_printed(value, scale) or "n/a" for value in (change.off, change.on))
    if not change.by or change.share is None:
        return f"{off} → {on}"
    by = f"{'+' if change.by > 0 else '-'}{as_printed(abs(change.by), scale)}"
    return f"{off} → {on} ({by}, {change.arrow}{percent(abs(change.share), 1)})"


def remarks(scope: Scope) -> Iterator[str]:
    """Say what the figures are, and what each value of sharding splits."""
    yield (
        "Memory is the most that a device held, as its driver counts it. Without a driver it is what the largest "
        "rank held; on a CPU that is the whole process, libraries included. Utilization is the share of the window "
        "in which GPUs, on a CPU the workers' threads, were busy."
    )
    against = dict.fromkeys(
        f"{_switched_on(pair)}: off is {pair.sides[0].group.benchmark}, on is {pair.sides[1].group.benchmark}."
        for pair, _ in switched(scope.pairs)
        if pair.sides
    )
    yield from against
    split = dict.fromkeys(
        f"{_switched_on(pair)} splits {settings(pair.sides[1]).get('sharding', 'n/a')}."
        for pair, _ in switched(scope.pairs)
        if pair.sides and option(pair) == "sharding"
    )
    yield from split
    if split:
        yield (
            "On GPUs, the bytes saved per parameter are the change of the memory, divided by the number of parameters "
            f"that other replicas hold for this rank: parameters × (1 - 1 / replicas). {ELSEWHERE}"
        )


def as_printed(value: float | None, scale: float) -> str:
    """Return a number as the study prints it: without decimals, but small numbers with three digits."""
    return "" if value is None else f"{scale * value:.0f}" if scale * value >= 20 else f"{scale * value:.3g}"


TOPIC = Topic("pairs", "Off and on", order=160, table=table, remarks=remarks)

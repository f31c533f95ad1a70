"""Show cells with an option off and on: memory, utilization and throughput, and how they change."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from throughline.numbers import MIB, percent
from throughline.report.analysis.comparison import Pair
from throughline.report.analysis.option_changes import Change, OffOn, option, switched
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table
from throughline.report.topic import Scope, Topic

ELSEWHERE = (
    "Three different things are called ZeRO-1. In published figures of GPT-2, OneFlow's placement of the optimizer "
    "saves about 17 bytes per parameter. DeepSpeed's stage 1 saves about 12 (an fp32 copy of the weights and two "
    "moments). PyTorch's ZeroRedundancyOptimizer saves 8 (two moments)."
)
Both = tuple[Pair, OffOn]
IN_CSV: dict[str, Callable[[Pair], Any]] = {
    "precision": lambda pair: pair.other.group.precision,
    "batch": lambda pair: pair.other.group.batch,
    "framework": lambda pair: pair.other.framework,
    "topology": lambda pair: str(pair.other.topology),
    "devices": lambda pair: pair.other.topology.world,
}


def _pair(key: str, read: Callable[[Pair], Any]) -> Column:
    """Return a column of the CSV that is read from the pair."""
    return Column(key, read=lambda both: read(both[0]), forms=(CSV,))


def _columns(name: str, heading: str, scale: float, read: Callable[[OffOn], Change]) -> list[Column]:
    """Return the column of a change on the page, and its figures in the CSV: off, on, the change, and its share."""
    parts = {"off": "off", "on": "on", "change": "by", "change_of_off": "share"}
    return [
        Column(heading=heading, read=lambda both: text(read(both[1]), scale), forms=(PAGE,)),
        *(Column(f"{name}_{part}", read=partial(_part, read, field), forms=(CSV,)) for part, field in parts.items()),
    ]


def _part(read: Callable[[OffOn], Change], field: str, both: Both) -> float | None:
    value: float | None = getattr(read(both[1]), field)
    return value


def table(scope: Scope) -> Table | None:
    """Return a line for each pair with a benchmark that does not have the option on; None if there is none."""
    columns = (
        _pair("benchmark", lambda pair: pair.other.group.benchmark),
        _pair("without", lambda pair: pair.base.group.benchmark),
        Column("switched_on", "switched on", read=lambda both: _switched_on(both[0])),
        Column(heading="where", read=lambda both: both[0].other.where, forms=(PAGE,)),
        *(_pair(key, read) for key, read in IN_CSV.items()),
        *_columns("memory_bytes", "memory, MiB", 1 / MIB, lambda both: both.memory),
        *_columns("utilization_share", "utilization, %", 100, lambda both: both.utilization),
        *_columns("samples_per_s", scope.groups[0].unit if scope.groups else "", 1, lambda both: both.throughput),
        Column("saved_bytes_per_parameter", "bytes saved", read=_saved),
        Column("verdict", "throughput is", read=lambda both: Entry.words(
            both[0].words, chip=both[0].verdict.replace(" ", "-"))),
    )  # fmt: skip
    pairs = list(switched(scope.pairs))
    return Table.of(pairs, columns, forms=(PAGE, CSV)) if pairs else None


def _saved(both: Both) -> Entry:
    saved = both[1].saved_bytes_per_parameter
    return Entry("" if saved is None else f"{saved:.1f}", saved)


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
    pairs = [pair for pair, _ in switched(scope.pairs)]
    yield from dict.fromkeys(
        f"{_switched_on(pair)}: off is {pair.base.group.benchmark}, on is {pair.other.group.benchmark}."
        for pair in pairs
    )
    split = dict.fromkeys(
        f"{_switched_on(pair)} splits {pair.other.settings.get('sharding', 'n/a')}."
        for pair in pairs
        if option(pair) == "sharding"
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

"""Show cells with an option off and on: memory, utilization and throughput, and how they change."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from throughline.numbers import MIB, percent
from throughline.records import CellRecord
from throughline.report.analysis.comparison import Pair
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table
from throughline.report.topic import Scope, Topic

ELSEWHERE = (
    "Three different things are called ZeRO-1. In published figures of GPT-2, OneFlow's placement of the optimizer "
    "saves about 17 bytes per parameter. DeepSpeed's stage 1 saves about 12 (an fp32 copy of the weights and two "
    "moments). PyTorch's ZeroRedundancyOptimizer saves 8 (two moments)."
)


@dataclass(frozen=True)
class Change:
    """One figure without an option and with it; None if it is not known."""

    off: float | None
    on: float | None

    @property
    def by(self) -> float | None:
        return None if self.off is None or self.on is None else self.on - self.off

    @property
    def share(self) -> float | None:
        """The change as a share of the figure without the option."""
        return None if self.by is None or not self.off else self.by / self.off

    @property
    def arrow(self) -> str:
        return "" if not self.by else "↑" if self.by > 0 else "↓"


@dataclass(frozen=True)
class Figures:
    """The figures of a cell. utilization_share: the share of time in which GPUs, or CPU threads, worked."""

    memory_bytes: float | None
    utilization_share: float | None
    samples_per_s: float | None

    @classmethod
    def of(cls, cell: CellRecord) -> "Figures":
        """Return a cell's figures. Memory is what the driver counts (nvidia-smi), else what the largest rank held."""
        gpu, threads = (cell.utilization.gpu, cell.utilization.cpu) if cell.utilization else (None, None)
        used = cell.memory.device_used_bytes if cell.memory and gpu is not None else None
        memory = cell.peak_memory_bytes if used is None else used
        return cls(memory, threads if gpu is None else gpu, cell.median_speed)


@dataclass(frozen=True)
class OffOn:
    """The figures of two cells that differ in one option. pair: the two cells.

    saves_from: for sharding on GPUs, the number of parameters whose states other replicas hold for this rank. On a CPU
    it is None: what a process holds besides its tensors hides what sharding saves.
    """

    off: Figures
    on: Figures
    saves_from: float | None = None
    pair: Pair | None = None

    def change(self, figure: str) -> Change:
        return Change(getattr(self.off, figure), getattr(self.on, figure))

    @property
    def saved_bytes_per_parameter(self) -> float | None:
        """The memory that sharding saves per parameter.

        It differs between kinds of sharding, and does not depend on the model or the number of replicas.
        """
        by = self.change("memory_bytes").by
        return None if by is None or not self.saves_from else -by / self.saves_from


def option(pair: Pair) -> str:
    """Return the option that a pair of the kind `switches` compares."""
    return pair.what.partition(" ")[0]


def switched(pairs: Iterable[Pair]) -> Iterator[OffOn]:
    """Yield the figures of every pair of two benchmarks that differ in one option."""
    for pair in pairs:
        if pair.kind == "switches":
            off, on, kept = pair.base.record, pair.other.record, None
            device = pair.other.group.summary.device
            if option(pair) == "sharding" and device and device.kind != "cpu":
                kept = int(pair.base.settings.get("parameters") or 0) * (1 - 1 / on.replicas)
            yield OffOn(Figures.of(off), Figures.of(on), kept, pair)


def _in_csv(key: str, read: Callable[[Pair], Any]) -> Column:
    return Column(key, read=lambda both: read(both.pair), forms=(CSV,))


def _columns(figure: str, heading: str, scale: float) -> list[Column]:
    """Return the column of a change on the page, and its figures in the CSV: off, on, the change, and its share."""
    parts = {"off": "off", "on": "on", "change": "by", "change_of_off": "share"}
    return [
        Column(heading=heading, read=lambda both: text(both.change(figure), scale), forms=(PAGE,)),
        *(Column(f"{figure}_{part}", read=partial(_part, figure, name), forms=(CSV,)) for part, name in parts.items()),
    ]


def _part(figure: str, name: str, both: OffOn) -> float | None:
    value: float | None = getattr(both.change(figure), name)
    return value


def _saved(both: OffOn) -> Entry:
    saved = both.saved_bytes_per_parameter
    return Entry("" if saved is None else f"{saved:.1f}", saved)


def _switched_on(pair: Pair) -> str:
    """Return what is switched on, such as `sharding optimizer` or `compile`."""
    return pair.what.partition(" over ")[0]


def table(scope: Scope) -> Table | None:
    """Return a line for each pair with a benchmark that does not have the option on; None if there is none."""
    columns = (
        _in_csv("benchmark", lambda pair: pair.other.group.benchmark),
        _in_csv("without", lambda pair: pair.base.group.benchmark),
        Column("switched_on", "switched on", read=lambda both: _switched_on(both.pair)),
        Column(heading="where", read=lambda both: both.pair.other.where, forms=(PAGE,)),
        _in_csv("precision", lambda pair: pair.other.group.precision),
        _in_csv("batch", lambda pair: pair.other.group.batch),
        _in_csv("framework", lambda pair: pair.other.framework),
        _in_csv("topology", lambda pair: str(pair.other.topology)),
        _in_csv("devices", lambda pair: pair.other.topology.world),
        *_columns("memory_bytes", "memory, MiB", 1 / MIB),
        *_columns("utilization_share", "utilization, %", 100),
        *_columns("samples_per_s", scope.groups[0].unit if scope.groups else "", 1),
        Column("saved_bytes_per_parameter", "bytes saved", read=_saved),
        Column("verdict", "throughput is", read=lambda both: Entry.words(
            both.pair.words, chip=both.pair.verdict.replace(" ", "-"))),
    )  # fmt: skip
    found = list(switched(scope.pairs))
    return Table.of(found, columns, forms=(PAGE, CSV), notes=[*_notes(scope)]) if found else None


def text(change: Change, scale: float) -> str:
    """Return off, on, and the change, absolute and in per cent with an arrow: `95 → 88 (-7, ↓7.4 %)`."""
    off, on = (as_printed(value, scale) or "n/a" for value in (change.off, change.on))
    if not change.by or change.share is None:
        return f"{off} → {on}"
    by = f"{'+' if change.by > 0 else '-'}{as_printed(abs(change.by), scale)}"
    return f"{off} → {on} ({by}, {change.arrow}{percent(abs(change.share), 1)})"


def _notes(scope: Scope) -> Iterator[str]:
    """Say what the figures are, and what each value of sharding splits."""
    yield (
        "Memory is the most that a device held, as its driver counts it. Without a driver it is what the largest "
        "rank held; on a CPU that is the whole process, libraries included. Utilization is the share of the window "
        "in which GPUs, on a CPU the workers' threads, were busy."
    )
    pairs = [pair for pair in scope.pairs if pair.kind == "switches"]
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


TOPIC = Topic("pairs", "Off and on", order=160, table=table)

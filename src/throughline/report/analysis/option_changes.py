"""Compare cells with an option off and on: memory, utilization of the devices, and throughput."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughline.records import CellRecord
from throughline.report.analysis.comparison import Pair


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
    """The figures of a cell in such a table. utilization: the share of time in which GPUs, or CPU threads, worked."""

    memory_bytes: float | None
    utilization: float | None
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
    """The figures of two cells that differ in one option.

    saves_from: for sharding on GPUs, the number of parameters whose states other replicas hold for this rank. On a CPU
    it is None: what a process holds besides its tensors hides what sharding saves.
    """

    off: Figures
    on: Figures
    saves_from: float | None = None

    @property
    def memory(self) -> Change:
        return Change(self.off.memory_bytes, self.on.memory_bytes)

    @property
    def utilization(self) -> Change:
        return Change(self.off.utilization, self.on.utilization)

    @property
    def throughput(self) -> Change:
        return Change(self.off.samples_per_s, self.on.samples_per_s)

    @property
    def saved_bytes_per_parameter(self) -> float | None:
        """The memory that sharding saves per parameter.

        It differs between kinds of sharding, and does not depend on the model or the number of replicas.
        """
        return None if self.memory.by is None or not self.saves_from else -self.memory.by / self.saves_from


def option(pair: Pair) -> str:
    """Return the option that a pair of the kind `switches` compares."""
    return pair.what.partition(" ")[0]


def switched(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, OffOn]]:
    """Yield every pair of two benchmarks that differ in one option, with its figures."""
    for pair in pairs:
        if pair.kind == "switches":
            off, on, kept = pair.base.record, pair.other.record, None
            device = pair.other.group.summary.device
            if option(pair) == "sharding" and device and device.kind != "cpu":
                kept = int(pair.base.settings.get("parameters") or 0) * (1 - 1 / on.replicas)
            yield pair, OffOn(Figures.of(off), Figures.of(on), kept)

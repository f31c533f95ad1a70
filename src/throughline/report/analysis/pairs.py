"""Compare cells with an option off and on: memory, use and throughput; and name cells as OneFlow does.

The form is that of OneFlow's study of GPT-2 with and without optimizer states that are split over ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from throughline import workloads
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.comparisons import Pair, Side
from throughline.spec import Topology


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
    """The figures of a cell in such a table. use: the share of the time in which GPUs, or threads on a CPU, worked."""

    memory_bytes: float | None
    use: float | None
    samples_per_s: float | None

    @classmethod
    def of(cls, cell: Cell) -> "Figures":
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
    def use(self) -> Change:
        return Change(self.off.use, self.on.use)

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
        if pair.kind == "switches" and pair.sides:
            off, on = (side.row.cell for side in pair.sides)
            assert off and on
            parameters, kept = int(settings(pair.sides[0]).get("parameters") or 0), None
            summary = pair.sides[1].group.summary
            if option(pair) == "sharding" and summary and summary.device and summary.device.kind != "cpu":
                kept = parameters * (1 - 1 / on.replicas)
            yield pair, OffOn(Figures.of(off), Figures.of(on), kept)


def settings(side: Side) -> dict[str, Any]:
    """Return the settings of a side's framework, as read from the model that it built; empty in older records."""
    summary = side.group.summary
    return (summary.settings or {}).get(side.row.framework) or {} if summary else {}


@dataclass(frozen=True)
class Case:
    """A row of OneFlow's table. off: the figures that it is compared with."""

    date: str
    description: str
    topology: Topology
    tensor: int
    batch: int
    figures: Figures
    off: Figures | None = None
    framework: str = ""
    precision: str = ""

    @property
    def name(self) -> str:
        """The name of a case.

        `1n_8g_dp_4bs` is data parallel with batch 4. `1n_4g_mp_4bs` has one replica on four devices.
        `1n_4g_2dp_2mp_4bs` has both.
        """
        replicas = self.topology.world // self.tensor
        parallel = "dp" if self.tensor == 1 else "mp" if replicas == 1 else f"{replicas}dp_{self.tensor}mp"
        return f"{self.topology.nodes}n_{self.topology.devices}g_{parallel}_{self.batch}bs"


def cases(groups: Sequence[Group], pairs: Sequence[Pair]) -> list[Case]:
    """Return the measured cells of models that tensor parallelism can split, sorted by topology, then by batch.

    A cell with sharding follows the cell without.
    """
    without = {
        id(pair.sides[1].row): pair.sides[0]
        for pair in pairs
        if pair.kind == "switches" and pair.sides and option(pair) == "sharding"
    }
    made = []
    for group in groups:
        if group.summary and _splits(group.summary.model):
            for row in group.measured:
                off = without.get(id(row))
                before = [_case(off.group, off.row)] if off else []
                made += [*before, _case(group, row, before[0].figures if before else None)]
    return sorted(made, key=lambda case: (case.topology.world, case.topology, case.batch))


def _splits(model: str) -> bool:
    return any("tensor" in features for features in workloads.of(model).libraries.values())


def _case(group: Group, row: Row, off: Figures | None = None) -> Case:
    assert group.summary and row.cell
    layout = group.summary.options.layout
    return Case(
        date=(row.cell.started or "").partition("T")[0].replace("-", ""),
        description=f"sharding_{layout.sharding}",
        topology=row.topology,
        tensor=layout.tensor,
        batch=group.batch_per_replica(row),
        figures=Figures.of(row.cell),
        off=off,
        framework=row.shown,
        precision=group.precision,
    )

"""Show cells as OneFlow's study of GPT-2 prints them, with and without optimizer states that are split over ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from throughline import workloads
from throughline.numbers import MIB
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Pair
from throughline.report.analysis.option_changes import Change, Figures, OffOn, option
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.options_off_and_on import as_printed
from throughline.spec import Topology


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
    without = {pair.other: pair.base for pair in pairs if pair.kind == "switches" and option(pair) == "sharding"}
    measured = []
    for group in groups:
        if _splits(group.summary.model):
            for cell in group.measured:
                off = without.get(cell)
                before = [_case(off)] if off else []
                measured += [*before, _case(cell, before[0].figures if before else None)]
    return sorted(measured, key=lambda case: (case.topology.world, case.topology, case.batch))


def _splits(model: str) -> bool:
    return any("tensor_parallel" in features for features in workloads.of(model).libraries.values())


def _case(cell: Cell, off: Figures | None = None) -> Case:
    layout = cell.group.summary.options.layout
    return Case(
        date=(cell.record.started or "").partition("T")[0].replace("-", ""),
        description=f"sharding_{layout.sharding}",
        topology=cell.topology,
        tensor=layout.tensor_parallel,
        batch=cell.size.batch_per_replica,
        figures=Figures.of(cell.record),
        off=off,
        framework=cell.shown,
        precision=cell.group.precision,
    )


CASE_COLUMNS = ["date", "test_num", "test_desc", "case", "gpu_mem(MiB)", "gpu_util(%)", "throughput(samples/s)",
                "framework", "precision"]  # fmt: skip


def cells(cases: Sequence[Case]) -> Table:
    """Return OneFlow's table. Brackets say how an option changes memory and throughput."""
    rows = []
    for first, (_, here) in enumerate(groupby(cases, key=lambda case: case.topology), start=1):
        for second, case in enumerate(here, start=1):
            change = OffOn(case.off, case.figures) if case.off else None
            memory = as_printed(case.figures.memory_bytes, 1 / MIB)
            samples_per_s = as_printed(case.figures.samples_per_s, 1)
            if change:
                memory += _bracket(change.memory, 1 / MIB)
                samples_per_s += _bracket(change.throughput)
            which = [case.date, f"test-{first}-{second}", case.description, case.name]
            utilization = as_printed(case.figures.utilization, 100)
            rows.append([*which, memory, utilization, samples_per_s, case.framework, case.precision])
    columns = [Column(name, name) for name in CASE_COLUMNS]
    return Table(columns, [Line(list(map(Entry.words, row))) for row in rows], forms=(PAGE, CSV))


def _bracket(change: Change, scale: float | None = None) -> str:
    """Return a change such as `(-1754,↓15.5%)`, without the absolute part if there is no `scale`."""
    if change.by is None or change.share is None:
        return ""
    by = "" if scale is None else f"{scale * change.by:.0f},"
    return f"({by}{change.arrow}{100 * abs(change.share):.1f}%)"


def table(scope: Scope) -> Table | None:
    """Return the table of this benchmark; None if its model cannot be split, or nothing was measured."""
    measured = cases(scope.groups, scope.pairs)
    return cells(measured) if measured else None


TOPIC = Topic(
    "cases",
    "Cases in OneFlow's form",
    "The same cells in the form of OneFlow's study of GPT-2: dp is data parallel, mp is one model on several devices, "
    "bs is the batch of a replica. On a CPU, memory and utilization are those of processes and threads.",
    order=170,
    table=table,
)

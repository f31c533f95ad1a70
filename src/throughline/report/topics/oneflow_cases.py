"""Show cells as OneFlow's study of GPT-2 prints them, with and without optimizer states that are split over ranks."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from throughline import workloads
from throughline.numbers import MIB
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.comparison import Pair
from throughline.report.render.tables import CSV, PAGE, Column, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.options_off_and_on import Change, Figures, OffOn, as_printed, option
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


def cases(cells: Iterable[Cell], pairs: Iterable[Pair]) -> list[Case]:
    """Return the measured cells of models that tensor parallelism can split, sorted by topology, then by batch.

    A cell with sharding follows the cell without.
    """
    without = {pair.other: pair.base for pair in pairs if pair.kind == "switches" and option(pair) == "sharding"}
    listed = []
    for cell in cells:
        libraries = workloads.of(cell.group.summary.model).libraries
        if any("tensor_parallel" in features for features in libraries.values()):
            off = without.get(cell)
            listed += [_case(off), _case(cell, Figures.of(off.record))] if off else [_case(cell)]
    return sorted(listed, key=lambda case: (case.topology.world, case.topology, case.batch))


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


def printed(cases: Iterable[Case]) -> Table:
    """Return OneFlow's table. Brackets say how an option changes memory and throughput."""
    rows = []
    for first, (_, here) in enumerate(groupby(cases, key=lambda case: case.topology), start=1):
        for second, case in enumerate(here, start=1):
            both = OffOn(case.off, case.figures) if case.off else None
            memory = as_printed(case.figures.memory_bytes, 1 / MIB)
            throughput = as_printed(case.figures.samples_per_s, 1)
            rows.append({
                "date": case.date,
                "test_num": f"test-{first}-{second}",
                "test_desc": case.description,
                "case": case.name,
                "gpu_mem(MiB)": memory + (_bracket(both.change("memory_bytes"), 1 / MIB) if both else ""),
                "gpu_util(%)": as_printed(case.figures.utilization_share, 100),
                "throughput(samples/s)": throughput + (_bracket(both.change("samples_per_s")) if both else ""),
                "framework": case.framework,
                "precision": case.precision,
            })  # fmt: skip
    columns = [Column(name, name, read=itemgetter(name)) for name in rows[0]]
    return Table.of(rows, columns, forms=(PAGE, CSV))


def _bracket(change: Change, scale: float | None = None) -> str:
    """Return a change such as `(-1754,↓15.5%)`, without the absolute part if there is no `scale`."""
    if change.by is None or change.share is None:
        return ""
    by = "" if scale is None else f"{scale * change.by:.0f},"
    return f"({by}{change.arrow}{100 * abs(change.share):.1f}%)"


def table(scope: Scope) -> Table | None:
    """Return the table of this benchmark; None if its model cannot be split, or nothing was measured."""
    found = cases(scope.measured, scope.pairs)
    return printed(found) if found else None


TOPIC = Topic(
    "cases",
    "Cases in OneFlow's form",
    "The same cells in the form of OneFlow's study of GPT-2: dp is data parallel, mp is one model on several devices, "
    "bs is the batch of a replica. On a CPU, memory and utilization are those of processes and threads.",
    order=170,
    table=table,
)

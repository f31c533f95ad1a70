"""Cells with an option off and on: memory, utilization and throughput, and how they change.

A second table has the cells of models that tensor parallelism can split as OneFlow's study of GPT-2 prints them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from throughline import workloads
from throughline.numbers import MIB, percent
from throughline.records import CellRecord
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.comparison import Pair
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table
from throughline.report.topic import Scope, Topic
from throughline.spec import Topology

Figures = Mapping[str, float | None]
SCALES = {"memory_bytes": 1 / MIB, "utilization_share": 100.0, "samples_per_s": 1.0}
"""Map each figure of a cell to what makes the printed number of it: MiB, per cent, samples/s."""
ELSEWHERE = (
    "Three different things are called ZeRO-1. In published figures of GPT-2, OneFlow's placement of the optimizer "
    "saves about 17 bytes per parameter. DeepSpeed's stage 1 saves about 12 (an fp32 copy of the weights and two "
    "moments). PyTorch's ZeroRedundancyOptimizer saves 8 (two moments)."
)


def figures(cell: CellRecord) -> Figures:
    """Return a cell's memory, the share of time in which GPUs, or CPU threads, worked, and its throughput.

    Memory is what the driver counts (nvidia-smi), else what the largest rank held.
    """
    gpu, threads = (cell.utilization.gpu, cell.utilization.cpu) if cell.utilization else (None, None)
    used = cell.memory.device_used_bytes if cell.memory and gpu is not None else None
    memory = cell.peak_memory_bytes if used is None else used
    return dict(zip(SCALES, (memory, threads if gpu is None else gpu, cell.median_speed), strict=True))


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

    def text(self, scale: float) -> str:
        """Return off, on, and the change, absolute and in per cent with an arrow: `95 → 88 (-7, ↓7.4 %)`."""
        off, on = (as_printed(value, scale) or "n/a" for value in (self.off, self.on))
        if not self.by or self.share is None:
            return f"{off} → {on}"
        by = f"{'+' if self.by > 0 else '-'}{as_printed(abs(self.by), scale)}"
        return f"{off} → {on} ({by}, {self.arrow}{percent(abs(self.share), 1)})"

    def bracket(self, scale: float | None = None) -> str:
        """Return the change as OneFlow prints it: `(-1754,↓15.5%)`; without `scale` its share alone."""
        if self.by is None or self.share is None:
            return ""
        by = "" if scale is None else f"{scale * self.by:.0f},"
        return f"({by}{self.arrow}{100 * abs(self.share):.1f}%)"


def as_printed(value: float | None, scale: float) -> str:
    """Return a number as the study prints it: without decimals, but small numbers with three digits."""
    return "" if value is None else f"{scale * value:.0f}" if scale * value >= 20 else f"{scale * value:.3g}"


def switched(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs of two benchmarks that differ in one option."""
    return [pair for pair in pairs if pair.kind == "switches"]


def changed(figure: str, pair: Pair) -> Change:
    """Return how a figure changes in a pair."""
    return Change(figures(pair.base.record)[figure], figures(pair.other.record)[figure])


def saved_bytes_per_parameter(pair: Pair) -> float | None:
    """Return the memory that sharding saves per parameter whose states other replicas hold for a rank; or None.

    It differs between kinds of sharding, and does not depend on the model or the number of replicas. On a CPU it is not
    known: what a process holds besides its tensors hides what sharding saves.
    """
    device, by = pair.other.group.summary.device, changed("memory_bytes", pair).by
    if _option(pair) != "sharding" or device is None or device.kind == "cpu":
        return None
    held = int(pair.base.settings.get("parameters") or 0) * (1 - 1 / pair.other.record.replicas)
    return -by / held if held and by is not None else None


def _option(pair: Pair) -> str:
    return pair.what.partition(" ")[0]


def _switched_on(pair: Pair) -> str:
    """Return what is switched on, such as `sharding optimizer` or `compile`."""
    return pair.what.partition(" over ")[0]


def _change(figure: str, pair: Pair) -> str:
    return changed(figure, pair).text(SCALES[figure])


def _part(figure: str, name: str, pair: Pair) -> float | None:
    value: float | None = getattr(changed(figure, pair), name)
    return value


def _in_csv(key: str, read: Callable[[Pair], Any]) -> Column:
    return Column(key, read=read, forms=(CSV,))


def _saved(pair: Pair) -> Entry:
    saved = saved_bytes_per_parameter(pair)
    return Entry("" if saved is None else f"{saved:.1f}", saved)


PARTS = {"off": "off", "on": "on", "change": "by", "change_of_off": "share"}
"""Map the ends of the CSV's column names to the parts of a change."""


def table(scope: Scope) -> Table | None:
    """Return a line for each pair with a benchmark that does not have the option on; None if there is none."""
    headings = "memory, MiB", "utilization, %", scope.groups[0].unit if scope.groups else ""
    changes = []
    for figure, heading in zip(SCALES, headings, strict=True):
        changes += [Column(heading=heading, read=partial(_change, figure), forms=(PAGE,))]
        changes += [_in_csv(f"{figure}_{end}", partial(_part, figure, name)) for end, name in PARTS.items()]
    columns = (
        _in_csv("benchmark", lambda pair: pair.other.group.benchmark),
        _in_csv("without", lambda pair: pair.base.group.benchmark),
        Column("switched_on", "switched on", read=_switched_on),
        Column(heading="where", read=lambda pair: pair.other.where, forms=(PAGE,)),
        _in_csv("precision", lambda pair: pair.other.group.precision),
        _in_csv("batch", lambda pair: pair.other.group.batch),
        _in_csv("framework", lambda pair: pair.other.framework),
        _in_csv("topology", lambda pair: str(pair.other.topology)),
        _in_csv("devices", lambda pair: pair.other.topology.world),
        *changes,
        Column("saved_bytes_per_parameter", "bytes saved", read=_saved),
        Column("verdict", "throughput is", read=Entry.verdict),
    )
    found = switched(scope.pairs)
    return Table.of(found, columns, forms=(PAGE, CSV), notes=[*_notes(found)]) if found else None


def _notes(pairs: Iterable[Pair]) -> Iterator[str]:
    """Say what the figures are, and what each value of sharding splits."""
    yield (
        "Memory is the most that a device held, as its driver counts it. Without a driver it is what the largest "
        "rank held; on a CPU that is the whole process, libraries included. Utilization is the share of the window "
        "in which GPUs, on a CPU the workers' threads, were busy."
    )
    yield from dict.fromkeys(
        f"{_switched_on(pair)}: off is {pair.base.group.benchmark}, on is {pair.other.group.benchmark}."
        for pair in pairs
    )
    sharded = [pair for pair in pairs if _option(pair) == "sharding"]
    yield from dict.fromkeys(
        f"{_switched_on(pair)} splits {pair.other.settings.get('sharding', 'n/a')}." for pair in sharded
    )
    if sharded:
        yield (
            "On GPUs, the bytes saved per parameter are the change of the memory, divided by the number of parameters "
            f"that other replicas hold for this rank: parameters × (1 - 1 / replicas). {ELSEWHERE}"
        )


PAIRS = Topic("pairs", "Off and on", order=160, table=table)


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
    without = {pair.other: pair.base for pair in switched(pairs) if _option(pair) == "sharding"}
    listed = []
    for cell in cells:
        libraries = workloads.of(cell.group.summary.model).libraries
        if any("tensor_parallel" in features for features in libraries.values()):
            off = without.get(cell)
            listed += [_case(off), _case(cell, figures(off.record))] if off else [_case(cell)]
    return sorted(listed, key=lambda case: (case.topology.world, case.topology, case.batch))


def _case(cell: Cell, off: Figures | None = None) -> Case:
    layout = cell.group.summary.options.layout
    date = (cell.record.started or "").partition("T")[0].replace("-", "")
    here = cell.topology, layout.tensor_parallel, cell.size.batch_per_replica, figures(cell.record)
    return Case(date, f"sharding_{layout.sharding}", *here, off, cell.shown, cell.group.precision)


def printed(cases: Iterable[Case]) -> Table:
    """Return OneFlow's table. Brackets say how an option changes memory and throughput."""
    rows = []
    for first, (_, here) in enumerate(groupby(cases, key=lambda case: case.topology), start=1):
        for second, case in enumerate(here, start=1):
            texts = {name: as_printed(case.figures[name], scale) for name, scale in SCALES.items()}
            if case.off:
                changes = {name: Change(case.off[name], case.figures[name]) for name in SCALES}
                texts["memory_bytes"] += changes["memory_bytes"].bracket(SCALES["memory_bytes"])
                texts["samples_per_s"] += changes["samples_per_s"].bracket()
            rows.append({
                "date": case.date,
                "test_num": f"test-{first}-{second}",
                "test_desc": case.description,
                "case": case.name,
                "gpu_mem(MiB)": texts["memory_bytes"],
                "gpu_util(%)": texts["utilization_share"],
                "throughput(samples/s)": texts["samples_per_s"],
                "framework": case.framework,
                "precision": case.precision,
            })  # fmt: skip
    return Table.of(rows, [Column(name, name, read=itemgetter(name)) for name in rows[0]], forms=(PAGE, CSV))


def in_cases(scope: Scope) -> Table | None:
    """Return the table of this benchmark; None if its model cannot be split, or nothing was measured."""
    found = cases(scope.measured, scope.pairs)
    return printed(found) if found else None


CASES = Topic(
    "cases",
    "Cases in OneFlow's form",
    "The same cells in the form of OneFlow's study of GPT-2: dp is data parallel, mp is one model on several devices, "
    "bs is the batch of a replica. On a CPU, memory and utilization are those of processes and threads.",
    order=170,
    table=in_cases,
)

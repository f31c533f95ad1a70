"""Cells with an option off and on: memory, utilization and throughput, and how they change.

A second table has the cells of GPT-2 as OneFlow's study of GPT-2 prints them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

from throughline import workloads
from throughline.numbers import MIB, percent
from throughline.records import CellRecord
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.comparison import Pair
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table, ends_in_csv, in_csv
from throughline.report.topic import Scope, Topic
from throughline.spec import Topology

Figures = Mapping[str, float | None]
SCALES = {"memory_bytes": 1 / MIB, "utilization_share": 100.0, "samples_per_s": 1.0}
"""Map each figure of a cell to what makes the printed number of it: MiB, per cent, samples/s."""
MEANING = (
    "Memory is the most that a device held, as its driver counts it. Without a driver it is what the largest rank "
    "held; on a CPU that is the whole process, libraries included. Utilization is the share of the window in which "
    "GPUs, on a CPU the workers' threads, were busy."
)
SAVED = (
    "On GPUs, the bytes saved per parameter are the change of the memory, divided by the number of parameters that "
    "other replicas hold for this rank: parameters × (1 - 1 / replicas). Three different things are called ZeRO-1. In "
    "published figures of GPT-2, OneFlow's placement of the optimizer saves about 17 bytes per parameter. DeepSpeed's "
    "stage 1 saves about 12 (an fp32 copy of the weights and two moments). PyTorch's ZeroRedundancyOptimizer saves 8 "
    "(two moments)."
)


def figures(cell: CellRecord) -> Figures:
    """Return a cell's memory, the share of time in which GPUs, or CPU threads, worked, and its throughput.

    Memory is what the driver counts (nvidia-smi), else what the largest rank held.
    """
    gpu, threads = (cell.utilization.gpu, cell.utilization.cpu) if cell.utilization else (None, None)
    used = cell.memory.device_used_bytes if cell.memory and gpu is not None else None
    memory = cell.peak_memory_bytes if used is None else used
    return dict(zip(SCALES, (memory, threads if gpu is None else gpu, cell.median_speed), strict=True))


def change(off: float | None, on: float | None) -> tuple[float | None, float | None]:
    """Return how much a figure changes with an option, and the change as a share of the figure without it."""
    by = None if off is None or on is None else on - off
    return by, by / off if by is not None and off else None


def in_words(off: float | None, on: float | None, scale: float) -> str:
    """Return off, on, and the change, absolute and in per cent with an arrow: `95 → 88 (-7, ↓7.4 %)`."""
    by, share = change(off, on)
    both = f"{as_printed(off, scale) or 'n/a'} → {as_printed(on, scale) or 'n/a'}"
    if not by or share is None:
        return both
    sign, arrow = "+↑" if by > 0 else "-↓"
    return f"{both} ({sign}{as_printed(abs(by), scale)}, {arrow}{percent(abs(share), 1)})"


def in_brackets(off: float | None, on: float | None, scale: float | None = None) -> str:
    """Return the change as OneFlow prints it: `(-1754,↓15.5%)`; without `scale` its share alone."""
    by, share = change(off, on)
    if by is None or share is None:
        return ""
    arrow = "" if not by else "↑" if by > 0 else "↓"
    return f"({'' if scale is None else f'{scale * by:.0f},'}{arrow}{100 * abs(share):.1f}%)"


def as_printed(value: float | None, scale: float) -> str:
    """Return a number as the study prints it: without decimals, but small numbers with three digits."""
    return "" if value is None else f"{scale * value:.0f}" if scale * value >= 20 else f"{scale * value:.3g}"


def switched(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs of two benchmarks that differ in one option."""
    return [pair for pair in pairs if pair.kind == "switches"]


def off_on(figure: str, pair: Pair) -> tuple[float | None, float | None]:
    """Return a figure without the option and with it."""
    return figures(pair.base.record)[figure], figures(pair.other.record)[figure]


def saved_bytes_per_parameter(pair: Pair) -> float | None:
    """Return the memory that sharding saves per parameter whose states other replicas hold for a rank; or None.

    It differs between kinds of sharding, and does not depend on the model or the number of replicas. On a CPU it is not
    known: what a process holds besides its tensors hides what sharding saves.
    """
    device, (by, _) = pair.other.group.summary.device, change(*off_on("memory_bytes", pair))
    if not _is_sharding(pair) or device is None or device.kind == "cpu":
        return None
    held = int(pair.base.settings.get("parameters") or 0) * (1 - 1 / pair.other.record.replicas)
    return -by / held if held and by is not None else None


def _is_sharding(pair: Pair) -> bool:
    return pair.what.startswith("sharding ")


def _switched_on(pair: Pair) -> str:
    """Return what is switched on, such as `sharding optimizer` or `compile`."""
    return pair.what.partition(" over ")[0]


def _columns(figure: str, heading: str) -> Iterator[Column]:
    """Yield the columns of a figure: how it changes, and in the CSV both figures and the change."""
    yield Column(heading=heading, read=lambda pair: in_words(*off_on(figure, pair), SCALES[figure]), forms=(PAGE,))
    yield from ends_in_csv(f"{figure}_off", f"{figure}_on", partial(off_on, figure))
    yield from ends_in_csv(f"{figure}_change", f"{figure}_change_of_off", lambda pair: change(*off_on(figure, pair)))


def _saved(pair: Pair) -> Entry:
    saved = saved_bytes_per_parameter(pair)
    return Entry("" if saved is None else f"{saved:.1f}", saved)


def table(scope: Scope) -> Table | None:
    """Return a line for each pair with a benchmark that does not have the option on; None if there is none."""
    pairs = switched(scope.pairs)
    if not pairs:
        return None
    columns = (
        in_csv("benchmark", lambda pair: pair.other.group.benchmark),
        Column("without", "off is", read=lambda pair: pair.base.group.benchmark),
        Column("switched_on", "switched on", read=_switched_on),
        Column(heading="where", read=lambda pair: pair.other.where, forms=(PAGE,)),
        in_csv("precision", lambda pair: pair.other.group.precision),
        in_csv("batch", lambda pair: pair.other.group.batch),
        in_csv("framework", lambda pair: pair.other.framework),
        in_csv("topology", lambda pair: str(pair.other.topology)),
        in_csv("devices", lambda pair: pair.other.topology.world),
        *_columns("memory_bytes", "memory, MiB"),
        *_columns("utilization_share", "utilization, %"),
        *_columns("samples_per_s", scope.groups[0].unit),
        Column("saved_bytes_per_parameter", "bytes saved", read=_saved),
        Column("verdict", "throughput is", read=Entry.verdict),
    )
    sharded = [pair for pair in pairs if _is_sharding(pair)]
    splits = dict.fromkeys(f"{_switched_on(pair)} splits {pair.other.settings.get('sharding')}." for pair in sharded)
    notes = [MEANING, *splits, *([SAVED] if sharded else [])]
    return Table.of(pairs, columns, forms=(PAGE, CSV), notes=notes)


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
    """Return the measured cells of GPT-2, sorted by topology, then by batch. One with sharding follows the one without.

    Other models have no such cases: the form is that of a study of GPT-2.
    """
    without = {pair.other: pair.base for pair in switched(pairs) if _is_sharding(pair)}
    listed = []
    for cell in cells:
        if workloads.folder(cell.group.summary.model) == "gpt2":
            off = without.get(cell)
            listed += [_case(off), _case(cell, figures(off.record))] if off else [_case(cell)]
    return sorted(listed, key=lambda case: (case.topology.world, case.topology, case.batch))


def _case(cell: Cell, off: Figures | None = None) -> Case:
    layout = cell.group.summary.options.layout
    date = (cell.record.started or "").partition("T")[0].replace("-", "")
    here = cell.topology, layout.tensor_parallel, cell.size.batch_per_replica, figures(cell.record)
    return Case(date, f"sharding_{layout.sharding}", *here, off, cell.shown, cell.group.precision)


def printed(cases: Iterable[Case]) -> Table | None:
    """Return OneFlow's table; None without a case. Brackets say how an option changes memory and throughput."""
    rows = []
    for first, (_, here) in enumerate(groupby(cases, key=lambda case: case.topology), start=1):
        for second, case in enumerate(here, start=1):
            texts = {name: as_printed(case.figures[name], scale) for name, scale in SCALES.items()}
            if case.off:
                off, on = case.off, case.figures
                texts["memory_bytes"] += in_brackets(off["memory_bytes"], on["memory_bytes"], 1 / MIB)
                texts["samples_per_s"] += in_brackets(off["samples_per_s"], on["samples_per_s"])
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
    columns = [Column(name, name, read=itemgetter(name)) for name in (rows[0] if rows else ())]
    return Table.if_any(rows, columns, forms=(PAGE, CSV))


PAIRS = Topic("pairs", "Off and on", order=160, table=table)
CASES = Topic(
    "cases",
    "Cases in OneFlow's form",
    "The same cells in the form of OneFlow's study of GPT-2: dp is data parallel, mp is one model on several devices, "
    "bs is the batch of a replica. On a CPU, memory and utilization are those of processes and threads.",
    order=170,
    table=lambda scope: printed(cases(scope.measured, scope.pairs)),
)

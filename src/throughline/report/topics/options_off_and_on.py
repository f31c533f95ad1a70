"""Show cells with an option off and on, and cells as OneFlow's study of GPT-2 prints them.

Compare cells with an option off and on: memory, use and throughput; and name cells as OneFlow does.

The form is that of OneFlow's study of GPT-2 with and without optimizer states that are split over ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from throughline import workloads
from throughline.numbers import MIB, percent
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.judged_pairs import Pair, Side
from throughline.report.render import markup
from throughline.report.render.tables import Chip, Table
from throughline.report.topic import Scope, Topic
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


CASE_COLUMNS = ["date", "test_num", "test_desc", "case", "gpu_mem(MiB)", "gpu_util(%)", "throughput(samples/s)",
                "framework", "precision"]  # fmt: skip
ELSEWHERE = (
    "Three different things are called ZeRO-1. In published figures of GPT-2, OneFlow's placement of the optimizer "
    "saves about 17 bytes per parameter. DeepSpeed's stage 1 saves about 12 (an fp32 copy of the weights and two "
    "moments). PyTorch's ZeroRedundancyOptimizer saves 8 (two moments)."
)


def frame(scope: Scope) -> pd.DataFrame | None:
    """Return one row per pair, unrounded; None if there is no benchmark without the option that this one has on."""
    rows = []
    for pair, both in switched(scope.pairs):
        assert pair.sides
        (base, _), (group, row) = ((side.group, side.row) for side in pair.sides)
        rows.append(
            {
                "benchmark": markup.spreadsheet(group.benchmark),
                "without": markup.spreadsheet(base.benchmark),
                "switched_on": markup.spreadsheet(_switched_on(pair)),
                "precision": group.precision,
                "batch": group.batch,
                "framework": markup.spreadsheet(row.framework),
                "topology": str(row.topology),
                "devices": row.topology.world,
                **_columns("memory_bytes", both.memory),
                **_columns("use_share", both.use),
                **_columns("samples_per_s", both.throughput),
                "saved_bytes_per_parameter": both.saved_bytes_per_parameter,
                "verdict": pair.verdict,
            }
        )
    return pd.DataFrame(rows) if rows else None


def _columns(name: str, change: Change) -> dict[str, float | None]:
    return {
        f"{name}_off": change.off,
        f"{name}_on": change.on,
        f"{name}_change": change.by,
        f"{name}_change_of_off": change.share,
    }


def table(scope: Scope) -> Table | None:
    """Return the same pairs as the page shows them."""
    unit = scope.groups[0].unit if scope.groups else ""
    header = ["switched on", "where", "memory, MiB", "use, %", unit, "bytes saved", "throughput is"]
    rows = [
        [
            *(_switched_on(pair), _where(pair), *changes(both), _saved(both)),
            (pair.verdict.replace(" ", "-"), pair.verdict),
        ]
        for pair, both in switched(scope.pairs)
    ]
    return header, rows


def _switched_on(pair: Pair) -> str:
    """Return what is switched on, such as `sharding optimizer` or `compile`."""
    return pair.what.partition(" over ")[0]


def _where(pair: Pair) -> str:
    assert pair.sides
    group, row = pair.sides[1].group, pair.sides[1].row
    return f"{row.shown} {row.topology}, {group.precision}, {group.batch_name}"


def changes(both: OffOn) -> list[str | Chip]:
    """Return memory in MiB, use in per cent and throughput: off, on, and the change."""
    return [_text(both.memory, 1 / MIB), _text(both.use, 100), _text(both.throughput, 1)]


def _text(change: Change, scale: float) -> str:
    """Return off, on, and the change, absolute and in per cent with an arrow: `95 → 88 (-7, ↓7.4 %)`."""
    off, on = (_number(value, scale) or "n/a" for value in (change.off, change.on))
    if not change.by or change.share is None:
        return f"{off} → {on}"
    by = f"{'+' if change.by > 0 else '-'}{_number(abs(change.by), scale)}"
    return f"{off} → {on} ({by}, {change.arrow}{percent(abs(change.share), 1)})"


def _saved(both: OffOn) -> str:
    return "" if both.saved_bytes_per_parameter is None else f"{both.saved_bytes_per_parameter:.1f}"


def remarks(scope: Scope) -> Iterator[str]:
    """Say what the figures are, and what each value of sharding splits."""
    yield (
        "Memory is the most that a device held, as its driver counts it. Without a driver it is what the largest rank "
        "held; on a CPU that is the whole process, libraries included. Use is the share of the window in which GPUs, "
        "on a CPU the workers' threads, were busy."
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


def cells(cases: Sequence[Case]) -> pd.DataFrame:
    """Return OneFlow's table. If an option is on, brackets after memory and throughput say how they changed."""
    rows = []
    for first, (_, here) in enumerate(groupby(cases, key=lambda case: case.topology), start=1):
        for second, case in enumerate(here, start=1):
            change = OffOn(case.off, case.figures) if case.off else None
            rows.append(
                [
                    case.date,
                    f"test-{first}-{second}",
                    case.description,
                    case.name,
                    _number(case.figures.memory_bytes, 1 / MIB) + (_bracket(change.memory, 1 / MIB) if change else ""),
                    _number(case.figures.use, 100),
                    _number(case.figures.samples_per_s, 1) + (_bracket(change.throughput) if change else ""),
                    markup.spreadsheet(case.framework),
                    case.precision,
                ]
            )
    return pd.DataFrame(rows, columns=CASE_COLUMNS)


def _number(value: float | None, scale: float) -> str:
    """Return a number as the study prints it: without decimals, but small numbers with three digits."""
    return "" if value is None else f"{scale * value:.0f}" if scale * value >= 20 else f"{scale * value:.3g}"


def _bracket(change: Change, scale: float | None = None) -> str:
    """Return a change such as `(-1754,↓15.5%)`, without the absolute part if there is no `scale`."""
    if change.by is None or change.share is None:
        return ""
    by = "" if scale is None else f"{scale * change.by:.0f},"
    return f"({by}{change.arrow}{100 * abs(change.share):.1f}%)"


def cases_frame(scope: Scope) -> pd.DataFrame | None:
    made = cases(scope.groups, scope.pairs)
    return cells(made) if made else None


def cases_table(scope: Scope) -> Table | None:
    found = cases_frame(scope)
    return None if found is None else (list(found.columns), found.to_numpy().tolist())


PAIRS = Topic("pairs", "Off and on", order=160, frame=frame, table=table, remarks=remarks)
CASES = Topic(
    "cases",
    "Cases in OneFlow's form",
    "The same cells in the form of OneFlow's study of GPT-2: dp is data parallel, mp is one model on several devices, "
    "bs is the batch of a replica. On a CPU, memory and use are those of processes and threads.",
    order=170,
    frame=cases_frame,
    table=cases_table,
)

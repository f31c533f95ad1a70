"""Show cells with an option off and on, and cells as OneFlow's study of GPT-2 prints them."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import pandas as pd

from throughline.numbers import MIB, percent
from throughline.report.analysis import pairs
from throughline.report.analysis.comparisons import Pair
from throughline.report.analysis.pairs import Case, Change, OffOn
from throughline.report.render import markup
from throughline.report.render.tables import Chip, Table
from throughline.report.topics import Scope, Topic

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
    for pair, both in pairs.switched(scope.pairs):
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
        for pair, both in pairs.switched(scope.pairs)
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
        for pair, _ in pairs.switched(scope.pairs)
        if pair.sides
    )
    yield from against
    split = dict.fromkeys(
        f"{_switched_on(pair)} splits {pairs.settings(pair.sides[1]).get('sharding', 'n/a')}."
        for pair, _ in pairs.switched(scope.pairs)
        if pair.sides and pairs.option(pair) == "sharding"
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
    made = pairs.cases(scope.groups, scope.pairs)
    return cells(made) if made else None


def cases_table(scope: Scope) -> Table | None:
    found = cases_frame(scope)
    return None if found is None else (list(found.columns), found.to_numpy().tolist())


PAIRS = Topic("pairs", "Off and on", frame=frame, table=table, remarks=remarks)
CASES = Topic(
    "cases",
    "Cases in OneFlow's form",
    "The same cells in the form of OneFlow's study of GPT-2: dp is data parallel, mp is one model on several devices, "
    "bs is the batch of a replica. On a CPU, memory and use are those of processes and threads.",
    frame=cases_frame,
    table=cases_table,
)

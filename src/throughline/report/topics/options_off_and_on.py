"""Show cells with an option off and on: memory, use and throughput, and how they change."""

from collections.abc import Iterator

import pandas as pd

from throughline.numbers import MIB, percent
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.option_changes import Change, OffOn, option, settings, switched
from throughline.report.render import markup
from throughline.report.render.tables import Chip, Table
from throughline.report.topic import Scope, Topic

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
    off, on = (as_printed(value, scale) or "n/a" for value in (change.off, change.on))
    if not change.by or change.share is None:
        return f"{off} → {on}"
    by = f"{'+' if change.by > 0 else '-'}{as_printed(abs(change.by), scale)}"
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


def as_printed(value: float | None, scale: float) -> str:
    """Return a number as the study prints it: without decimals, but small numbers with three digits."""
    return "" if value is None else f"{scale * value:.0f}" if scale * value >= 20 else f"{scale * value:.3g}"


TOPIC = Topic("pairs", "Off and on", order=160, frame=frame, table=table, remarks=remarks)

"""The table of work done: FLOPs, shares of the peaks, real tokens, and the conventions behind them."""

from __future__ import annotations

from throughline.records import Cell
from throughline.report.numbers import percent, reading, scaled
from throughline.report.render.grid import Column, Figure, Grid, lines
from throughline.report.render.sheets import grid_topic
from throughline.report.topics import Scope

COLUMNS = (
    Column("flops_per_sample", "FLOPs", "per sample"),
    Column("flops_per_s_per_device", "FLOP/s", "per device"),
    Column("datasheet_flops_per_s", "peak", "datasheet"),
    Column("mfu", "MFU", "share of peak"),
    Column("matmul_flops_per_s", "matmul", "measured"),
    Column("matmul_share", "share of matmul"),
    Column("real_tokens_per_s", "real tokens/s", "all devices"),
    Column("real_token_share", "real tokens", "of positions"),
)
NAMES = {
    "flops": "FLOPs",
    "attention": "attention",
    "head_positions": "vocabulary head",
    "tokens": "positions",
    "recomputation": "recomputation",
    "peak": "peak",
    "matmul": "matmul",
    "samples": "samples",
    "real_tokens": "real tokens",
}
"""Conventions as the page names them."""


def grid(scope: Scope) -> Grid:
    """A row per cell; every convention below."""
    conventions: dict[str, list[str]] = {}
    for group in scope.groups:
        for row in group.rows:
            for name, text in (row.cell.work.convention if row.cell and row.cell.work else {}).items():
                if text not in conventions.setdefault(name, []):
                    conventions[name].append(text)
    facts = [(NAMES.get(name, name), "; or ".join(texts)) for name, texts in conventions.items()]
    return Grid("work", "Work done", COLUMNS, lines(scope.groups, _figures), facts)


def _figures(cell: Cell) -> list[Figure]:
    work = cell.work
    if work is None:
        return [Figure(why="the records are older than this figure")] * len(COLUMNS)

    def rate(name: str) -> Figure:
        value = getattr(work, name)
        return Figure.of(value, scaled(value), work.reasons.get(name))

    def share(name: str) -> Figure:
        value = getattr(work, name)
        return Figure.of(value, percent(value, 1), work.reasons.get(name))

    tokens = work.real_tokens_per_s
    return [
        rate("flops_per_sample"), rate("flops_per_s"), rate("datasheet_flops_per_s"), share("mfu"),
        rate("matmul_flops_per_s"), share("matmul_share"),
        Figure.of(tokens, reading(tokens), work.reasons.get("real_tokens_per_s")), share("real_token_share"),
    ]  # fmt: skip


TOPIC = grid_topic("work", "Work done", grid)

"""Show tokens/s, FLOP/s and MFU of decoders as different projects count them, to compare with their tables."""

from functools import partial

from throughline.comparables import flop_conventions
from throughline.comparables.flop_conventions import CONVENTIONS, SYMBOLS
from throughline.numbers import percent, reading
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import Column, Entry, Table
from throughline.report.topic import Scope, Topic


def table(scope: Scope) -> Table | None:
    """Return a row per cell; None if the model is no decoder."""
    summary = scope.groups[0].summary if scope.groups else None
    decoder_and_tokens = flop_conventions.parts(summary.model, summary.parameters) if summary else None
    if decoder_and_tokens is None:
        return None
    flops = {each: each.count(*decoder_and_tokens) for each in CONVENTIONS}
    columns = [
        Column("tokens_per_s_per_device", "tokens/s", "per device", _tokens_per_s, reading),
        *(Column(f"tflops_{c.key}", "TFLOPS", c.name, partial(_tflops, flops[c]), reading) for c in CONVENTIONS),
        *(Column(f"mfu_{c.key}", "MFU", c.name, partial(_mfu, flops[c])) for c in CONVENTIONS),
    ]
    facts = [(each.name, f"{each.formula} FLOPs per token") for each in CONVENTIONS]
    return Table.of_groups(scope.groups, columns, facts=facts, notes=[SYMBOLS])


def _tokens_per_s(cell: Cell) -> float | None:
    tokens = cell.record.other_units.get("tokens/s")
    return tokens and tokens / cell.topology.world


def _tflops(flops: float, cell: Cell) -> float:
    return flops * cell.median / cell.topology.world / 1e12


def _mfu(flops: float, cell: Cell) -> Entry:
    work = cell.record.work
    peak, reason = (work.datasheet_flops_per_s, work.reasons.get("mfu")) if work else (None, None)
    share = flops * cell.median / cell.topology.world / peak if peak else None
    return Entry.of(share, partial(percent, places=1), reason)


INTRO = (
    "These columns count the FLOPs of the same speed by several conventions. Compare a figure from elsewhere with the "
    "column of its own convention."
)
TOPIC = Topic("conventions", "FLOP/s as others count them", INTRO, order=150, table=table)

"""Show tokens/s, FLOP/s and MFU of decoders as different projects count them, to compare with their tables."""

from throughline.comparables import flop_conventions
from throughline.comparables.flop_conventions import CONVENTIONS, SYMBOLS
from throughline.numbers import percent, reading
from throughline.records import CellRecord
from throughline.report.render.tables import Column, Entry, Table, lines
from throughline.report.topic import Scope, Topic

COLUMNS = (
    Column("tokens_per_s_per_device", "tokens/s", "per device"),
    *(Column(f"tflops_{convention.key}", "TFLOPS", convention.name) for convention in CONVENTIONS),
    *(Column(f"mfu_{convention.key}", "MFU", convention.name) for convention in CONVENTIONS),
)


def table(scope: Scope) -> Table | None:
    """Return a row per cell; None if the model is no decoder."""
    summary = next((group.summary for group in scope.groups), None)
    if summary is None or flop_conventions.parts(summary.model, summary.parameters) is None:
        return None
    model, parameters = summary.model, summary.parameters

    def figures(cell: CellRecord) -> list[Entry]:
        rates = flop_conventions.of_cell(model, parameters, cell)
        work, tokens = cell.work, cell.other_units.get("tokens/s")
        assert work  # as every measured cell has it
        peak, reason = work.datasheet_flops_per_s, work.reasons.get("mfu")
        shares = [rate / peak if peak else None for rate in rates.values()]
        return [
            Entry.of(tokens and tokens / cell.world_size, reading),
            *(Entry.of(rate / 1e12, reading) for rate in rates.values()),
            *(Entry.of(share, lambda share: percent(share, 1), reason) for share in shares),
        ]

    facts = [(convention.name, f"{convention.formula} FLOPs per token") for convention in CONVENTIONS]
    return Table(COLUMNS, lines(scope.groups, figures), facts, [SYMBOLS], of_cells=True)


INTRO = (
    "These columns count the FLOPs of the same speed by several conventions. Compare a figure from elsewhere with the "
    "column of its own convention."
)
TOPIC = Topic("conventions", "FLOP/s as others count them", INTRO, order=150, table=table)

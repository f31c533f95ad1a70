"""A training step compared with its layers alone, if one report has both: a table with the conditions."""

from collections.abc import Iterable
from dataclasses import dataclass

from throughline import workloads
from throughline.numbers import percent, reading
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render.table_files import IDENTITY
from throughline.report.render.tables import PAGE, Column, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.single_calls import Reached, reached
from throughline.workloads import layers
from throughline.workloads.layers import HIDDEN

ALIKE = 2.0
"""Two batch sizes are close if their ratio is at most this."""


@dataclass(frozen=True)
class Part:
    """TFLOPS of a device in the step of one cell, and the most similar layer that ran alone."""

    cell: Cell
    tflops: float
    layer: Reached

    @property
    def share(self) -> float:
        return self.tflops / self.layer.value


def parts(groups: Iterable[Group], everything: Iterable[Group]) -> list[Part]:
    """Return every measured cell of a model whose layer was measured alone on the same device."""
    alone = [call for call in reached(everything) if call.name == "forward_backward"]
    return [part for group in groups for cell in group.measured if (part := _part(cell, alone))]


def _part(cell: Cell, alone: Iterable[Reached]) -> Part | None:
    summary, work, device = cell.group.summary, cell.record.work, cell.device
    if work is None or not work.flops_per_s or device is None or summary.options.remove_padding:
        return None  # without padding its samples are shorter than the layer's
    layer = layers.LAYER_OF.get(workloads.models().get(summary.model, ""))
    length, dropout = summary.parameters.get("sequence_length"), summary.options.dropout
    wanted = layer, device.name, cell.group.precision, length, dropout
    batch = cell.size.batch_per_replica
    alike = [call for call in alone if _same(call) == wanted and 1 / ALIKE <= call.size / batch <= ALIKE]
    if not alike:
        return None
    nearest = min(alike, key=lambda call: (max(call.size / batch, batch / call.size), call.cell.topology.world))
    return Part(cell, work.flops_per_s / 1e12, nearest)


def _same(call: Reached) -> tuple[object, ...]:
    """Return what has to be the same in the step and in the layer alone."""
    summary = call.cell.group.summary
    return (
        summary.model, call.device, summary.precision, summary.parameters.get("sequence_length"),
        summary.options.dropout,
    )  # fmt: skip


COLUMNS = (
    *IDENTITY,
    Column(heading="TFLOPS a device", read=lambda part: reading(part.tflops)),
    Column(heading="layer alone", read=lambda part: reading(part.layer.value)),
    Column(heading="share", read=lambda part: percent(part.share)),
    Column(heading="layer's batch", read=lambda part: str(part.layer.size)),
    Column(heading="layer's attention", read=lambda part: str(part.layer.cell.group.summary.parameters["attention"])),
    Column(heading="measured in", read=lambda part: part.layer.cell.group.benchmark),
)
NOTES = (
    "The layer alone is a forward and backward pass of one layer, with the same device, precision, sequence and "
    "dropout, and the nearest batch size that was measured, at most twice or half as large.",
    f"That layer is {HIDDEN:,} wide, whatever the model's width. It keeps its weights in the run's precision, where a "
    "training casts them. A step also has embeddings, the vocabulary's head, the exchange and the update.",
)


def table(scope: Scope) -> Table | None:
    """Return a line for each cell whose layers were measured in this report."""
    found = parts(scope.groups, scope.everything)
    return Table.of(found, COLUMNS, forms=(PAGE,), notes=NOTES) if found else None


TOPIC = Topic("parts", "A step and its layers alone", order=100, table=table)

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
    """Return every measured cell of a model whose layer was measured alone on the same device.

    Without padding a step's samples are shorter than the layer's, so it is left out.
    """
    alone = [call for call in reached(everything) if call.name == "forward_backward"]
    found = []
    for cell in (cell for group in groups for cell in group.measured):
        work, batch, model = cell.record.work, cell.size.batch_per_replica, cell.group.summary.model
        layer = layers.LAYER_OF.get(workloads.models().get(model, ""), "")
        alike = [
            call
            for call in alone
            if _conditions(call.cell) == (layer, *_conditions(cell)[1:]) and 1 / ALIKE <= call.size / batch <= ALIKE
        ]
        if alike and work and work.flops_per_s and not cell.group.summary.options.remove_padding:
            nearest = min(alike, key=lambda c: (max(c.size / batch, batch / c.size), c.cell.topology.world))
            found.append(Part(cell, work.flops_per_s / 1e12, nearest))
    return found


def _conditions(cell: Cell) -> tuple[object, ...]:
    """Return the model, and what else has to be the same in the step and in the layer alone."""
    summary, device = cell.group.summary, cell.device.name if cell.device else cell
    return summary.model, device, summary.precision, summary.parameters.get("sequence_length"), summary.options.dropout


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

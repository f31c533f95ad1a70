"""A training step compared with its layers alone, on the page: a table with the conditions, and a sentence.

Compare the speed of a training step with that of its layers alone, if one report has both.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughline import workloads
from throughline.numbers import percent, reading
from throughline.report.analysis.cells import Group, Row
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Finding, Scope, Topic
from throughline.report.topics.single_calls import Reached, reached
from throughline.workloads import layers
from throughline.workloads.layers import HIDDEN

ALIKE = 2.0
"""Two batch sizes are close if their ratio is at most this."""


@dataclass(frozen=True)
class Part:
    """One framework on one topology: TFLOPS of a device in the step, and the most similar layer that ran alone."""

    group: Group
    row: Row
    model: str
    value: float
    layer: Reached

    @property
    def share(self) -> float:
        return self.value / self.layer.value


def parts(groups: Iterable[Group], everything: Iterable[Group]) -> list[Part]:
    """Return every measured row of a model whose layer was measured alone on the same device."""
    alone = [call for call in reached(everything) if call.name == "forward_backward"]
    return [part for group in groups for row in group.measured if (part := _of_row(group, row, alone))]


def _of_row(group: Group, row: Row, alone: Iterable[Reached]) -> Part | None:
    summary, cell, device = group.summary, row.cell, group.device(row)
    if summary is None or cell is None or cell.work is None or not cell.work.flops_per_s or device is None:
        return None
    layer = layers.LAYER_OF.get(workloads.models().get(summary.model, ""))
    wanted = layer, device.name, group.precision, summary.parameters.get("sequence_length"), summary.options.dropout
    batch = group.batch_per_replica(row)
    alike = [call for call in alone if _is(call) == wanted and 1 / ALIKE <= call.size / batch <= ALIKE]
    if not alike or summary.options.remove_padding:  # its samples are shorter than the layer's
        return None
    nearest = min(alike, key=lambda call: (max(call.size / batch, batch / call.size), call.row.topology.world))
    return Part(group, row, summary.model, cell.work.flops_per_s / 1e12, nearest)


def _is(call: Reached) -> tuple[object, ...]:
    """Return what has to be the same in the step and in the layer alone."""
    dropout = call.group.summary.options.dropout if call.group.summary else None
    return call.model, call.device, call.group.precision, call.parameters.get("sequence_length"), dropout


HEADER = ["precision", "batch", "framework", "topology", "TFLOPS a device", "layer alone", "share", "layer's batch",
          "layer's attention", "measured in"]  # fmt: skip
REMARKS = (
    "The layer alone is a forward and backward pass of one layer, with the same device, precision, sequence and "
    "dropout, and the nearest batch size that was measured, at most twice or half as large.",
    f"That layer is {HIDDEN:,} wide, whatever the model's width. It keeps its weights in the run's precision, where a "
    "training casts them. A step also has embeddings, the vocabulary's head, the exchange and the update.",
)


def table(scope: Scope) -> Table | None:
    """Return a row for each cell whose layers were measured in this report."""
    rows = [
        [
            part.group.precision,
            str(part.group.batch),
            part.row.shown,
            str(part.row.topology),
            reading(part.value),
            reading(part.layer.value),
            percent(part.share),
            str(part.layer.size),
            str(part.layer.parameters["attention"]),
            part.layer.group.benchmark,
        ]
        for part in parts(scope.groups, scope.everything)
    ]
    return texts(HEADER, rows) if rows else None


def findings(scope: Scope) -> Iterator[Finding]:
    """Yield a sentence on the configuration with the smallest topology that comes closest to its layers."""
    measured = parts(scope.groups, scope.everything)
    if measured:
        part = max(measured, key=lambda part: (-part.row.topology.world, part.share))
        where = f"{part.row.shown} {part.row.topology}, {part.group.precision}, {part.group.batch_text}"
        yield Finding(
            f"{part.model} reaches {percent(part.share)} of what its layers reach alone: {reading(part.value)} of "
            f"{reading(part.layer.value)} TFLOPS a device ({where}; {part.layer.model} at batch "
            f"{part.layer.size})."
        )


TOPIC = Topic(
    "parts", "A step and its layers alone", order=100, table=table, remarks=lambda scope: REMARKS, findings=findings
)

"""Compare the speed of a training step with that of its layers alone, if one report has both."""

from collections.abc import Iterable
from dataclasses import dataclass

from throughline import workloads
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.reached import Reached, reached
from throughline.workloads import layers

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
    alone = [one for one in reached(everything) if one.name == "forward_backward"]
    return [found for group in groups for row in group.measured if (found := _of_row(group, row, alone))]


def _of_row(group: Group, row: Row, alone: Iterable[Reached]) -> Part | None:
    summary, cell = group.summary, row.cell
    if summary is None or cell is None or cell.work is None or not cell.work.flops_per_s or summary.device is None:
        return None
    layer = layers.LAYER_OF.get(workloads.models().get(summary.model, ""))
    wanted = layer, summary.device.name, group.precision, summary.parameters.get("sequence"), summary.options.dropout
    batch = group.batch_per_replica(row)
    alike = [one for one in alone if _is(one) == wanted and 1 / ALIKE <= one.size / batch <= ALIKE]
    if not alike or summary.options.unpadded:  # its samples are shorter than the layer's
        return None
    nearest = min(alike, key=lambda one: (max(one.size / batch, batch / one.size), one.row.topology.world))
    return Part(group, row, summary.model, cell.work.flops_per_s / 1e12, nearest)


def _is(one: Reached) -> tuple[object, ...]:
    """Return what has to be the same in the step and in the layer alone."""
    dropout = one.group.summary.options.dropout if one.group.summary else None
    return one.model, one.device, one.group.precision, one.parameters.get("sequence"), dropout

"""Collect what single calls reach in workloads that train nothing.

Every figure has its size, the datasheet's peak, and the largest matrix product of the same run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from throughline import gpus, workloads
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.spec import example


@dataclass(frozen=True)
class Reached:
    """One figure at one size, in its own unit. If it is not `sized`, its size is the batch.

    theory: the datasheet's peak. product: the largest matrix product of the same run at the same precision. intensity:
    FLOPs per byte. Each is None if there is none.
    """

    group: Group
    row: Row
    model: str
    device: str
    name: str
    size: int
    sized: bool
    unit: str
    value: float
    peak: str | None
    theory: float | None
    product: float | None
    intensity: float | None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of its workload."""
        return dict(self.group.summary.parameters) if self.group.summary else {}

    @property
    def rank(self) -> tuple[float, ...]:
        """The key by which `best` prefers a figure: the largest is preferred."""
        return -self.row.topology.world, self.size if self.sized else 0, self.value

    @property
    def share(self) -> float | None:
        return self.value / self.theory if self.theory else None

    @property
    def share_of_product(self) -> float | None:
        return self.value / self.product if self.product else None


def alone(group: Group) -> bool:
    """True if a group's workload trains nothing."""
    model = group.summary.model if group.summary else None
    return model is not None and workloads.folder(model) is not None and not workloads.of(model).trains


def reached(groups: Iterable[Group]) -> list[Reached]:
    """Return every figure with a value of the groups whose workload trains nothing."""
    return [one for group in groups if alone(group) for row in group.measured for one in _of_row(group, row)]


def best(every: Iterable[Reached]) -> list[Reached]:
    """Return one figure per device, test, precision and framework, on the smallest topology.

    It is that of the largest size, which no cache holds, or of the fastest batch.
    """
    chosen: dict[tuple[str, ...], Reached] = {}
    for one in every:
        key = one.device, one.model, one.name, one.group.precision, one.row.framework
        if one.rank > chosen.setdefault(key, one).rank:
            chosen[key] = one
    return list(chosen.values())


def _of_row(group: Group, row: Row) -> Iterable[Reached]:
    summary, cell = group.summary, row.cell
    if summary is None or cell is None:
        return
    workload = workloads.of(summary.model)
    peaks = {one.name: one.peak for one in workload.figures}
    parameters = workload.parameters(**summary.parameters)
    spec = example(summary.model, parameters, precision=group.precision, batch=group.batch)
    device = summary.device.name if summary.device else "unknown device"
    product = cell.work.matmul_flops_per_s if cell.work else None
    for figure in cell.figures:
        if figure.value is not None:
            peak = peaks.get(figure.name)
            yield Reached(
                group=group,
                row=row,
                model=summary.model,
                device=device,
                name=figure.name,
                sized=figure.at is not None,
                size=group.batch if figure.at is None else int(figure.at),
                unit=figure.unit,
                value=figure.value,
                peak=peak,
                theory=_theory(device, cell, peak),
                product=product / 1e12 if product and peak == "flops" else None,
                intensity=workload.intensity(spec, figure.name, figure.at),
            )


def _theory(device: str, cell: Cell, peak: str | None) -> float | None:
    """Return the datasheet's peak: TFLOPS at the run's precision, or GB/s of the device's memory."""
    if peak == "flops":
        rate = cell.work.datasheet_flops_per_s if cell.work else None
        return rate / 1e12 if rate else None
    gpu = gpus.find(device) if peak == "memory" else None
    return gpu.memory_bytes_per_s / 1e9 if gpu and gpu.memory_bytes_per_s else None

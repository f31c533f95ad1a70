"""Our cells in the form in which they are compared with results of others."""

from collections.abc import Iterable, Iterator

from throughline.comparables.measured import Measured
from throughline.records import Result, Summary
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.titles import emulating, switches

UNITS = ("samples/s", "images/s")


def measured(groups: Iterable[Group]) -> Iterator[Measured]:
    """Yield the cells of these groups that were measured, with a unit that others use too."""
    for group in groups:
        for cell in group.measured:
            if result := _result(cell):
                device = cell.device
                emulated = group.precision == "fp16" and device is not None and device.fp16_native is False
                emulated &= cell.framework not in emulating(group.summary)  # its products are as fast as those of fp32
                yield Measured(result, cell.record, group.name, cell.topology, cell.shown, group.batch_name, emulated)


def _result(cell: Cell) -> Result | None:
    """Return a cell as a row of results, unrounded; None if it has a unit of its own, or simulated nodes."""
    group, summary, record = cell.group, cell.group.summary, cell.record
    if group.unit not in UNITS or record.simulated:
        return None
    parameters = dict(summary.parameters)
    length = parameters.pop("sequence_length", None)
    return Result(
        origin="measured",
        source=f"{group.benchmark} {group.name}",
        date=(record.started or "")[:10] or None,
        framework=cell.framework,
        software=_software(summary, cell.framework),
        model=summary.model,
        parameters=parameters,
        sequence_length=length if isinstance(length, int) else None,
        precision=group.precision,  # type: ignore[arg-type]
        device=cell.facts.get("device.name"),
        nodes=cell.topology.nodes,
        devices=cell.topology.world,
        batch=record.batch_size_per_device,
        gradient_accumulation=cell.size.gradient_accumulation,
        global_batch=record.global_batch,
        options=switches(summary),
        convention=f"median of {record.n_ok} runs",
        value=repr(cell.median),
        unit=group.unit,  # type: ignore[arg-type]
        repeats=(record.min, record.max) if record.min and record.max and record.n_ok > 1 else None,
    )


def _software(summary: Summary, framework: str) -> str | None:
    libraries = (summary.environment.get(framework) or {}).get("framework") or {}
    return ", ".join(f"{name} {version}" for name, version in libraries.items()) or None

"""Our cells in the form in which they are compared with results of others."""

from collections.abc import Iterable, Iterator

from throughline.comparables.measured import Measured
from throughline.records import Result, Summary
from throughline.report.analysis.cells import Group, Row, emulating, switches

UNITS = ("samples/s", "images/s")


def measured(groups: Iterable[Group]) -> Iterator[Measured]:
    """Yield the cells of these groups that were measured, with a unit that others use too."""
    for group in groups:
        for row in group.measured:
            if (cell := row.cell) and (result := _result(group, row)):
                device = group.device(row)
                emulated = group.precision == "fp16" and device is not None and device.fp16_native is False
                emulated &= row.framework not in emulating(group.summary)  # its products are as fast as those of fp32
                yield Measured(result, cell, group.name, row.topology, row.shown, group.batch_name, emulated)


def _result(group: Group, row: Row) -> Result | None:
    """Return a cell as a row of results, unrounded; None if it was not measured or has a unit of its own."""
    summary, cell = group.summary, row.cell
    if not (summary and cell and cell.median_speed and group.unit in UNITS) or cell.simulated:
        return None
    parameters = dict(summary.parameters)
    length = parameters.pop("sequence_length", None)
    return Result(
        origin="measured",
        source=f"{group.benchmark} {group.name}",
        date=(cell.started or "")[:10] or None,
        framework=row.framework,
        software=_software(summary, row.framework),
        model=summary.model,
        parameters=parameters,
        sequence_length=length if isinstance(length, int) else None,
        precision=group.precision,  # type: ignore[arg-type]
        device=group.facts(row).get("device.name"),
        nodes=row.topology.nodes,
        devices=row.topology.world,
        batch=cell.batch_size_per_device,
        gradient_accumulation=group.size(row).gradient_accumulation,
        global_batch=cell.global_batch,
        options=switches(summary),
        convention=f"median of {cell.n_ok} runs",
        value=repr(cell.median_speed),
        unit=group.unit,  # type: ignore[arg-type]
        repeats=(cell.min, cell.max) if cell.min and cell.max and cell.n_ok > 1 else None,
    )


def _software(summary: Summary, framework: str) -> str | None:
    libraries = (summary.environment.get(framework) or {}).get("framework") or {}
    return ", ".join(f"{name} {version}" for name, version in libraries.items()) or None

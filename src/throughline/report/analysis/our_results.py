"""Our cells in the form in which they are compared with results of others."""

from collections.abc import Iterable, Iterator
from typing import Any

from throughline import workloads
from throughline.comparables.measured import Measured
from throughline.records import Cell, Result, Summary
from throughline.report.analysis.cells import Group, Row, emulating, switches

UNITS = ("samples/s", "images/s")
PADDED = 128
"""A vocabulary has at most so many rows of padding."""


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
        printed=_printed(cell, _own_vocabulary(summary, row.framework)),
        repeats=(cell.min, cell.max) if cell.min and cell.max and cell.n_ok > 1 else None,
    )


def _printed(cell: Cell, own_vocabulary: bool) -> dict[Any, str]:
    """Return the figures of a row that follow from its speed and its model. Another vocabulary is another model."""
    work = None if own_vocabulary else cell.work
    share, rate = (work.mfu, work.flops_per_s) if work else (None, None)
    figures = {"mfu": share, "tflops": rate / 1e12 if rate else None}
    return {name: repr(value) for name, value in figures.items() if value}


def _software(summary: Summary, framework: str) -> str | None:
    libraries = (summary.environment.get(framework) or {}).get("framework") or {}
    return ", ".join(f"{name} {version}" for name, version in libraries.items()) or None


def _own_vocabulary(summary: Summary, framework: str) -> bool:
    """True if the model's vocabulary is not the one that its name stands for. Its rows may be padded."""
    rows = ((summary.settings or {}).get(framework) or {}).get("vocabulary_rows")
    usual = workloads.of(summary.model).facts(None).get("vocabulary")
    return bool(rows and usual and not usual <= rows < usual + PADDED)

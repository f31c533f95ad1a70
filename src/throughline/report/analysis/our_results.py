"""Our cells as rows of results, to compare them with results of others, and what is implausible about them."""

from collections.abc import Iterable, Mapping, Sequence

from throughline.comparables import plausibility
from throughline.records import Result
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.titles import switches
from throughline.spec.program import DECIDES

UNITS = ("samples/s", "images/s")


def rows(cells: Iterable[Cell]) -> dict[Cell, Result]:
    """Map the measured cells to rows, but none with a unit or a model of its own, reading alone, or simulated nodes."""
    ours = (cell for cell in cells if not cell.group.reads_alone)
    known = (cell for cell in ours if cell.group.unit in UNITS and cell.group.summary.model != DECIDES)
    return {cell: _row(cell) for cell in known if not cell.record.simulated}


def _row(cell: Cell) -> Result:
    """Return a cell as a row of results, unrounded."""
    group, summary, record = cell.group, cell.group.summary, cell.record
    parameters = dict(summary.parameters)
    length = parameters.pop("sequence_length", None)
    libraries = (summary.environment.get(cell.framework) or {}).get("framework") or {}
    return Result(
        origin="measured",
        source=f"{group.benchmark} {group.name}",
        date=(record.started or "")[:10] or None,
        framework=cell.framework,
        software=", ".join(f"{name} {version}" for name, version in libraries.items()) or None,
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
        repeats=(min(cell.repeats), max(cell.repeats)) if record.n_ok > 1 else None,
    )


def doubts(ours: Mapping[Cell, Result], imported: Sequence[Result]) -> list[plausibility.Doubt]:
    """Return the doubts about our own cells and the imported rows.

    The largest matrix product of the same runs is a row of its own, which no training should exceed.
    """
    rows = []
    for cell, row in ours.items():
        rows.append(row)
        if (work := cell.record.work) and work.matmul_flops_per_s:
            value = repr(work.matmul_flops_per_s / 1e12)
            rows.append(row.model_copy(update={"model": "matmul", "value": value, "unit": "TFLOPS"}))
    return list(plausibility.doubts([*rows, *imported]))

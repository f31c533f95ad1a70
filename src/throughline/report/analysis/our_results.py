"""Our cells as rows of results, to compare them with results of others, and what is implausible about them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from throughline.comparables import plausibility
from throughline.comparables.plausibility import FASTER, PRODUCT, WINOGRAD, Doubt, fewer
from throughline.numbers import reading, scaled
from throughline.records import Result
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.titles import emulating, switches
from throughline.spec.program import DECIDES

UNITS = ("samples/s", "images/s")


def rows(cells: Iterable[Cell]) -> dict[Cell, Result]:
    """Map the measured cells to rows, unless they have a unit or a model of their own, or simulated nodes."""
    known = (cell for cell in cells if cell.group.unit in UNITS and cell.group.summary.model != DECIDES)
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


def doubts(ours: Mapping[Cell, Result], imported: Sequence[Result]) -> list[Doubt]:
    """Return the doubts about our own cells and the imported rows. Those that have an explanation come last."""
    rows = []
    for cell, row in ours.items():
        rows.append(row)
        if (work := cell.record.work) and work.matmul_flops_per_s:
            value = repr(work.matmul_flops_per_s / 1e12)
            rows.append(row.model_copy(update={"model": "matmul", "value": value, "unit": "TFLOPS"}))
    explained = list(_above_own_product(ours))
    known = [(doubt.rule, doubt.row) for doubt in explained]
    by_rules = plausibility.doubts([*rows, *imported])
    return [*(doubt for doubt in by_rules if (doubt.rule, doubt.row) not in known), *explained]


def _above_own_product(ours: Mapping[Cell, Result]) -> Iterator[Doubt]:
    """Find cells that train with more FLOP/s than the matrix product of the same runs, and say why if it is known."""
    for cell, row in ours.items():
        work = cell.record.work
        product, share = (work.matmul_flops_per_s, work.matmul_share) if work else (None, None)
        if work is None or product is None or share is None or share * row.lowest <= 1:
            continue
        beside = [other for other in ours if other.group is cell.group and other.topology == cell.topology]
        products = [(other.record.work.matmul_flops_per_s or 0.0, other.shown) for other in beside if other.record.work]
        best, name = max(products, key=lambda pair: pair[0])
        native = cell.device is None or cell.device.fp16_native is not False
        why = "The product of these runs was slower than the training, and the records do not say why"
        # Where the framework emulates fp16, its products are as fast as those of fp32.
        if row.precision == "fp16" and not native and cell.framework not in emulating(cell.group.summary):
            why = "Likely cause: this device has no fp16 units, so a large product takes long in fp16 there"
        elif best > FASTER * product:
            why = f"{cell.shown} multiplies large matrices slowly here; {name} reaches {scaled(best)}FLOP/s"
        elif share <= fewer(row):
            why = f"Possible cause: a convolution can take up to {WINOGRAD} times fewer multiplications than counted"
        text = (
            f"training does {scaled(work.flops_per_s)}FLOP/s on a device, which is {reading(share)} times the "
            f"{scaled(product)}FLOP/s of a large matrix product in the same runs. {why}. The throughput does not "
            "depend on this product"
        )
        yield Doubt(PRODUCT, row, text)

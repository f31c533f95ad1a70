"""Find results of others that are like our cells, and say what differs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from throughline import gpus, published
from throughline.numbers import percent, scaled
from throughline.records import Cell, Result, Summary
from throughline.report.analysis import plausibility
from throughline.report.analysis.cells import Group, Row, switches
from throughline.report.analysis.plausibility import Doubt
from throughline.statistics import Range

UNITS = ("samples/s", "images/s")


@dataclass(frozen=True)
class Beside:
    """One of our rows, and a row of others that is like it.

    samples_per_s: their speed. ratio: our median divided by it, with its `range`. differs: what differs between the
    two. doubts: what is doubtful about their row.
    """

    group: Group
    row: Row
    other: Result
    samples_per_s: float
    ratio: float
    range: Range
    differs: tuple[str, ...]
    doubts: tuple[str, ...]


def beside(groups: Iterable[Group], imported: Sequence[Result], doubts: Sequence[Doubt]) -> Iterator[Beside]:
    """Yield every measured row with each row of others that is like it. `doubts` are those about imported rows."""
    others: defaultdict[tuple[str, str | None, int | None], list[Result]] = defaultdict(list)
    for other in (*imported, *published.rows()):
        others[_size(other)].append(other)
    for group in groups:
        for row in group.measured:
            own = of_row(group, row)
            for other in others[_size(own)] if own else ():
                speed = other.samples_per_s
                if own and row.cell and row.cell.median_speed and speed and is_like(own, other):
                    values = [value for value in row.cell.values if value is not None]
                    yield Beside(
                        group,
                        row,
                        other,
                        sum(speed) / 2,
                        row.cell.median_speed / (sum(speed) / 2),
                        (min(values) / speed[1], max(values) / speed[0]),
                        tuple(differences(own, other)),
                        tuple(doubt.text for doubt in (*doubts, *of_published()) if doubt.row is other),
                    )


def is_like(own: Result, other: Result) -> bool:
    """True if two rows train the same model at the same size and precision on as many devices of one kind.

    A value that the other row does not state counts as equal; `differences` names it.
    """
    sizes: list[tuple[Any, Any]] = [(own.sequence, other.sequence), (own.batch_per_device, other.batch_per_device)]
    sizes += [(own.parameters.get(name), value) for name, value in other.parameters.items()]
    same = _size(own) == _size(other) and _kind(own) == _kind(other)
    return same and all(here == there for here, there in sizes if there is not None)


def _size(row: Result) -> tuple[str, str | None, int | None]:
    return row.model, row.precision, row.devices


def differences(own: Result, other: Result) -> Iterator[str]:
    """Yield what differs between two rows: their value, and our value too if it is short."""
    for name in ("device", "nodes", "framework", "software", "batch_per_device", "accumulate", "options", "date"):
        here, there = getattr(own, name), getattr(other, name)
        if here != there and not (name == "device" and _gpu(own) and _gpu(own) is _gpu(other)):
            ours = "" if name in ("software", "options", "date") else f" (ours {here})"
            yield f"{name.replace('_', ' ')} {there or 'not stated'}{ours}"
    if other.convention:
        yield f"figure: {other.convention}"


def own_rows(groups: Iterable[Group]) -> list[Result]:
    """Return our measured rows, each followed by a row with the matrix product of the same runs."""
    made = []
    for group in groups:
        for row in group.measured:
            own = of_row(group, row)
            rate = row.cell.work.matmul_flops_per_s if row.cell and row.cell.work else None
            made += [own] if own else []
            if own and rate:
                product = {"model": "matmul", "value": repr(rate / 1e12), "unit": "TFLOPS", "printed": {}}
                made.append(own.model_copy(update=product))
    return made


def of_row(group: Group, row: Row) -> Result | None:
    """Return one of our cells as a row of results, unrounded; None if it was not measured or has a unit of its own."""
    summary, cell = group.summary, row.cell
    if not (summary and cell and cell.median_speed and group.unit in UNITS) or cell.simulated:
        return None
    parameters = dict(summary.parameters)
    sequence = parameters.pop("sequence", None)
    return Result(
        origin="measured",
        source=f"{group.benchmark} {group.name}",
        date=(cell.started or "")[:10] or None,
        framework=row.framework,
        software=_software(summary, row.framework),
        model=summary.model,
        parameters=parameters,
        sequence=sequence if isinstance(sequence, int) else None,
        precision=group.precision,  # type: ignore[arg-type]
        device=summary.device.name if summary.device else None,
        nodes=row.topology.nodes,
        devices=row.topology.world,
        batch_per_device=cell.batch_size_per_device,
        accumulate=summary.options.accumulate,
        global_batch=cell.global_batch,
        options=switches(summary),
        convention=f"median of {cell.n_ok} runs",
        value=repr(cell.median_speed),
        unit=group.unit,  # type: ignore[arg-type]
        printed=_printed(cell),
    )


def doubts_of(groups: Sequence[Group], imported: Sequence[Result]) -> list[Doubt]:
    """Return the doubts about our rows and the imported rows."""
    own = [doubt for group in groups for doubt in _above_own_product(group)]
    found = plausibility.doubts([*own_rows(groups), *imported])
    said = [(doubt.rule, doubt.row) for doubt in own]
    return [*(doubt for doubt in found if (doubt.rule, doubt.row) not in said), *own]


def _above_own_product(group: Group) -> Iterator[Doubt]:
    """Yield the rows that train with more FLOP/s than the matrix product of the same runs, with the likely cause."""
    told = [(row, row.cell.work) for row in group.measured if row.cell and row.cell.work]
    for row, work in told:
        own, product, share = of_row(group, row), work.matmul_flops_per_s, work.matmul_share
        if own is None or product is None or share is None or share <= 1:
            continue
        same = ((one.shown, other.matmul_flops_per_s or 0.0) for one, other in told if one.topology == row.topology)
        name, best = max(same, key=lambda one: one[1])
        if best > plausibility.FASTER * product:
            cause = f"{row.shown} multiplies large matrices slowly here; {name} reaches {scaled(best)}FLOP/s"
        elif share <= plausibility.fewer(own):
            cause = f"a convolution can take up to {plausibility.WINOGRAD} times fewer multiplications than are counted"
        else:
            cause = "something else used the device while the product was measured, after the window"
        text = (
            f"share of matmul {percent(share, 1)}: training does {scaled(work.flops_per_s)}FLOP/s on a device, and a "
            f"large matrix product in the same runs {scaled(product)}FLOP/s. Likely cause: {cause}. The throughput "
            "does not depend on this product"
        )
        yield Doubt(plausibility.ABOVE_PRODUCT, own, text)


@cache
def of_published() -> tuple[Doubt, ...]:
    """Return the doubts about the published rows that ship with Throughline."""
    return tuple(plausibility.doubts(published.rows()))


def _printed(cell: Cell) -> dict[Any, str]:
    work = cell.work
    share, rate = (work.mfu, work.flops_per_s) if work else (None, None)
    figures = {"mfu": share, "tflops": rate / 1e12 if rate else None}
    return {name: repr(value) for name, value in figures.items() if value}


def _software(summary: Summary, framework: str) -> str | None:
    libraries = (summary.environment.get(framework) or {}).get("framework") or {}
    return ", ".join(f"{name} {version}" for name, version in libraries.items()) or None


def _gpu(row: Result) -> gpus.Gpu | None:
    return gpus.find(row.device) if row.device else None


def _kind(row: Result) -> str | None:
    gpu = _gpu(row)
    return gpu.kind if gpu else row.device

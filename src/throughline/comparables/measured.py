"""One of our own cells, in the form in which it is compared with results of others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughline.records import CellRecord, Result
from throughline.spec import Topology


@dataclass(frozen=True)
class Measured:
    """A cell that was measured here.

    result: the cell as a row of results, unrounded. table: the name of its table, such as `bz32_fp32`. shown: its
    framework as tables name it. batch: such as `batch 32`. emulated: True if the device has no units for the precision.
    """

    result: Result
    cell: CellRecord
    table: str
    topology: Topology
    shown: str
    batch: str
    emulated: bool


def results(cells: Iterable[Measured]) -> Iterator[Result]:
    """Yield every cell's row, followed by a row with the matrix product of the same runs if it was measured."""
    for measured in cells:
        yield measured.result
        if (work := measured.cell.work) and work.matmul_flops_per_s:
            value = repr(work.matmul_flops_per_s / 1e12)
            yield measured.result.model_copy(update={"model": "matmul", "value": value, "unit": "TFLOPS"})

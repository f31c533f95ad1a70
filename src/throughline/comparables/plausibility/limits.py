"""Rules about limits: more speed or memory than a device has, or than a large matrix product reaches on it."""

from collections.abc import Iterator, Sequence

from throughline.comparables import flop_conventions
from throughline.comparables.measured import Measured
from throughline.comparables.plausibility.rows import FASTER, Doubt, Rows, peak
from throughline.numbers import reading, scaled
from throughline.records import Result, ends

WINOGRAD = 2.25
"""A 3 x 3 convolution can take this many times fewer multiplications than its definition (Winograd, F(2 x 2))."""
DATASHEET, PRODUCT = "above the datasheet", "above the measured matrix product"
"""The names of rules."""
FP = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


def datasheet(rows: Rows) -> Iterator[Doubt]:
    """Find more speed than the device's datasheet allows, or more memory than it has."""
    for row in rows:
        gpu, mfu, memory = row.gpu, row.printed.get("mfu"), row.printed.get("memory_mib")
        if mfu and ends(mfu)[0] > 1 and (not gpu or not row.printed.get("tflops")):
            yield Doubt(DATASHEET, row, f"printed MFU {mfu}: more than all of the peak")
        if gpu and memory and ends(memory)[0] * 2**20 > gpu.memory_bytes:
            text = f"{memory} MiB of a device with {gpu.memory_bytes / 2**20:.0f} MiB ({gpu.name})"
            yield Doubt(DATASHEET, row, text)
        most, rate = peak(row), _rate(row)
        if gpu and most and rate and rate[0] > most * fewer(row):
            fits = [precision for precision in FP if rate[0] <= (gpu.peak_flops_per_s[precision] or 0.0)]
            maybe = f"; it would fit {' or '.join(fits)}" if fits else ""
            text = f"{rate[0] / 1e12:.4g} TFLOPS{rate[1]}, and {gpu.name} has {most / 1e12:g} in {row.precision}{maybe}"
            yield Doubt(DATASHEET, row, text)


def products(rows: Rows) -> Iterator[Doubt]:
    """Find more speed than a large matrix product reaches on the device, in the same table or as published for it."""
    measured: dict[tuple[str, str | None, str | None], tuple[float, str]] = {}
    for row in rows:
        if row.model == "matmul" and row.unit == "TFLOPS" and row.value:
            key = row.source, row.device, row.precision
            measured[key] = max(measured.get(key, (0.0, "")), (ends(row.value)[1] * 1e12, "the same source"))
    for row in rows:
        gpu, rate = row.gpu, _rate(row)
        if not rate or row.model == "matmul":
            continue
        of_gpu = gpu.matmul_flops_per_s if gpu else {}
        wanted = row.precision or "bf16"
        best, who = measured.get((row.source, row.device, row.precision)) or (
            of_gpu.get("bf16" if wanted == "fp16" else wanted, 0.0),
            gpu.matmul_source if gpu else None,
        )
        if best and rate[0] > best * fewer(row):
            unsaid = "" if row.precision else "; its precision is not stated, so part of it was lower than bf16"
            text = f"{rate[0] / 1e12:.4g} TFLOPS{rate[1]}; a product reaches {best / 1e12:.4g} in {wanted} ({who})"
            yield Doubt(PRODUCT, row, text + unsaid)


def above_own_product(cells: Sequence[Measured]) -> Iterator[Doubt]:
    """Find cells that train with more FLOP/s than the matrix product of the same runs, and say why if it is known."""
    for measured in cells:
        work, row = measured.cell.work, measured.result
        product, share = (work.matmul_flops_per_s, work.matmul_share) if work else (None, None)
        if work is None or product is None or share is None or share * row.lowest <= 1:
            continue
        same = [cell for cell in cells if (cell.table, cell.topology) == (measured.table, measured.topology)]
        products = [(cell.cell.work.matmul_flops_per_s or 0.0, cell.shown) for cell in same if cell.cell.work]
        best, name = max(products, key=lambda pair: pair[0])
        why = "The product of these runs was slower than the training, and the records do not say why"
        if measured.emulated:
            why = (
                f"Likely cause: this device has no {row.precision} units, so a large product takes long in "
                f"{row.precision} there"
            )
        elif best > FASTER * product:
            why = f"{measured.shown} multiplies large matrices slowly here; {name} reaches {scaled(best)}FLOP/s"
        elif share <= fewer(row):
            why = f"Possible cause: a convolution can take up to {WINOGRAD} times fewer multiplications than counted"
        text = (
            f"training does {scaled(work.flops_per_s)}FLOP/s on a device, which is {reading(share)} times the "
            f"{scaled(product)}FLOP/s of a large matrix product in the same runs. {why}. The throughput does not "
            "depend on this product"
        )
        yield Doubt(PRODUCT, row, text)


def fewer(row: Result) -> float:
    """Return how many times a model's FLOPs may exceed those that its kernels do."""
    return WINOGRAD if row.unit == "images/s" or "classes" in row.parameters else 1.0


def _rate(row: Result) -> tuple[float, str] | None:
    """Return the least FLOP/s of a device, and how they were derived.

    They are the printed TFLOPS if that is the row's unit, or else follow from the convention that counts least. Of a
    row with repeats they are those of the slowest one: a row that exceeds a limit within its noise is plausible.
    """
    if row.unit == "TFLOPS" and row.value:
        return ends(row.value)[0] * 1e12, ""
    each, speed = flop_conventions.of_row(row), row.samples_per_s
    if each and speed and row.devices:
        least = min(each.values())
        counted = f" ({row.shown} {row.unit} x {least / 1e9:.4g} GFLOP a sample)"
        return least * speed[0] * row.lowest / row.devices, counted
    return None

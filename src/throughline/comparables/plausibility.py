"""Rules that find training speeds that cannot be true or are implausible, in rows that were measured or imported.

A rule knows neither sources nor single rows. The printed digits of a figure decide how exactly it is checked. Each
doubt says how it was derived, so that a reader can repeat it by hand. Published rows have their doubts in a column of
resources/published.csv. `implausible` writes this column: it applies these rules, and those about the other
figures that a publication prints.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from throughline import grouping
from throughline.comparables import flop_conventions
from throughline.records import Result, RunRecord, ends

FASTER = 1.5
"""Devices whose peaks differ by more than this should not be equally fast."""
ALIKE = 0.01
"""Devices whose speeds differ by no more than this share count as equally fast."""
SAYS_MUCH = 4
"""Two equal figures with this many digits or more are hardly equal by chance."""
WINOGRAD = 2.25
"""A 3 x 3 convolution can take this many times fewer multiplications than its definition (Winograd, F(2 x 2))."""
SPEEDUP = "speedup over devices"
DATASHEET, PRODUCT = "above the datasheet", "above the measured matrix product"
DIFFER = "equal results that should differ"
"""The names of rules."""
FP = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")

Rows = Sequence[Result]


@dataclass(frozen=True)
class Doubt:
    """What is wrong with a row, and how that was derived."""

    rule: str
    row: Result
    text: str


def doubts(rows: Rows) -> list[Doubt]:
    """Return every doubt about these rows, rule by rule."""
    return [doubt for rule in (speedups, above_datasheet, above_products, equal) for doubt in rule(rows)]


def sums(run: RunRecord) -> list[str]:
    """Return what does not add up in the figures of a whole job."""
    job, size = run.spec.job, run.spec.size
    figures = {figure.name: figure.value for figure in run.figures if figure.value is not None}
    return job.faults(size.replicas, size.batch_per_replica, size.gradient_accumulation, figures) if job else []


def more_than_devices(speedup: float, times: float) -> str | None:
    """Return why a speedup over a baseline with `times` fewer devices is impossible; None if it is possible."""
    return f"speedup {speedup:.4g} is more than the {times:g} devices can give" if speedup > times else None


def speedups(rows: Rows) -> Iterator[Doubt]:
    """Find speedups that are more than the devices can give, and more devices that are slower."""
    for table in series(rows):
        for row in table:
            base = baseline(row, table)
            times = row.devices / base.devices if base and row.devices and base.devices else 1.0
            ratio = _possible(row, base) if base and times > 1 and row.unit != "ms" else None
            if base and ratio and (why := more_than_devices(ratio[0], times)):
                yield Doubt(SPEEDUP, row, f"{why}: {row.shown} / {base.shown} {row.unit}")
        for before, after in pairwise(table):
            slower = _possible(after, before)
            if after.devices != before.devices and slower and slower[1] < 1 and before.unit != "ms":
                do = "1 does" if before.devices == 1 else f"{before.devices} do"
                text = f"{after.devices} devices do {after.shown} {after.unit}, {do} {before.shown}"
                yield Doubt("more devices, slower", after, text)


def series(rows: Rows) -> Iterator[list[Result]]:
    """Yield the rows of each table of topologies, the fewest devices first."""

    def table(row: Result) -> tuple[Any, ...]:
        what = row.origin, row.source, row.date, row.framework, row.software, row.model, tuple(row.parameters.items())
        return *what, row.sequence_length, row.precision, row.device, row.batch, row.options, row.unit

    for rows_of_table in grouped([row for row in rows if row.devices], table, at_least=1):
        yield sorted(rows_of_table, key=lambda row: row.devices or 0)


def baseline(row: Result, table: Rows) -> Result | None:
    """Return the row that the speedup of `row` is relative to; None if it is `row` itself."""
    first = next((other for other in table if other.value is not None and other.convention == row.convention), row)
    return first if first is not row else None


def _possible(row: Result, base: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another row, at least and at most: by the digits, or by the repeats.

    A row that exceeds a limit within the noise of its repeats is plausible. None if a row of our own has a single
    repeat: then its noise is not known.
    """
    if any(each.origin == "measured" and not each.repeats for each in (row, base)):
        return None
    if row.repeats and base.repeats:
        return row.repeats[0] / base.repeats[1], row.repeats[1] / base.repeats[0]
    return quotient(row, base)


def above_datasheet(rows: Rows) -> Iterator[Doubt]:
    """Find more FLOP/s than the device's datasheet allows."""
    for row in rows:
        gpu, most, rate = row.gpu, peak(row), _rate(row)
        if gpu and most and rate and rate[0] > most * fewer(row):
            fits = [precision for precision in FP if rate[0] <= (gpu.peak_flops_per_s[precision] or 0.0)]
            maybe = f"; it would fit {' or '.join(fits)}" if fits else ""
            text = f"{rate[0] / 1e12:.4g} TFLOPS{rate[1]}, and {gpu.name} has {most / 1e12:g} in {row.precision}{maybe}"
            yield Doubt(DATASHEET, row, text)


def above_products(rows: Rows) -> Iterator[Doubt]:
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


def equal(rows: Rows) -> Iterator[Doubt]:
    """Find equal results that should differ: one log for two rows, the same digits in unlike rows, unlike devices."""
    logs: dict[str, Result] = {}
    values: dict[tuple[Any, ...], Result] = {}
    for row in rows:
        if row.origin == "measured":
            continue
        if row.evidence:
            first = logs.setdefault(row.evidence, row)
            if first is not row and _where(first) != _where(row):
                yield Doubt(DIFFER, row, f"the same proof as for {_where(first)}: {row.evidence}")
        if row.value and len(row.value.replace(".", "").strip("0")) >= SAYS_MUCH and row.unit != "ms":
            first = values.setdefault((row.value, row.unit, row.model, row.sequence_length), row)
            if first is not row and _unlike(first, row):
                text = f"{row.value} {row.unit}, digit by digit as {first.framework}, {_where(first)} ({first.source})"
                yield Doubt(DIFFER, row, text)
    for alike in grouped(rows, lambda row: (configuration(row, device=False), row.devices)):
        for pair in combinations(alike, 2):
            slow, fast = sorted(pair, key=lambda row: peak(row) or 0)
            ratio, peaks = quotient(fast, slow), (peak(slow), peak(fast))
            if ratio and peaks[0] and peaks[1] and peaks[1] > FASTER * peaks[0] and meet(ratio, (1, 1), ALIKE):
                text = (
                    f"{fast.shown} {fast.unit}, on {slow.device} {slow.shown}: the peak is {peaks[1] / peaks[0]:.2f} "
                    "times as high; the device is probably not what limits"
                )
                yield Doubt(DIFFER, fast, text)


def _unlike(row: Result, other: Result) -> bool:
    """True if two rows differ in something that changes the speed."""
    if row.framework != other.framework:
        return row.devices == other.devices and row.precision == other.precision
    return row.source == other.source and _where(row) != _where(other)


def _where(row: Result) -> str:
    parts = f"{row.devices} devices", row.precision, row.batch and f"batch {row.batch}"
    return ", ".join(str(part) for part in parts if part)


def quotient(row: Result, base: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another row, at least and at most."""
    speed, slower = row.samples_per_s, base.samples_per_s
    return (speed[0] / slower[1], speed[1] / slower[0]) if speed and slower else None


def meet(first: tuple[float, float], second: tuple[float, float], share: float = 1e-9) -> bool:
    """True if two ranges have a value in common, or lie within a share of each other."""
    return first[0] <= second[1] * (1 + share) and second[0] * (1 - share) <= first[1]


def peak(row: Result) -> float | None:
    """Return the dense peak of the row's device at its precision, in FLOP/s; None if it is not known."""
    return row.gpu.peak_flops_per_s.get(row.precision or "") if row.gpu else None


def fewer(row: Result) -> float:
    """Return how many times a model's FLOPs may exceed those that its kernels do."""
    return WINOGRAD if row.unit == "images/s" or "classes" in row.parameters else 1.0


def configuration(row: Result, *, options: bool = True, device: bool = True) -> tuple[Any, ...]:
    """Return everything that decides a row's speed, as far as the row states it."""
    what = row.source, row.framework, row.software, row.model, tuple(row.parameters.items()), row.sequence_length
    size = row.nodes, row.devices, row.batch, row.gradient_accumulation, row.global_batch
    return *what, row.precision, *size, row.options if options else "", row.device if device else ""


def grouped(rows: Rows, key: Callable[[Result], Any], at_least: int = 2) -> list[list[Result]]:
    """Return the groups of rows that have the same key, if they have so many rows."""
    return [group for group in grouping.grouped(rows, key).values() if len(group) >= at_least]


def _rate(row: Result) -> tuple[float, str] | None:
    """Return the least FLOP/s of a device, and how they were derived.

    They are the printed TFLOPS if that is the row's unit, or else follow from the convention that counts least. Of a
    row with repeats they are those of the slowest repeat: a row that exceeds a limit within its noise is plausible.
    """
    if row.unit == "TFLOPS" and row.value:
        return ends(row.value)[0] * 1e12, ""
    each, speed = flop_conventions.of_row(row), row.samples_per_s
    if each and speed and row.devices:
        least = min(each.values())
        counted = f" ({row.shown} {row.unit} x {least / 1e9:.4g} GFLOP a sample)"
        return least * speed[0] * row.lowest / row.devices, counted
    return None

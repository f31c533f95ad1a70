"""Rules that find training speeds that cannot be true or are doubtful, whoever measured them.

A rule knows neither sources nor single rows. The printed digits of a figure decide how exactly it is checked. Each
doubt says how it was derived, so that a reader can repeat it by hand.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import Any

from throughline import gpus
from throughline.comparables import flop_conventions, published
from throughline.comparables.measured import Measured, results
from throughline.numbers import percent, scaled
from throughline.records import Result, RunRecord, ends

FORMULA = 0.01
"""Two counts of the same FLOPs may differ by this share: in how a vocabulary is padded, or whether norms count."""
WINOGRAD = 2.25
"""A 3 x 3 convolution can take this many times fewer multiplications than its definition (Winograd, F(2 x 2))."""
ALIKE = 0.01
"""Devices whose speeds differ by no more than this share count as equally fast."""
FASTER = 1.5
"""Devices whose peaks differ by more than this should not be equally fast."""
SAYS_MUCH = 4
"""Two equal figures with this many digits or more are hardly equal by chance."""
ABOVE_PRODUCT = "above the measured matrix product"
"""The name of a rule."""
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
    return [doubt for rule in RULES for doubt in rule(rows)]


@cache
def about_published() -> tuple[Doubt, ...]:
    """Return the doubts about the published rows that ship with Throughline."""
    return tuple(doubts(published.rows()))


def about_measured(cells: Sequence[Measured], imported: Rows) -> list[Doubt]:
    """Return the doubts about our own cells and the imported rows."""
    above = list(above_own_product(cells))
    explained = [(doubt.rule, doubt.row) for doubt in above]
    by_rules = doubts([*results(cells), *imported])
    return [*(doubt for doubt in by_rules if (doubt.rule, doubt.row) not in explained), *above]


def more_than_devices(speedup: float, times: float) -> str | None:
    """Return why a speedup over a baseline with `times` fewer devices is impossible; None if it is possible."""
    if speedup <= times:
        return None
    return f"speedup {speedup:.4g} is more than the {times:g} devices can give"


def sums(run: RunRecord) -> list[str]:
    """Return what does not add up in the figures of a whole job."""
    asked, size = run.spec.job, run.spec.size
    if not asked:
        return []
    told = {one.name: one.value for one in run.figures if one.value is not None}
    return asked.faults(size.replicas, size.batch_per_replica, size.accumulate, told)


def _table(row: Result) -> tuple[Any, ...]:
    """Return what the rows of one table of topologies have in common."""
    what = row.origin, row.source, row.date, row.framework, row.software, row.model, tuple(row.parameters.items())
    return *what, row.sequence, row.precision, row.device, row.batch_per_device, row.options, row.unit


def _series(rows: Rows) -> Iterator[list[Result]]:
    """Yield the rows of each table, the fewest devices first."""
    tables: defaultdict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for row in rows:
        if row.devices:
            tables[_table(row)].append(row)
    for table in tables.values():
        yield sorted(table, key=lambda row: row.devices or 0)


def _base(row: Result, table: Rows) -> Result | None:
    """Return the row that the speedup of `row` is relative to."""
    known = [one for one in table if one.value is not None and one.convention == row.convention]
    return known[0] if known and known[0] is not row else None


def _quotient(row: Result, base: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another one, at least and at most."""
    one, other = row.samples_per_s, base.samples_per_s
    return (one[0] / other[1], one[1] / other[0]) if one and other else None


def speedups(rows: Rows) -> Iterator[Doubt]:
    """Find speedups that are more than the devices can give, and more devices that are slower."""
    for table in _series(rows):
        for row in table:
            base = _base(row, table)
            found = _quotient(row, base) if base else None
            printed = row.printed.get("speedup")
            if base and found and row.devices and base.devices:
                times = row.devices / base.devices
                why, how = more_than_devices(found[0], times), f"{row.shown} / {base.shown} {row.unit}"
                if row.unit != "ms" and times > 1 and why:
                    yield Doubt("speedup over devices", row, f"{why}: {how}")
            elif printed and row.devices and base is None and (why := more_than_devices(ends(printed)[0], row.devices)):
                yield Doubt("speedup over devices", row, f"{why}: printed {printed}")
        for before, after in pairwise(table):
            slower = _quotient(after, before)
            if after.devices != before.devices and slower and slower[1] < 1 and before.unit != "ms":
                text = f"{after.devices} devices do {after.shown} {after.unit}, {_do(before.devices)} {before.shown}"
                yield Doubt("more devices, slower", after, text)


def _do(devices: int | None) -> str:
    return "1 does" if devices == 1 else f"{devices} do"


def printed_speedups(rows: Rows) -> Iterator[Doubt]:
    """Find printed speedups that do not follow from the printed speeds."""
    for table in _series(rows):
        for row in table:
            printed, base = row.printed.get("speedup"), _base(row, table)
            found = _quotient(row, base) if base and base.printed.get("speedup") in ("1", "1.0", "1.00") else None
            if printed and base and found and not _meet(ends(printed), found):
                cut = " (cut off, not rounded)" if _meet((float(printed), _cut(printed)), found) else ""
                text = f"printed speedup {printed}: {row.shown} / {base.shown} = {sum(found) / 2:.4g}{cut}"
                yield Doubt("its own arithmetic", row, text)


def steps(rows: Rows) -> Iterator[Doubt]:
    """Find seconds per step and samples per second that do not fit the printed batch."""
    for row in rows:
        seconds, speed = row.printed.get("seconds_per_step"), row.samples_per_s
        if seconds and speed and row.global_batch:
            low, high = ends(seconds)
            if not _meet((low * speed[0], high * speed[1]), (row.global_batch, row.global_batch)):
                text = f"{seconds} s a step x {row.shown} {row.unit}, and the batch is {row.global_batch}"
                yield Doubt("its own arithmetic", row, text)


def flops(rows: Rows) -> Iterator[Doubt]:
    """Find printed TFLOPS that no convention of counting gives, and MFUs that do not follow from them."""
    for row in rows:
        told, mfu = row.printed.get("tflops"), row.printed.get("mfu")
        each, speed, gpu = _flops_per_sample(row), row.samples_per_s, _gpu(row)
        if told and each and speed and row.devices:
            counted = {name: [end * one / row.devices / 1e12 for end in speed] for name, one in each.items()}
            if not any(_meet(ends(told), (low, high), FORMULA) for low, high in counted.values()):
                by = ", ".join(f"{name} {sum(range_) / 2:.4g}" for name, range_ in counted.items())
                text = f"printed {told} TFLOPS; {row.shown} {row.unit} on {row.devices} devices are: {by}"
                yield Doubt("its own arithmetic", row, text)
        peak = gpu.peak_flops_per_s.get(row.precision or "") if gpu else None
        if told and mfu and peak:
            low, high = (end * 1e12 / peak for end in ends(told))
            if not _meet(ends(mfu), (low, high)):
                sparse = " (the peak with sparsity was taken)" if _meet(ends(mfu), (low / 2, high / 2)) else ""
                text = f"printed MFU {mfu}: {told} of {peak / 1e12:g} TFLOPS are {(low + high) / 2:.4f}{sparse}"
                yield Doubt("its own arithmetic", row, text)


def changes(rows: Rows) -> Iterator[Doubt]:
    """Find printed changes that do not follow from the figures with and without an option."""
    alone = {_configuration(row, options=False): row for row in rows if not _changed(row)}
    for row in filter(_changed, rows):
        base = alone.get(_configuration(row, options=False))
        if base is None:
            continue
        memory, before = row.printed.get("memory_mib"), base.printed.get("memory_mib")
        facts: list[tuple[str, str | None, str | None, bool]] = [
            ("memory_change_mib", memory, before, False),
            ("memory_change_share", memory, before, True),
            ("speed_change_share", row.value, base.value, True),
        ]
        for name, after, first, is_share in facts:
            printed = row.printed.get(name)  # type: ignore[call-overload]
            if printed and after and first:
                change = float(after) - float(first)
                found = change / float(first) if is_share else change
                if abs(found - float(printed)) > (ends(printed)[1] - float(printed)) * (1 + 1e-9):
                    by = f" / {first} = {found:.4f}" if is_share else f" = {found:g}"
                    words, left = name.replace("_", " "), f"{after} - {first}"
                    text = f"printed {words} {printed}: {f'({left})' if is_share else left}{by}"
                    yield Doubt("its own arithmetic", row, text)


def parameters(rows: Rows) -> Iterator[Doubt]:
    """Find printed numbers of parameters that the model does not have."""
    for row in rows:
        printed = row.printed.get("parameters_billion")
        found = flop_conventions.parts(row.model, {"sequence": row.sequence, **row.parameters}) if printed else None
        if printed and found:
            count = found[0].parameters
            if not _meet(ends(printed), (count / 1e9, count / 1e9), FORMULA):
                binary = ", which is x 2^30" if _meet(ends(printed), (count / 2**30,) * 2, FORMULA) else ""
                text = f"printed {printed} billion parameters{binary}; {row.model} has {count / 1e9:.4g} x 10^9"
                yield Doubt("its own arithmetic", row, text)


def datasheet(rows: Rows) -> Iterator[Doubt]:
    """Find more speed than the device's datasheet allows, or more memory than it has."""
    for row in rows:
        gpu, mfu, memory = _gpu(row), row.printed.get("mfu"), row.printed.get("memory_mib")
        if mfu and ends(mfu)[0] > 1 and (not gpu or not row.printed.get("tflops")):
            yield Doubt("above the datasheet", row, f"printed MFU {mfu}: more than all of the peak")
        if gpu and memory and ends(memory)[0] * 2**20 > gpu.memory_bytes:
            text = f"{memory} MiB of a device with {gpu.memory_bytes / 2**20:.0f} MiB ({gpu.name})"
            yield Doubt("above the datasheet", row, text)
        peak = gpu.peak_flops_per_s.get(row.precision or "") if gpu else None
        rate = _rate(row)
        if gpu and peak and rate and rate[0] > peak * fewer(row):
            fits = [one for one in FP if (other := gpu.peak_flops_per_s[one]) and rate[0] <= other]
            maybe = f"; it would fit {' or '.join(fits)}" if fits else ""
            text = f"{rate[0] / 1e12:.4g} TFLOPS{rate[1]}, and {gpu.name} has {peak / 1e12:g} in {row.precision}{maybe}"
            yield Doubt("above the datasheet", row, text)


def products(rows: Rows) -> Iterator[Doubt]:
    """Find more speed than a large matrix product reaches on the device, in the same table or as published for it."""
    measured: dict[tuple[str, str | None, str | None], tuple[float, str]] = {}
    for row in rows:
        if row.model == "matmul" and row.unit == "TFLOPS" and row.value:
            key = row.source, row.device, row.precision
            measured[key] = max(measured.get(key, (0.0, "")), (ends(row.value)[1] * 1e12, "the same source"))
    for row in rows:
        gpu, rate = _gpu(row), _rate(row)
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
            yield Doubt(ABOVE_PRODUCT, row, text + unsaid)


def above_own_product(cells: Sequence[Measured]) -> Iterator[Doubt]:
    """Find cells that train with more FLOP/s than the matrix product of the same runs, and the likely cause."""
    for measured in cells:
        work, row = measured.cell.work, measured.result
        product, share = (work.matmul_flops_per_s, work.matmul_share) if work else (None, None)
        if work is None or product is None or share is None or share <= 1:
            continue
        same = [cell for cell in cells if (cell.table, cell.topology) == (measured.table, measured.topology)]
        products = [(cell.cell.work.matmul_flops_per_s or 0.0, cell.shown) for cell in same if cell.cell.work]
        best, name = max(products, key=lambda pair: pair[0])
        if best > FASTER * product:
            cause = f"{measured.shown} multiplies large matrices slowly here; {name} reaches {scaled(best)}FLOP/s"
        elif share <= fewer(row):
            cause = f"a convolution can take up to {WINOGRAD} times fewer multiplications than are counted"
        else:
            cause = "something else used the device while the product was measured, after the window"
        text = (
            f"share of matmul {percent(share, 1)}: training does {scaled(work.flops_per_s)}FLOP/s on a device, and a "
            f"large matrix product in the same runs {scaled(product)}FLOP/s. Likely cause: {cause}. The throughput "
            "does not depend on this product"
        )
        yield Doubt(ABOVE_PRODUCT, row, text)


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
                text = f"the same proof as for {_where(first)}: {row.evidence}"
                yield Doubt("equal results that should differ", row, text)
        if row.value and len(row.value.replace(".", "").strip("0")) >= SAYS_MUCH and row.unit != "ms":
            key = row.value, row.unit, row.model, row.sequence
            first = values.setdefault(key, row)
            if first is not row and _unlike(first, row):
                text = f"{row.value} {row.unit}, digit by digit as {first.framework}, {_where(first)} ({first.source})"
                yield Doubt("equal results that should differ", row, text)
    yield from _same_on_faster(rows)


def _same_on_faster(rows: Rows) -> Iterator[Doubt]:
    """Find devices with different peaks that are equally fast."""
    for alike in _grouped(rows, lambda row: (_configuration(row, device=False), row.devices)):
        for one, other in combinations(alike, 2):
            slow, fast = sorted((one, other), key=lambda row: _peak(row) or 0)
            found, peaks = _quotient(fast, slow), (_peak(slow), _peak(fast))
            if found and peaks[0] and peaks[1] and peaks[1] > FASTER * peaks[0] and _meet(found, (1, 1), ALIKE):
                times = peaks[1] / peaks[0]
                text = f"{fast.shown} {fast.unit}, on {slow.device} {slow.shown}: the peak is {times:.2f} times as high"
                yield Doubt("equal results that should differ", fast, f"{text}; the device is probably not what limits")


def unequal(rows: Rows) -> Iterator[Doubt]:
    """Find results of one configuration that differ, unless they are imported: repeats among logs may differ."""
    for alike in _grouped([row for row in rows if row.origin != "imported"], _configuration):
        first, *others = alike
        for row in others:
            found = _quotient(row, first) or _times(row, first)
            if found and not _meet(found, (1, 1)):
                shown = [one.shown or f"{one.printed.get('seconds_per_step')} s" for one in (row, first)]
                share = percent(sum(found) / 2 - 1, 1)
                text = f"{shown[0]} and {shown[1]} ({first.place}) of one configuration: {share} apart"
                yield Doubt("unequal results that should be equal", row, text)


def counting(rows: Rows) -> Iterator[Doubt]:
    """Find FLOPs of a sample that two tables of one source count differently."""
    for alike in _grouped(rows, lambda row: (row.source, row.model, row.sequence, row.precision, row.device)):
        told = [row for row in alike if row.printed.get("tflops") and row.samples_per_s and row.devices]
        for before, after in pairwise(sorted(told, key=lambda row: row.date or "")):
            speed = _middle(after) / _middle(before)
            shown = float(after.printed["tflops"]) / float(before.printed["tflops"])
            if before.devices == after.devices and abs(shown / speed - 1) > 3 * FORMULA:
                text = (
                    f"{percent(speed - 1)} more speed than {before.software}, {percent(shown - 1)} more TFLOPS "
                    f"({before.printed['tflops']} to {after.printed['tflops']}): FLOPs are counted in another way"
                )
                yield Doubt("unequal results that should be equal", after, text)


RULES: tuple[Callable[[Rows], Iterable[Doubt]], ...] = (
    speedups, printed_speedups, steps, flops, changes, parameters, datasheet, products, equal, unequal, counting,
)  # fmt: skip


def _meet(one: tuple[float, float], other: tuple[float, float], share: float = 1e-9) -> bool:
    """True if two ranges have a value in common, or lie within a share of each other."""
    return one[0] <= other[1] * (1 + share) and other[0] * (1 - share) <= one[1]


def _cut(printed: str) -> float:
    """Return the most that a printed number can have been if its further digits were cut off."""
    return 2 * ends(printed)[1] - float(printed)


def _gpu(row: Result) -> gpus.Gpu | None:
    return gpus.find(row.device) if row.device else None


def _peak(row: Result) -> float | None:
    gpu = _gpu(row)
    return gpu.peak_flops_per_s.get(row.precision or "") if gpu else None


def fewer(row: Result) -> float:
    """Return how many times a model's FLOPs may exceed those that its kernels do."""
    return WINOGRAD if row.unit == "images/s" or "classes" in row.parameters else 1.0


def _flops_per_sample(row: Result) -> dict[str, float]:
    sequence = {"sequence": row.sequence} if row.sequence else {}
    return flop_conventions.flops_per_sample(row.model, {**sequence, **row.parameters})


def _rate(row: Result) -> tuple[float, str] | None:
    """Return the least FLOP/s of a device, and how they were derived.

    They are the printed TFLOPS if that is the row's unit, or else follow from the convention that counts least.
    """
    if row.unit == "TFLOPS" and row.value:
        return ends(row.value)[0] * 1e12, ""
    each, speed = _flops_per_sample(row), row.samples_per_s
    if each and speed and row.devices:
        least = min(each.values())
        return least * speed[0] / row.devices, f" ({row.shown} {row.unit} x {least / 1e9:.4g} GFLOP a sample)"
    return None


def _configuration(row: Result, *, options: bool = True, device: bool = True) -> tuple[Any, ...]:
    """Return everything that decides a row's speed, as far as the row states it."""
    own = row.source, row.framework, row.software, row.model, tuple(row.parameters.items()), row.sequence
    size = row.nodes, row.devices, row.batch_per_device, row.accumulate, row.global_batch
    return *own, row.precision, *size, row.options if options else "", row.device if device else ""


def _grouped(rows: Rows, key: Callable[[Result], Any]) -> list[list[Result]]:
    groups: defaultdict[Any, list[Result]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [group for group in groups.values() if len(group) > 1]


def _unlike(one: Result, other: Result) -> bool:
    """True if two rows differ in something that changes the speed."""
    if one.framework != other.framework:
        return one.devices == other.devices and one.precision == other.precision
    return one.source == other.source and _where(one) != _where(other)


def _where(row: Result) -> str:
    parts = f"{row.devices} devices", row.precision, row.batch_per_device and f"batch {row.batch_per_device}"
    return ", ".join(str(part) for part in parts if part)


def _changed(row: Result) -> bool:
    return any("change" in name for name in row.printed)


def _times(row: Result, other: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another one, from the seconds of a step."""
    one, two = row.printed.get("seconds_per_step"), other.printed.get("seconds_per_step")
    return (ends(two)[0] / ends(one)[1], ends(two)[1] / ends(one)[0]) if one and two else None


def _middle(row: Result) -> float:
    speed = row.samples_per_s
    assert speed
    return sum(speed) / 2

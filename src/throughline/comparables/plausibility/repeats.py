"""Rules that compare rows: equal results that should differ, and unequal ones that should be equal."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

from throughline.comparables.plausibility.rows import (
    FASTER,
    FORMULA,
    Doubt,
    Rows,
    configuration,
    grouped,
    meet,
    peak,
    quotient,
)
from throughline.numbers import percent
from throughline.records import Result, ends

ALIKE = 0.01
"""Devices whose speeds differ by no more than this share count as equally fast."""
SAYS_MUCH = 4
"""Two equal figures with this many digits or more are hardly equal by chance."""
DIFFER, AGREE = "equal results that should differ", "unequal results that should be equal"
"""The names of rules."""


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
                yield Doubt(DIFFER, row, text)
        if row.value and len(row.value.replace(".", "").strip("0")) >= SAYS_MUCH and row.unit != "ms":
            key = row.value, row.unit, row.model, row.sequence_length
            first = values.setdefault(key, row)
            if first is not row and _unlike(first, row):
                text = f"{row.value} {row.unit}, digit by digit as {first.framework}, {_where(first)} ({first.source})"
                yield Doubt(DIFFER, row, text)
    yield from _same_on_faster(rows)


def _same_on_faster(rows: Rows) -> Iterator[Doubt]:
    """Find devices with different peaks that are equally fast."""
    for alike in grouped(rows, lambda row: (configuration(row, device=False), row.devices)):
        for one, other in combinations(alike, 2):
            slow, fast = sorted((one, other), key=lambda row: peak(row) or 0)
            ratio, peaks = quotient(fast, slow), (peak(slow), peak(fast))
            if ratio and peaks[0] and peaks[1] and peaks[1] > FASTER * peaks[0] and meet(ratio, (1, 1), ALIKE):
                times = peaks[1] / peaks[0]
                text = f"{fast.shown} {fast.unit}, on {slow.device} {slow.shown}: the peak is {times:.2f} times as high"
                yield Doubt(DIFFER, fast, f"{text}; the device is probably not what limits")


def unequal(rows: Rows) -> Iterator[Doubt]:
    """Find results of one configuration that differ, unless they are imported: repeats among logs may differ."""
    for alike in grouped([row for row in rows if row.origin != "imported"], configuration):
        first, *others = alike
        for row in others:
            ratio = quotient(row, first) or _times(row, first)
            if ratio and not meet(ratio, (1, 1)):
                shown = [like.shown or f"{like.printed.get('seconds_per_step')} s" for like in (row, first)]
                share = percent(sum(ratio) / 2 - 1, 1)
                text = f"{shown[0]} and {shown[1]} ({first.place}) of one configuration: {share} apart"
                yield Doubt(AGREE, row, text)


def counting(rows: Rows) -> Iterator[Doubt]:
    """Find FLOPs of a sample that two tables of one source count differently."""
    for alike in grouped(rows, lambda row: (row.source, row.model, row.sequence_length, row.precision, row.device)):
        counted = [row for row in alike if row.printed.get("tflops") and row.samples_per_s and row.devices]
        for before, after in pairwise(sorted(counted, key=lambda row: row.date or "")):
            speed = _middle(after) / _middle(before)
            shown = float(after.printed["tflops"]) / float(before.printed["tflops"])
            if before.devices == after.devices and abs(shown / speed - 1) > 3 * FORMULA:
                text = (
                    f"{percent(speed - 1)} more speed than {before.software}, {percent(shown - 1)} more TFLOPS "
                    f"({before.printed['tflops']} to {after.printed['tflops']}): FLOPs are counted in another way"
                )
                yield Doubt(AGREE, after, text)


def _unlike(row: Result, other: Result) -> bool:
    """True if two rows differ in something that changes the speed."""
    if row.framework != other.framework:
        return row.devices == other.devices and row.precision == other.precision
    return row.source == other.source and _where(row) != _where(other)


def _where(row: Result) -> str:
    parts = f"{row.devices} devices", row.precision, row.batch and f"batch {row.batch}"
    return ", ".join(str(part) for part in parts if part)


def _times(row: Result, other: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another one, from the seconds of a step."""
    seconds, longer = row.printed.get("seconds_per_step"), other.printed.get("seconds_per_step")
    return (ends(longer)[0] / ends(seconds)[1], ends(longer)[1] / ends(seconds)[0]) if seconds and longer else None


def _middle(row: Result) -> float:
    speed = row.samples_per_s
    assert speed
    return sum(speed) / 2


RULES = (equal, unequal, counting)

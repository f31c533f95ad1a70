"""Rules about speedups: those that the devices cannot give, or that do not follow from the speeds."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from throughline.comparables.plausibility.rows import ARITHMETIC, Doubt, Rows, grouped, meet, quotient
from throughline.records import Result, ends


def more_than_devices(speedup: float, times: float) -> str | None:
    """Return why a speedup over a baseline with `times` fewer devices is impossible; None if it is possible."""
    if speedup <= times:
        return None
    return f"speedup {speedup:.4g} is more than the {times:g} devices can give"


def speedups(rows: Rows) -> Iterator[Doubt]:
    """Find speedups that are more than the devices can give, and more devices that are slower."""
    for table in _series(rows):
        for row in table:
            base = _base(row, table)
            ratio = _possible(row, base) if base else None
            printed = row.printed.get("speedup")
            if base and ratio and row.devices and base.devices:
                times = row.devices / base.devices
                why, how = more_than_devices(ratio[0], times), f"{row.shown} / {base.shown} {row.unit}"
                if row.unit != "ms" and times > 1 and why:
                    yield Doubt("speedup over devices", row, f"{why}: {how}")
            elif printed and row.devices and base is None and (why := more_than_devices(ends(printed)[0], row.devices)):
                yield Doubt("speedup over devices", row, f"{why}: printed {printed}")
        for before, after in pairwise(table):
            slower = _possible(after, before)
            if after.devices != before.devices and slower and slower[1] < 1 and before.unit != "ms":
                text = f"{after.devices} devices do {after.shown} {after.unit}, {_do(before.devices)} {before.shown}"
                yield Doubt("more devices, slower", after, text)


def _possible(row: Result, base: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another one, at least and at most: by the digits, or by the repeats.

    A row that exceeds a limit within the noise of its repeats is plausible. None if a row of our own has a single
    repeat: then its noise is not known.
    """
    if any(one.origin == "measured" and not one.repeats for one in (row, base)):
        return None
    if row.repeats and base.repeats:
        return row.repeats[0] / base.repeats[1], row.repeats[1] / base.repeats[0]
    return quotient(row, base)


def _do(devices: int | None) -> str:
    return "1 does" if devices == 1 else f"{devices} do"


def printed_speedups(rows: Rows) -> Iterator[Doubt]:
    """Find printed speedups that do not follow from the printed speeds."""
    for table in _series(rows):
        for row in table:
            printed, base = row.printed.get("speedup"), _base(row, table)
            ratio = quotient(row, base) if base and base.printed.get("speedup") in ("1", "1.0", "1.00") else None
            if printed and base and ratio and not meet(ends(printed), ratio):
                cut = " (cut off, not rounded)" if meet((float(printed), _cut(printed)), ratio) else ""
                text = f"printed speedup {printed}: {row.shown} / {base.shown} = {sum(ratio) / 2:.4g}{cut}"
                yield Doubt(ARITHMETIC, row, text)


def _cut(printed: str) -> float:
    """Return the most that a printed number can have been if its further digits were cut off."""
    return 2 * ends(printed)[1] - float(printed)


def _series(rows: Rows) -> Iterator[list[Result]]:
    """Yield the rows of each table, the fewest devices first."""
    for table in grouped([row for row in rows if row.devices], _table, at_least=1):
        yield sorted(table, key=lambda row: row.devices or 0)


def _base(row: Result, table: Rows) -> Result | None:
    """Return the row that the speedup of `row` is relative to."""
    first = next((other for other in table if other.value is not None and other.convention == row.convention), row)
    return first if first is not row else None


def _table(row: Result) -> tuple[Any, ...]:
    """Return what the rows of one table of topologies have in common."""
    what = row.origin, row.source, row.date, row.framework, row.software, row.model, tuple(row.parameters.items())
    return *what, row.sequence_length, row.precision, row.device, row.batch, row.options, row.unit


RULES = (speedups, printed_speedups)

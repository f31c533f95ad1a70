"""Derive the figures of a run's telemetry again, from the samples in run<k>.telemetry.csv.

The table comes from a stranger. We read it line by line, refuse one that is too large, and keep numbers alone.
"""

from __future__ import annotations

import csv
import itertools
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from throughline.archive.differences import Difference, between, equal
from throughline.messages import Window
from throughline.observe.telemetry_window import GAUGES, RATES, of_rates
from throughline.records import NodeTelemetry, RunRecord
from throughline.records.run import Series

MOST_BYTES, MOST_NODES = 256 << 20, 4
"""The most that a table of samples may hold of a node: two days of eight GPUs, once a second. More nodes share it."""
SEVEN_DIGITS = 5e-7
"""The rounding of a number in run<k>.telemetry.csv."""
OF_INTERVALS = 1e-4
"""The same for the mean of rates, whose weights are differences of rounded times."""
OF_SHARES = 2e-6
"""The same for the difference of two shares of the processors, in absolute terms."""
MOST_PROCESSORS = 1 << 16
KEYS = ("node", "at_s", "in_window")
Figures = dict[str, float]


@dataclass
class Samples:
    """The samples of one node. within: how many are in the window; gauges: their values there.

    A rate is nan if it is unknown.
    """

    at: array[float] = field(default_factory=lambda: array("d"))
    within: int = 0
    gauges: dict[str, array[float]] = field(default_factory=dict)
    rates: dict[str, array[float]] = field(default_factory=dict)

    def gauge(self, column: str) -> Figures | None:
        values = self.gauges.get(column)
        return {"mean": sum(values) / len(values), "min": min(values), "max": max(values)} if values else None

    def intervals(self, rates: array[float] | None) -> Iterator[tuple[float, float, float]]:
        """Yield start, end and rate between each sample and the one before it."""
        for (start, end), rate in zip(itertools.pairwise(self.at), (rates or array("d"))[1:], strict=False):
            if not math.isnan(rate):
                yield start, end, max(0.0, rate)

    def others(self, processors: int) -> array[float]:
        """Return the shares of the processors that others than the run have used."""
        machine, ours = self.rates["machine_cpu_share"], self.rates["processes_cpu_cores"]
        return array("d", (busy - cores / processors for busy, cores in zip(machine, ours, strict=True)))


def telemetry(file: str, run: RunRecord, table: Path) -> Iterator[Difference]:
    """Yield figures whose mean, minimum or maximum is not that of the samples within the window."""
    known = [node for node in run.telemetry if "telemetry" not in node.reasons]  # else the reason says why
    if not known:
        return
    most = MOST_BYTES * min(MOST_NODES, len(known))
    if table.stat().st_size > most:
        yield Difference(table_name(file), "", f"it holds more than {most >> 20} MiB, and is not read")
        return
    try:
        samples = _read(table, known)
    except (ValueError, csv.Error) as error:
        yield Difference(table_name(file), "", f"it cannot be read: {error}")
        return
    for node in known:
        ends = [rank.window_end_s for rank in run.ranks if rank.node == node.node]
        yield from _node(file, node, samples[node.node], Window(0.0, max(ends, default=0.0)))


def _read(table: Path, nodes: list[NodeTelemetry]) -> dict[int, Samples]:
    """Return the samples of each node. ValueError or csv.Error if the table is no table of samples."""
    with table.open(newline="", encoding="utf-8") as stream:
        rows = csv.reader(stream)
        columns = {name: index for index, name in enumerate(next(rows, []))}
        if lacking := [name for name in KEYS if name not in columns]:
            raise ValueError(f"it has no column {lacking[0]}")
        places = {str(node.node): _places(node, columns) for node in nodes}
        samples = {str(node.node): Samples() for node in nodes}
        number, at, inside = (columns[name] for name in KEYS)
        for row in filter(None, rows):
            if len(row) != len(columns):
                raise ValueError(f"line {rows.line_num} has {len(row)} cells of {len(columns)}")
            if row[number] in samples:
                try:
                    _add(samples[row[number]], row, row[at], row[inside] == "1", *places[row[number]])
                except ValueError as error:
                    raise ValueError(f"line {rows.line_num}: {error}") from None
    return {int(name): of for name, of in samples.items()}


def _places(node: NodeTelemetry, columns: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return where the gauges and the rates of a node stand in a row."""
    parts = ["machine", "processes", *(f"device{device.index}" for device in node.devices)]
    kinds = [
        [f"{part}_{name}" for part in parts for name in names.get(part, names["devices"])] for names in (GAUGES, RATES)
    ]
    gauges, rates = ({name: columns[name] for name in kind if name in columns} for kind in kinds)
    return gauges, rates


def _add(
    samples: Samples, row: list[str], at: str, within: bool, gauges: Mapping[str, int], rates: Mapping[str, int]
) -> None:
    samples.at.append(_number(at))
    samples.within += within
    for name, index in gauges.items():
        if within and row[index]:
            samples.gauges.setdefault(name, array("d")).append(_number(row[index]))
    for name, index in rates.items():
        samples.rates.setdefault(name, array("d")).append(_number(row[index]) if row[index] else math.nan)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is no number")
    return value


def _node(file: str, node: NodeTelemetry, samples: Samples, window: Window) -> Iterator[Difference]:
    if node.samples != samples.within:
        told = f"it states {node.samples} samples within the window, and {table_name(file)} has {samples.within}"
        yield Difference(file, f"telemetry[{node.node}].samples", told)
        return
    parts = {"machine": node.machine, "processes": node.processes}
    for device in node.devices:
        names = (*GAUGES["devices"], *RATES["devices"])
        parts[f"device{device.index}"] = {name: getattr(device, name) for name in names if name != "energy_j"}
    for part, figures in parts.items():
        where = f"telemetry[{node.node}].{part}"
        for name in GAUGES.get(part, GAUGES["devices"]):
            derived = samples.gauge(f"{part}_{name}")
            if figures.get(name) and not derived:
                yield Difference(file, f"{where}.{name}", "the archive lacks the samples behind it")
            yield from _series(file, figures.get(name), derived, f"{where}.{name}", SEVEN_DIGITS)
        for name in RATES.get(part, RATES["devices"]):
            rates = samples.rates.get(f"{part}_{name}")
            if figures.get(name) and (not rates or all(map(math.isnan, rates))):
                yield Difference(file, f"{where}.{name}", "the archive lacks the samples behind it")
            derived = of_rates(samples.intervals(rates), window)
            yield from _series(file, figures.get(name), derived, f"{where}.{name}", OF_INTERVALS)
    yield from _others(file, node, samples, window)


def _others(file: str, node: NodeTelemetry, samples: Samples, window: Window) -> Iterator[Difference]:
    """Yield what the share of other processes states otherwise.

    It depends on the number of processors, which the record does not have: we take the one that fits its mean best.
    """
    stated = node.machine.get("cpu_others_share")
    if not stated or not {"machine_cpu_share", "processes_cpu_cores"} <= samples.rates.keys():
        return

    def derived(processors: int) -> Figures | None:
        return of_rates(samples.intervals(samples.others(processors)), window)

    low, high = 1, MOST_PROCESSORS
    while low < high:  # the more processors, the larger the share of others
        middle = (low + high) // 2
        figures = derived(middle)
        if figures is None:
            return
        low, high = (low, middle) if figures["mean"] >= stated.mean else (middle + 1, high)
    found = [figures for count in (max(1, low - 1), low) if (figures := derived(count))]
    best = min(found, key=lambda figures: abs(figures["mean"] - stated.mean), default=None)
    where = f"telemetry[{node.node}].machine.cpu_others_share"
    yield from _series(file, stated, best, where, OF_INTERVALS, OF_SHARES)


def _series(
    file: str, series: Series | None, derived: Figures | None, where: str, tolerance: float, absolute: float = 1e-12
) -> Iterator[Difference]:
    for end, value in (derived or {}).items() if series else ():
        stated = getattr(series, end)
        if abs(stated - value) > tolerance * abs(value) + absolute and not equal(stated, value):
            yield from between(file, stated, value, f"{where}.{end}")


def table_name(file: str) -> str:
    """Return the name of the table with the samples of a record's run."""
    return file.removesuffix(".json") + ".telemetry.csv"

"""Derive the figures of a run's record again, from the raw values that the record and its telemetry hold.

The rules are those of launch/outcome.py and observe/. They are written down here a second time on purpose: the record
has what the ranks reported, unrounded. So a second way to the same figures finds a figure that was typed.
"""

import csv
import itertools
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from throughline.archive.differences import Difference, between, equal
from throughline.messages import Window
from throughline.observe import environment
from throughline.observe.telemetry_window import GAUGES, RATES, of_rates
from throughline.records import NodeTelemetry, Rank, RunRecord
from throughline.records.run import Series

SEVEN_DIGITS = 5e-7
"""The rounding of a number in run<k>.telemetry.csv."""
MASKED = re.compile(r"\b(?:MASKED|USER|HOST|ADDRESS|node\d+)\b|~")
"""What stands in place of a name. The digest of an environment was made before its names were masked."""
OF_INTERVALS = 1e-4
"""The same for the mean of rates, whose weights are differences of rounded times."""


def record(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield what does not follow from the windows, steps and memory of the ranks."""
    if run.status != "ok" or not run.ranks:
        return
    stalls = [rank.loader_stall_s / _seconds(rank) for rank in run.ranks if rank.loader_stall_s is not None]
    peaks = [rank.peak_memory_bytes for rank in run.ranks if rank.peak_memory_bytes is not None]
    derived = {
        "window_s": max(rank.window_end_s for rank in run.ranks),
        "peak_memory_bytes": max(peaks, default=None),
        "loader_stall_share": max(stalls, default=None),
    }
    if all(rank.cpu_seconds is not None for rank in run.ranks):
        busy = [(rank.cpu_seconds or 0.0) / (_seconds(rank) * run.spec.threads) for rank in run.ranks]
        derived["utilization.cpu"] = sum(busy) / len(busy)
    stated = {name: getattr(run, name) for name in derived if name != "utilization.cpu"}
    stated |= {"utilization.cpu": run.utilization.cpu} if "utilization.cpu" in derived else {}
    yield from between(file, stated, derived)
    yield from _places(file, run)
    yield from _steps(file, run)
    yield from _work(file, run)


def _places(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield ranks that are not those of the topology, another environment, and a peak that no rank has reached."""
    stated = [[rank.rank, rank.node] for rank in run.ranks]
    derived = [[number, number // run.spec.topology.devices] for number in range(run.spec.topology.world)]
    yield from between(file, stated, derived, "ranks")
    known, device = run.environment, run.device
    if known.get("digest") and device and not MASKED.search(json.dumps(known.get("variables"))):
        yield from between(file, known["digest"], environment.digest(known, device.model_dump()), "environment.digest")
    if run.memory and run.memory.reserved_bytes is not None and run.peak_memory_bytes is not None:
        yield from between(file, run.memory.reserved_bytes, run.peak_memory_bytes, "memory.reserved_bytes")


def _seconds(rank: Rank) -> float:
    return rank.window_end_s - rank.window_start_s


def _steps(file: str, run: RunRecord) -> Iterator[Difference]:
    if run.spec.job or not run.step_seconds:
        return
    if len(run.step_seconds) != run.steps_timed:
        yield Difference(file, "step_seconds", f"{len(run.step_seconds)} times of {run.steps_timed} timed steps")
    longest = max(run.step_seconds)
    if run.window_s and longest > run.window_s * 1.001:
        yield Difference(file, "step_seconds", f"a step of {longest:g} s in a window of {run.window_s:g} s")
    for figure in run.figures:
        derived = _percentile(sorted(run.step_seconds), str(figure.at)) if figure.unit == "ms" else None
        if figure.value is None or derived is None:
            continue
        # Older records have the steps of rank 0. The percentile is that of the slowest rank in each step, and no less.
        if len(run.ranks) == 1 or figure.value < derived:
            yield from between(file, figure.value, derived, f"figures.{figure.name} ({figure.at})")


def _percentile(steps: Sequence[float], at: str) -> float | None:
    """Return a percentile of sorted step times in milliseconds, as launch/outcome.py defines it."""
    if at == "median":
        return 1000 * statistics.median(steps)
    share = at.removesuffix(" %")
    return 1000 * steps[math.ceil(int(share) * len(steps) / 100) - 1] if share.isdigit() else None


def _work(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield shares and rates that do not follow from the FLOPs of a sample."""
    work = run.work
    if not work or not work.flops_per_sample or not run.samples_per_s:
        return
    rate = work.flops_per_sample * run.samples_per_s / run.spec.topology.world
    peak, matmul = work.datasheet_flops_per_s, work.matmul_flops_per_s
    derived = {
        "flops_per_s": rate,
        "mfu": rate / peak if peak else None,
        "matmul_share": rate / matmul if matmul else None,
    }
    products = [rank.matmul_flops_per_s for rank in run.ranks if rank.matmul_flops_per_s is not None]
    if products and len(products) == len(run.ranks):  # older records have no products of their ranks
        derived["matmul_flops_per_s"] = min(products)
    yield from between(file, {name: getattr(work, name) for name in derived}, derived, "work")


def telemetry(file: str, run: RunRecord, table: Path) -> Iterator[Difference]:
    """Yield figures whose mean, minimum or maximum is not that of the samples within the window."""
    if not run.telemetry:
        return
    with table.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for node in run.telemetry:
        if "telemetry" in node.reasons:  # there are no figures, and the reason says why
            continue
        ends = [rank.window_end_s for rank in run.ranks if rank.node == node.node]
        yield from _node(file, node, [row for row in rows if row.get("node") == str(node.node)], max(ends, default=0.0))


def _node(file: str, node: NodeTelemetry, rows: Sequence[dict[str, str]], window_s: float) -> Iterator[Difference]:
    within = [row for row in rows if row.get("in_window") == "1"]
    if node.samples != len(within):
        told = f"it states {node.samples} samples within the window, and {table_name(file)} has {len(within)}"
        yield Difference(file, f"telemetry[{node.node}].samples", told)
        return
    parts = {"machine": node.machine, "processes": node.processes}
    for device in node.devices:
        names = (*GAUGES["devices"], *RATES["devices"])
        parts[f"device{device.index}"] = {name: getattr(device, name) for name in names if name != "energy_j"}
    for part, figures in parts.items():
        for name in GAUGES.get(part, GAUGES["devices"]):
            values = [float(text) for row in within if (text := row.get(f"{part}_{name}"))]
            derived = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)} if values else None
            yield from _series(file, figures.get(name), derived, f"telemetry[{node.node}].{part}.{name}", SEVEN_DIGITS)
        for name in RATES.get(part, RATES["devices"]):
            derived = of_rates(_intervals(rows, f"{part}_{name}"), Window(0.0, window_s))
            where = f"telemetry[{node.node}].{part}.{name}"
            yield from _series(file, figures.get(name), derived, where, OF_INTERVALS)


def _intervals(rows: Sequence[dict[str, str]], column: str) -> list[tuple[float, float, float]]:
    """Return start, end and rate between each sample and the one before it."""
    pairs = itertools.pairwise(rows)
    return [(float(a["at_s"]), float(b["at_s"]), max(0.0, float(b[column]))) for a, b in pairs if b.get(column)]


def _series(
    file: str, series: Series | None, derived: dict[str, float] | None, where: str, tolerance: float
) -> Iterator[Difference]:
    for end, value in (derived or {}).items() if series else ():
        stated = getattr(series, end)
        if abs(stated - value) > tolerance * abs(value) + 1e-12 and not equal(stated, value):
            yield from between(file, stated, value, f"{where}.{end}")


def table_name(file: str) -> str:
    """Return the name of the table with the samples of a record's run."""
    return file.removesuffix(".json") + ".telemetry.csv"

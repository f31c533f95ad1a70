"""Derive the figures of a run's record again, from the raw values that the record holds.

The rules are those of launch/outcome.py. They are written down here a second time on purpose: the record has what the
ranks reported, unrounded. So a second way to the same figures finds a figure that was typed.
"""

import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence

from throughline.archive.differences import Difference, between
from throughline.observe import environment
from throughline.records import Rank, RunRecord

MASKED = re.compile(r"\b(?:MASKED|USER|HOST|ADDRESS|node\d+)\b|~")
"""What stands in place of a name. The digest of an environment was made before its names were masked."""

STEPS_LACK, STEPS_LACK_S = 2e-3, 5e-3
"""The part of a window, and the seconds, in which a rank waits for its device and takes no step."""
STEPS_EXCEED, STEPS_EXCEED_S = 5e-4, 1e-4
"""The same for two clocks that disagree, the host's and the device's."""
MOST_LOOKS = 4
"""A run may take so many warm-up steps to learn its speed, even if fewer were asked for."""
SHORTENED = re.compile(r"max_total_seconds [^:]+: (\d+) of (\d+) warm-up and (\d+) of \d+ timed steps")
SKIPPED_AT_MOST = 0.01
"""The largest share of steps that the scaler of fp16 may skip in a valid run. Others have no scaler."""


def record(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield what does not follow from the windows, steps and memory of the ranks."""
    if run.status != "ok" or not run.ranks:
        return
    if empty := [rank.rank for rank in run.ranks if _seconds(rank) <= 0]:
        yield Difference(file, f"ranks[{empty[0]}]", "its window does not end after its start")
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
    yield from _room(file, run)
    if run.memory.reserved_bytes is not None and run.peak_memory_bytes is not None:
        yield from between(file, run.memory.reserved_bytes, run.peak_memory_bytes, "memory.reserved_bytes")


def _room(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield ranks that state more memory than their device has. Nothing else is known about ranks without the peak."""
    room = run.memory.device_total_bytes
    for rank in run.ranks if room else ():
        if rank.peak_memory_bytes is not None and room and rank.peak_memory_bytes > room:
            what = f"ranks[{rank.rank}].peak_memory_bytes"
            yield Difference(file, what, f"it states {rank.peak_memory_bytes}, and the device has {room}")


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
    yield from _sum(file, run)
    yield from _counts(file, run)
    for figure in run.figures:
        derived = _percentile(sorted(run.step_seconds), str(figure.at)) if figure.unit == "ms" else None
        if figure.value is None or derived is None:
            continue
        yield from between(file, figure.value, derived, f"figures.{figure.name} ({figure.at})")


def _sum(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield steps that do not fill the window, or that it has no room for.

    Steps follow one another on every rank. With several ranks, only the slowest of each step is known: together these
    take no less than the steps of any rank, and no more than those of all ranks.
    """
    windows = [_seconds(rank) for rank in run.ranks]
    least = max(windows)
    total, most = sum(run.step_seconds), sum(windows)
    if not least * (1 - STEPS_LACK) - STEPS_LACK_S <= total <= most * (1 + STEPS_EXCEED) + STEPS_EXCEED_S:
        room = f"{least:g} s" if len(windows) == 1 else f"{least:g} to {most:g} s"
        yield Difference(file, "step_seconds", f"together they take {total:g} s, and the window has {room}")


def _counts(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield numbers of steps that were not asked for, or that a run without a fault cannot have."""
    asked, done = run.spec.steps.warmup, run.warmup_steps
    if run.spec.steps.max_total_seconds is None and run.min_window_seconds is None:
        yield from between(file, done, asked, "warmup_steps")
    elif done > max(asked, MOST_LOOKS):
        yield Difference(file, "warmup_steps", f"it states {done}, and a run takes {max(asked, MOST_LOOKS)} at most")
    told = [SHORTENED.match(warning) for warning in run.warnings]
    for found in filter(None, told):
        yield from between(file, [done, asked, run.steps_timed], [int(part) for part in found.groups()], "warnings")
    if done < asked and not any(told):
        yield Difference(file, "warmup_steps", f"it states {done} of {asked} without a warning")
    skipped = run.scaler_skipped_steps
    most = SKIPPED_AT_MOST * run.steps_timed if run.spec.precision == "fp16" else 0
    if skipped > most:
        yield Difference(file, "scaler_skipped_steps", f"it states {skipped}, and {most:g} is the most of a valid run")


def _percentile(steps: Sequence[float], at: str) -> float | None:
    """Return a percentile of sorted step times in milliseconds, as launch/outcome.py defines it."""
    if at == "median":
        return 1000 * statistics.median(steps)
    share = at.removesuffix(" %")
    return 1000 * steps[math.ceil(int(share) * len(steps) / 100) - 1] if share.isdigit() else None


def _work(file: str, run: RunRecord) -> Iterator[Difference]:
    """Yield shares and rates that do not follow from the FLOPs of a sample."""
    work = run.work
    if not work.flops_per_sample or not run.samples_per_s:
        return
    rate = work.flops_per_sample * run.samples_per_s / run.spec.topology.world
    peak, matmul = work.datasheet_flops_per_s, work.matmul_flops_per_s
    derived = {
        "flops_per_s": rate,
        "mfu": rate / peak if peak else None,
        "matmul_share": rate / matmul if matmul else None,
    }
    products = [rank.matmul_flops_per_s for rank in run.ranks if rank.matmul_flops_per_s is not None]
    if products and len(products) == len(run.ranks):
        derived["matmul_flops_per_s"] = min(products)
    yield from between(file, {name: getattr(work, name) for name in derived}, derived, "work")

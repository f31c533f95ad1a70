"""Derive the figures of one run again: those of its record from its ranks, steps and telemetry, and what its log says.

The rules are those of launch/outcome.py. They are written down here a second time on purpose: the record has what the
ranks reported, unrounded. So a second way to the same figures finds a figure that was typed.
"""

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from throughline import workloads
from throughline.archive.differences import Difference, Differences, between, safely
from throughline.messages import Window
from throughline.observe import environment
from throughline.observe.telemetry_window import GAUGES, figures, parts, rates_of
from throughline.programs import timing
from throughline.records import RunRecord
from throughline.records.run import NodeTelemetry, Series
from throughline.spec import Program
from throughline.study.runs import manifest

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
MOST_BYTES, MOST_NODES = 256 << 20, 4
"""The most that a table of samples may hold of a node: two days of eight GPUs, once a second. More nodes share it."""
SEVEN_DIGITS, OF_INTERVALS = 5e-7, 1e-4
"""The rounding of a number in run<k>.telemetry.csv, and that of a mean rate, whose weights are rounded times."""
KEYS = ("node", "at_s", "in_window")


def check(folder: Path, path: Path, run: RunRecord, manifest_at: Callable[[Path], Any], made: str) -> Differences:
    """Yield what is wrong with a run, whose record is at `path` below `folder`.

    manifest_at: reads a manifest of data; made: the file that the run's command makes.
    """
    name, table, log = path.relative_to(folder).as_posix(), path.with_suffix(".telemetry.csv"), path.with_suffix(".log")
    yield from safely(folder, name, record(name, run))
    yield from safely(folder, name, _rows(name, run, folder, manifest_at))
    if table.exists():
        yield from safely(folder, table.relative_to(folder).as_posix(), telemetry(name, run, table))
    elif any(node.samples for node in run.telemetry):
        yield Difference(name, "telemetry", "the archive lacks the samples behind it")
    if log.exists():
        yield from _log(log.relative_to(folder).as_posix(), log.read_text("utf-8", "replace"), run, made)
    else:
        yield Difference(log.relative_to(folder).as_posix(), "", "the archive lacks the log of this run")


def record(file: str, run: RunRecord) -> Differences:
    """Yield what does not follow from the windows, steps and memory of the ranks."""
    if run.status != "ok" or not run.ranks:
        return
    seconds = [rank.window_end_s - rank.window_start_s for rank in run.ranks]
    if min(seconds) <= 0:
        yield Difference(file, f"ranks[{np.argmin(seconds)}]", "its window does not end after its start")
        return
    for name, derived in _figures(run, seconds).items():
        yield from between(file, attrgetter(name)(run), derived, name)
    ranks = 1 if run.spec.program else run.spec.topology.world
    places = [[number, number // run.spec.topology.devices] for number in range(ranks)]
    yield from between(file, [[rank.rank, rank.node] for rank in run.ranks], places, "ranks")
    facts, device = run.environment, run.device
    if facts.get("digest") and device and not MASKED.search(json.dumps(facts.get("variables"))):
        yield from between(file, facts["digest"], environment.digest(facts, device.model_dump()), "environment.digest")
    room = run.memory.device_total_bytes
    for rank in run.ranks:
        if room and rank.peak_memory_bytes is not None and rank.peak_memory_bytes > room:
            what = f"ranks[{rank.rank}].peak_memory_bytes"
            yield Difference(file, what, f"it states {rank.peak_memory_bytes}, and the device has {room}")
    if run.step_seconds and not run.spec.job:
        yield from _steps(file, run, seconds)
    if run.spec.program:
        yield from _program(file, run, run.spec.program)
    elif run.step_seconds and not run.spec.job:
        yield from _counts(file, run)


def _figures(run: RunRecord, seconds: Sequence[float]) -> dict[str, float | None]:
    """Return what follows from the ranks, by the names in the record. seconds: the windows of the ranks."""
    ranks, work, world = run.ranks, run.work, run.spec.topology.world
    peaks = [rank.peak_memory_bytes for rank in ranks if rank.peak_memory_bytes is not None]
    timed = list(zip(ranks, seconds, strict=True))
    stalls = [rank.loader_stall_s / window for rank, window in timed if rank.loader_stall_s is not None]
    busy = [rank.cpu_seconds / (window * run.spec.threads) for rank, window in timed if rank.cpu_seconds is not None]
    derived = {
        "window_s": max(rank.window_end_s for rank in ranks),
        "peak_memory_bytes": max(peaks, default=None),
        "loader_stall_share": max(stalls, default=None),
    }
    if peaks and run.memory.reserved_bytes is not None:
        derived["memory.reserved_bytes"] = max(peaks)
    if len(busy) == len(ranks):
        derived["utilization.cpu"] = sum(busy) / len(busy)
    tokens = workloads.of(run.spec.model).units.get("tokens")
    if tokens and work.real_token_share and run.samples_per_s:
        derived["work.real_tokens_per_s"] = work.real_token_share * tokens(run.spec.parameters) * run.samples_per_s
    if work.flops_per_sample and run.samples_per_s:
        rate = work.flops_per_sample * run.samples_per_s / world
        derived["work.flops_per_s"] = rate
        derived["work.mfu"] = rate / work.datasheet_flops_per_s if work.datasheet_flops_per_s else None
        derived["work.matmul_share"] = rate / work.matmul_flops_per_s if work.matmul_flops_per_s else None
        products = [rank.matmul_flops_per_s for rank in ranks if rank.matmul_flops_per_s is not None]
        if len(products) == len(ranks):
            derived["work.matmul_flops_per_s"] = min(products)
    return derived


def _steps(file: str, run: RunRecord, seconds: Sequence[float]) -> Differences:
    """Yield steps that do not fill the window, or that it has no room for, and percentiles of other steps.

    Steps follow one another on every rank. With several ranks, only the slowest of each step is known: together these
    take no less than the steps of any rank, and no more than those of all ranks.
    """
    steps, window = sorted(run.step_seconds), run.window_s or 0.0
    if len(steps) != run.steps_timed:
        yield Difference(file, "step_seconds", f"{len(steps)} times of {run.steps_timed} timed steps")
    if steps[-1] > window * 1.001:
        yield Difference(file, "step_seconds", f"a step of {steps[-1]:g} s in a window of {window:g} s")
    total, least, most = sum(steps), max(seconds), sum(seconds)
    if not least * (1 - STEPS_LACK) - STEPS_LACK_S <= total <= most * (1 + STEPS_EXCEED) + STEPS_EXCEED_S:
        room = f"{least:g} s" if len(seconds) == 1 else f"{least:g} to {most:g} s"
        yield Difference(file, "step_seconds", f"together they take {total:g} s, and the window has {room}")
    for figure in run.figures:
        share = str(figure.at).removesuffix(" %")
        if figure.value is None or figure.unit != "ms" or not (share.isdigit() or share == "median"):
            continue
        middle = share == "median"
        derived = statistics.median(steps) if middle else steps[math.ceil(int(share) * len(steps) / 100) - 1]
        yield from between(file, figure.value, 1000 * derived, f"figures.{figure.name} ({figure.at})")


def _program(file: str, run: RunRecord, program: Program) -> Differences:
    """Yield figures that do not follow from the marks or the log lines of a program."""
    if run.program is None:
        yield Difference(file, "program", "the record lacks the marks or lines behind its figure")
        return
    points, devices = timing.points_of(run.program.points.model_dump()), run.spec.topology.world
    window = timing.recorded_window(program, points, run.warmup_steps, run.steps_timed, devices)
    derived = {
        "window_s": window.seconds,
        "step_seconds": window.step_seconds,
        "loss": timing.losses(points, window.first, window.last),
    }
    for name, value in derived.items():
        yield from between(file, getattr(run, name), value, name)
    yield from (Difference(file, "program.points", fault) for fault in timing.faults(program, points, window))


def _counts(file: str, run: RunRecord) -> Differences:
    """Yield numbers of steps that were not asked for, or that a run without a fault cannot have."""
    asked, done = run.spec.steps.warmup, run.warmup_steps
    if run.spec.steps.max_total_seconds is None and run.min_window_seconds is None:
        yield from between(file, done, asked, "warmup_steps")
    elif done > max(asked, MOST_LOOKS):
        yield Difference(file, "warmup_steps", f"it states {done}, and a run takes {max(asked, MOST_LOOKS)} at most")
    shortened = list(filter(None, map(SHORTENED.match, run.warnings)))
    for match in shortened:
        yield from between(file, [done, asked, run.steps_timed], [int(part) for part in match.groups()], "warnings")
    if done < asked and not shortened:
        yield Difference(file, "warmup_steps", f"it states {done} of {asked} without a warning")
    skipped = run.scaler_skipped_steps
    most = SKIPPED_AT_MOST * run.steps_timed if run.spec.precision == "fp16" else 0
    if skipped > most:
        yield Difference(file, "scaler_skipped_steps", f"it states {skipped}, and {most:g} is the most of a valid run")


def _rows(file: str, run: RunRecord, folder: Path, manifest_at: Callable[[Path], Any]) -> Differences:
    """Yield another number of rows than the manifest of a run's data has, if this is still the manifest of its data."""
    path = folder / (manifest(run.spec) or "none")
    data = manifest_at(path) if path.is_file() else None
    if not data or not run.data or data["content_digest"] != run.data.content_digest:
        return
    counts = [shard.get("rows") for shard in data["shards"]]
    if counts and all(isinstance(count, int) for count in counts):  # a shard of tokens has no rows of its own
        yield from between(file, run.data.rows, sum(counts), "data.rows")


def telemetry(file: str, run: RunRecord, table: Path) -> Differences:
    """Yield figures whose mean, minimum or maximum is not that of the samples within the window.

    The table comes from a stranger: a table that is too large is not read, and of the others only numbers are.
    ValueError if it is no table of samples.
    """
    nodes = [node for node in run.telemetry if "telemetry" not in node.reasons]  # else the reason says why
    if not nodes:
        return
    most = MOST_BYTES * min(MOST_NODES, len(nodes))
    if table.stat().st_size > most:
        raise ValueError(f"it holds more than {most >> 20} MiB, and is not read")
    samples = _samples(table, nodes)
    for node in nodes:
        ends = [rank.window_end_s for rank in run.ranks if rank.node == node.node]
        of_node = samples[samples["node"] == node.node]
        yield from _node(file, node, of_node, Window(0.0, max(ends, default=0.0)))


def _samples(table: Path, nodes: Sequence[NodeTelemetry]) -> pd.DataFrame:
    """Return the numbers of a table: its keys, gauges and rates. ValueError if it is no table of samples."""
    most = max(len(node.devices) for node in nodes)
    wanted = {part.prefix + name for part in parts(most) for name in (*GAUGES[part.kind], *rates_of(part.kind))}
    read = pd.read_csv(table, usecols=lambda name: name in wanted or name in KEYS, dtype=float, index_col=False)
    if lacking := [name for name in KEYS if name not in read.columns]:
        raise ValueError(f"it has no column {lacking[0]}")
    if np.isinf(read.to_numpy()).any():
        raise ValueError("it has a number that is not finite")
    read = read[read["node"].isin([node.node for node in nodes])]
    if read[list(KEYS)].isna().to_numpy().any():
        raise ValueError(f"a row lacks one of {', '.join(KEYS)}")
    return read


def _node(file: str, node: NodeTelemetry, samples: pd.DataFrame, window: Window) -> Differences:
    within = int(samples["in_window"].sum())
    if node.samples != within:
        text = f"it states {node.samples} samples within the window, and the table of samples has {within}"
        yield Difference(file, f"telemetry[{node.node}].samples", text)
        return
    table = {str(name): column.to_numpy() for name, column in samples.items()}
    kept: list[Mapping[str, Series | None]] = [node.machine, node.processes, *map(vars, node.devices)]
    for part, series in zip(parts(len(node.devices)), kept, strict=True):
        for name, derived in figures(table, part, window).items():
            where, figure = f"telemetry[{node.node}].{part.prefix.rstrip('_')}.{name}", series.get(name)
            values = table.get(part.prefix + name)
            if figure and (values is None or np.isnan(values).all()):
                yield Difference(file, where, "the archive lacks the samples behind it")
            rounding = SEVEN_DIGITS if name in GAUGES[part.kind] else OF_INTERVALS
            for end, value in (derived or {}).items() if figure else ():
                if abs(getattr(figure, end) - value) > rounding * abs(value) + 1e-9:
                    yield from between(file, getattr(figure, end), value, f"{where}.{end}")


def _log(name: str, text: str, run: RunRecord, made: str) -> Differences:
    """Yield a log of another run, or that states another outcome than the record.

    made: the file that the command in its first line makes. Masking a node that is really called node3 changes its
    number, so numbers of nodes may differ.
    """
    first, command = (re.sub(r"\bnode\d+", "node", line) for line in (text.partition("\n")[0], made))
    if command not in first and f"--record {made}" not in text:
        yield Difference(name, "", "it is the log of another run: its first line does not name this record")
    printed = re.findall(r"^outcome: ([\d.]+) \S+ over", text, re.M)
    if run.samples_per_s and printed and printed[-1] != f"{run.samples_per_s:.1f}":
        yield Difference(name, "", f"it prints {printed[-1]}, and the record states {run.samples_per_s:.1f}")

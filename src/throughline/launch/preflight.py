"""What is looked at before a run starts: who else uses the machine, its memory and disk, its GPUs' state and limits.

A fault is refused (UserError), or where the run can still be measured, marked by a warning in its record; with
runs.strict every one is refused. Memory, disk and processor are those of the machine that the launcher is on; GPUs are
looked at on every node, by its agent. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from throughline.files import UserError
from throughline.memory import gib
from throughline.observe.environment import DECIDES, Others, crowded

WORKER_BYTES = 384 << 20
"""A rank of any framework with its libraries loaded, on the smallest model."""
DISK_BYTES = 16 << 20
"""A record, its log and its telemetry, with room to spare."""
CONFIRM_S = 1.0


def look(
    record: Path, others: Others, ranks: int, threads: int, cores: int, earlier: Mapping[str, Any], strict: bool
) -> list[str]:
    """Warnings about this machine just before `ranks` start on it; UserError where they should not.

    earlier: the records of the same configuration that are there (`siblings`), by their file names.
    """
    _room(record, ranks, earlier)
    wanted = ranks * threads
    warning = crowded(others.cores(), cores, wanted, "use {}")
    if warning:  # a moment's work is no reason: it has to last
        again = Others()
        time.sleep(CONFIRM_S)
        warning = crowded(again.cores(), cores, wanted, "use {}")
    if warning and strict:
        raise UserError(
            f"this machine is busy: {warning.partition(':')[0]}",
            why="a run would measure them as well, and runs.strict is on",
            next_step="end them (see `top`), or set runs.strict: false to measure with a warning",
        )
    return [warning] if warning else []


def siblings(record: Path) -> dict[str, dict[str, Any]]:
    """Finished records of the same framework and topology, by name, the oldest first."""
    paths = [path for path in record.parent.glob("run*.json") if path.name != record.name]
    finished = {}
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(value, dict) and value.get("status") == "ok" and isinstance(value.get("environment"), dict):
            finished[path.stem] = value
    return finished


def same_surroundings(now: Mapping[str, Any], earlier: Mapping[str, Any], strict: bool) -> list[str]:
    """Warnings where this machine is not as it was for an earlier repeat; UserError with `strict`."""
    if not earlier:
        return []
    name, record = list(earlier.items())[-1]
    before = record["environment"]
    changed = [
        f"{key} was {before[key]} and is {now[key]}"
        for key in DECIDES
        if key in now and key in before and now[key] != before[key]
    ]
    if changed and strict:
        raise UserError(
            f"this machine is not as it was for {name}: {'; '.join(changed)}",
            why="repeats from different environments are never pooled, and runs.strict is on",
            next_step="put it back, or make the earlier repeats again (snakemake --force <record>)",
        )
    return [f"since {name}, {text}: the repeats will not be pooled" for text in changed]


def _room(record: Path, ranks: int, earlier: Mapping[str, Any]) -> None:
    """UserError where memory or disk cannot be enough."""
    on_cpu = [value for value in earlier.values() if (value.get("device") or {}).get("kind") == "cpu"]
    each = max([WORKER_BYTES, *(value.get("peak_memory_bytes") or 0 for value in on_cpu)])
    known = f"{gib(each)} each, as " + ("the earlier repeats took" if each > WORKER_BYTES else "their libraries take")
    free = _free_memory_bytes()
    if free is not None and free < ranks * each:
        raise UserError(
            f"too little memory: {gib(free)} are free here, and {ranks} ranks need {gib(ranks * each)}",
            why=known,
            next_step="end what uses the memory, or choose fewer devices per node or a smaller batch",
        )
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limit = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=each)
    if limit < each:
        raise UserError(
            f"too little memory: a process may have {gib(limit)} (ulimit -v, -d), and a rank needs {gib(each)}",
            why=known,
            next_step="raise the limit (ulimit -v unlimited), or ask the scheduler for more memory",
        )
    for place in (record.parent, Path(os.environ.get("TMPDIR") or "/tmp")):
        there = next(folder for folder in (place, *place.parents) if folder.is_dir())
        left = shutil.disk_usage(there).free
        if left < DISK_BYTES:
            raise UserError(
                f"too little disk: {left / 2**20:.1f} MiB are free in {there}, and a run needs {DISK_BYTES >> 20} MiB",
                why="its record, log and telemetry would not fit",
                next_step="make room, and run snakemake again",
            )


def _free_memory_bytes() -> int | None:
    """Memory that can be had without swapping, within this process's control group; None where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, ValueError, StopIteration):
        return None
    with contextlib.suppress(OSError, ValueError):  # no group, or `max`
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        return min(free, max(0, most - used))
    return free

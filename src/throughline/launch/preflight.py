"""What is looked at before a run starts: who else uses the machine, its memory and disk, its GPUs' state and limits.

A fault is refused (UserError), or where the run can still be measured, marked by a warning in its record; with
runs.strict every one is refused. Memory, disk and processor are those of the machine that the launcher is on; GPUs are
looked at on every node, by its agent. Standard library only.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from throughline.files import UserError
from throughline.observe.environment import DECIDES

WORKER_BYTES = 384 << 20
"""A rank of any framework with its libraries loaded, on the smallest model."""
DISK_BYTES = 16 << 20
"""A record, its log and its telemetry, with room to spare."""
OTHERS_CORES = 0.25
"""What others may use of a machine whose every core the ranks need."""
WORKED = (1, 2, 3, 6, 7)
"""Places of user, nice, system, irq and softirq in a line of /proc/stat."""
LOOK_S, CONFIRM_S = 0.3, 1.0
GPU_BUSY = 0.1
"""Share of time or memory from which a GPU that should be idle is in use."""
LIMITS = ("power_limit_w", "power_limit_enforced_w", "sm_clock_set_mhz", "memory_clock_set_mhz", "ecc", "mig")
"""What somebody can set on a GPU, a run's speed depends on, and NVML can be asked for. A locked clock cannot."""


class Others:
    """The processor time that others take from now on; own work (this process and its children's) is left out."""

    def __init__(self) -> None:
        self.start, self.at, self.own = _busy_s(), time.monotonic(), _own_s()

    def cores(self) -> float | None:
        """Cores that others have used in the mean since the start; None where the system does not say."""
        time.sleep(max(0.0, LOOK_S - (time.monotonic() - self.at)))
        busy = _busy_s()
        if self.start is None or busy is None:
            return None
        return max(0.0, busy - self.start - (_own_s() - self.own)) / (time.monotonic() - self.at)


def _busy_s() -> float | None:
    """CPU-seconds that the cores of this process have worked for whomever (proc_stat(5)); None where nobody says."""
    mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        cores = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
        ticks = [int(core[place]) for core in cores if core[0] in mine for place in WORKED]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _own_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def crowded(others: float | None, cores: int, wanted: int, used: str) -> str | None:
    """A warning where others leave fewer cores than the ranks need."""
    if others is None or others < OTHERS_CORES or cores - others >= min(wanted, cores):
        return None
    return (
        f"other processes {used.format(f'{others:.1f} of {cores} cores')}, and the ranks need "
        f"{min(wanted, cores)}: what is measured is slower than the machine; let it idle"
    )


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
    found = {}
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(value, dict) and value.get("status") == "ok" and isinstance(value.get("environment"), dict):
            found[path.stem] = value
    return found


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
    free, limit = free_memory_bytes(), _process_limit_bytes()
    held = [value.get("peak_memory_bytes") for value in earlier.values() if _is_on_cpu(value)]
    each = max([WORKER_BYTES, *(peak for peak in held if peak)])
    known = f"{_gib(each)} each, as " + ("the earlier repeats took" if each > WORKER_BYTES else "their libraries take")
    if free is not None and free < ranks * each:
        raise UserError(
            f"too little memory: {_gib(free)} are free here, and {ranks} ranks need {_gib(ranks * each)}",
            why=known,
            next_step="end what uses the memory, or choose fewer devices per node or a smaller batch",
        )
    if limit is not None and limit < each:
        raise UserError(
            f"too little memory: a process may have {_gib(limit)} (ulimit -v, -d), and a rank needs {_gib(each)}",
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


def free_memory_bytes() -> int | None:
    """Memory that can be had without swapping, within this process's control group; None where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, ValueError, StopIteration):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        most, used = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
        return free if most == "max" else min(free, max(0, int(most) - used))
    except (OSError, ValueError):
        return free


def _process_limit_bytes() -> int | None:
    """What one process may hold at most by its limits; None where they set none."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def _is_on_cpu(record: Mapping[str, Any]) -> bool:
    return (record.get("device") or {}).get("kind") == "cpu"


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def gpu_faults(
    index: int, state: Mapping[str, Any], facts: Mapping[str, Any], earlier: Mapping[str, Any] | None
) -> tuple[list[str], list[str]]:
    """(what refuses a run, what marks it) of a GPU that should be idle.

    state: `processes` [(pid, bytes or None)], `utilization`, `memory_used_bytes`, `ecc_uncorrected`, `ecc_corrected`
    (since the driver was loaded), `rows_pending`, `rows_failed`; facts and earlier: telemetry_cards.Card.facts of now
    and of an earlier repeat. None of it is known: no fault.
    """
    refused, marked = list[str](), list[str]()
    name = f"GPU {index}"
    for pid, held in state["processes"] or []:
        refused.append(f"{name} is used by another process ({pid}" + (f", {_gib(held)})" if held else ")"))
    total, used = facts.get("memory_bytes"), state["memory_used_bytes"]
    busy = state["utilization"] or 0.0
    if not refused and (busy > GPU_BUSY or (total and used and used > GPU_BUSY * total)):
        refused.append(
            f"{name} is in use ({busy:.0%} of the time, {_gib(used or 0)} of its memory), though the driver names no "
            "process here"
        )
    if state["ecc_uncorrected"]:
        refused.append(f"{name} has {state['ecc_uncorrected']} uncorrected ECC errors since the driver was loaded")
    if state["rows_failed"]:
        refused.append(f"{name} could not remap a faulty row of its memory")
    if state["rows_pending"]:
        marked.append(f"{name} waits for a reset to remap a faulty row of its memory")
    if state["ecc_corrected"]:
        marked.append(f"{name} has {state['ecc_corrected']} corrected ECC errors since the driver was loaded")
    if earlier:
        marked += [
            f"{name}: {key} was {earlier[key]} for an earlier repeat and is {facts[key]}"
            for key in LIMITS
            if None not in (earlier.get(key), facts.get(key)) and earlier[key] != facts[key]
        ]
    return refused, marked


def gpu_error(node: int, faults: Iterable[str]) -> UserError:
    """What an agent that refuses is passed on as."""
    return UserError(
        f"the GPUs of node {node} are not fit to be measured: {'; '.join(faults)}",
        why="a busy or faulty device measures something else; with runs.strict a changed limit does too",
        next_step="end the other processes, put the limits back, or reset the card (nvidia-smi -q shows all of it)",
    )

"""Measure how much of the processors other processes use, and say when that is too much. Standard library only."""

import os
import time
from pathlib import Path

OTHERS_CORES = 0.25
"""How many cores other processes may use if the ranks need every core of the machine."""
WORKED = (1, 2, 3, 6, 7)
"""The positions of user, nice, system, irq and softirq in a line of /proc/stat."""
LOOK_S = 0.3


class OtherProcesses:
    """Measures the processor time that other processes use from now on. This process and its children do not count."""

    def __init__(self) -> None:
        self.start = _busy_s()
        self.at = time.monotonic()
        self.own = _own_s()

    def cores(self) -> float | None:
        """Return the average number of cores that others have used since the start; None if the system cannot tell."""
        time.sleep(max(0.0, LOOK_S - (time.monotonic() - self.at)))
        busy = _busy_s()
        if self.start is None or busy is None:
            return None
        return max(0.0, busy - self.start - (_own_s() - self.own)) / (time.monotonic() - self.at)


def _busy_s() -> float | None:
    """Return the CPU seconds of all processes on the cores of this process (proc_stat(5)); None if unknown."""
    mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        cores = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
        ticks = [int(core[column]) for core in cores if core[0] in mine for column in WORKED]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _own_s() -> float:
    return sum(os.times()[:4])  # user and system time of this process and of its children


def crowded(others: float | None, cores: int, wanted: int, used: str) -> str | None:
    """Return a warning if other processes leave fewer cores than the ranks need; else None."""
    if others is None or others < OTHERS_CORES or cores - others >= min(wanted, cores):
        return None
    return (
        f"other processes {used.format(f'{others:.1f} of {cores} cores')}, and the ranks need "
        f"{min(wanted, cores)}: what is measured is slower than the machine; let it idle"
    )

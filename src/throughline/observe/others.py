"""How much of the processors others take, before a run and within its window. Standard library only."""

from __future__ import annotations

import os
import time
from pathlib import Path

OTHERS_CORES = 0.25
"""What others may use of a machine whose every core the ranks need."""
WORKED = (1, 2, 3, 6, 7)
"""Places of user, nice, system, irq and softirq in a line of /proc/stat."""
LOOK_S = 0.3


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

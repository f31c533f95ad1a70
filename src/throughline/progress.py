"""Print the progress of long work to stderr: how much is done, and the time left. Short work prints nothing."""

import sys
import time

from rich.filesize import decimal


class Progress:
    """Counts bytes up to a total, and prints a line from time to time. `done` bytes existed before this work began."""

    def __init__(self, what: str, total: int, *, done: int = 0, quiet_s: float = 5) -> None:
        self.what, self.total = what, total
        self.done = self._before = done
        self._begun = time.monotonic()
        self._next = self._begun + quiet_s

    def to(self, done: int) -> None:
        """Set the number of bytes that are done to `done`."""
        self.done = done
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 10
            print(self.line(now - self._begun), file=sys.stderr, flush=True)

    def line(self, elapsed_s: float) -> str:
        """Return the line to print after `elapsed_s` seconds."""
        if not self._before < self.done <= self.total:
            return f"{self.what}: {decimal(self.done)}"
        left_s = elapsed_s * (self.total - self.done) / (self.done - self._before)
        done = f"{decimal(self.done)} of {decimal(self.total)} ({self.done / self.total:.0%})"
        return f"{self.what}: {done}, about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """Return a duration in words, such as `90 s`, `12 min` or `2.5 h`."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"

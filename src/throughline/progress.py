"""Print the progress of long work to stderr: how much is done, and the time left. Short work prints nothing."""

import sys
import time


class Progress:
    """Counts bytes up to a total, and prints a line from time to time. `done` bytes existed before this work began."""

    def __init__(self, what: str, total: int, *, done: int = 0, quiet_s: float = 5) -> None:
        self.what, self.total = what, total
        self.done = self._there = done
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
        if not self._there < self.done <= self.total:
            return f"{self.what}: {_amount(self.done)}"
        left_s = elapsed_s * (self.total - self.done) / (self.done - self._there)
        return (
            f"{self.what}: {_amount(self.done)} of {_amount(self.total)}"
            f" ({self.done / self.total:.0%}), about {_duration(left_s)} left"
        )


def _amount(value: int) -> str:
    for factor, prefix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {prefix}B"
    return f"{value} B"


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

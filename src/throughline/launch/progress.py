"""Show the progress of a run in a line on stderr, and detect a run that no longer progresses (Watchdog)."""

import sys
import time
from typing import TextIO

from throughline import handover
from throughline.messages import Beat
from throughline.spec import RunSpec

# The console shows the last line, and gets lines more often.
EVERY_S, TERMINAL_EVERY_S = float(handover.get("progress_s", 15)), 0.5
HANG_AFTER_S = 300.0
COMPILE_HANG_AFTER_S = 1800.0
"""A compiler may need this long for the first step."""

PHASES = (
    "start", "join", "device", "model", "data", "optimizer", "warm-up", "evaluation", "checkpoint", "training", "end",
)  # fmt: skip
"""The phases of a run in their order.

A rank that waits for another rank may be several phases ahead of it, such as while rank 0 evaluates or writes.
"""


class Progress:
    """Prints a progress line: on a terminal, always the same line; otherwise, a new line from time to time."""

    def __init__(self, spec: RunSpec, stream: TextIO | None = None) -> None:
        where = f"{spec.benchmark} {spec.precision} bz{spec.batch}"
        self._title = f"{where} {spec.framework} {spec.topology} run {spec.repeat}"
        self._samples = spec.size.global_batch
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._said = time.monotonic()
        self._began: tuple[str, float, int] = ("", 0.0, 0)

    def show(self, beats: list[Beat]) -> None:
        """Print the progress of the slowest rank, if the last line is old enough."""
        now = time.monotonic()
        beat = min(beats, key=lambda beat: beat.step)
        if beat.phase != self._began[0]:
            self._began = (beat.phase, now, beat.step)
        if now - self._said >= (TERMINAL_EVERY_S if self._terminal else EVERY_S):
            self._said = now
            self.say(self._line(beat, now), "\r" if self._terminal else "\n")

    def say(self, text: str, end: str = "\n") -> None:
        """Print a line. A line that ends with a line feed stays on the terminal."""
        start = "\x1b[2K" if self._terminal else ""
        print(f"{start}{self._title}: {text}", end=end, file=self._stream, flush=True)

    def _line(self, beat: Beat, now: float) -> str:
        if not beat.steps:
            return beat.phase
        text = ("" if beat.phase == "training" else f"{beat.phase} ") + f"step {beat.step}/{beat.steps}"
        steps, seconds = beat.step - self._began[2], now - self._began[1]
        if steps and seconds:
            left = (beat.steps - beat.step) * seconds / steps
            text += f", {steps * self._samples / seconds:.0f} samples/s, {left:.0f} s left"
        return text


class Watchdog:
    """Detects hanging runs: no rank has made a step or changed its phase for `limit_s` seconds.

    seen: the progress of every rank at the last look.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self.limit_s = limit_s
        self._moved, self.seen = now, list[Beat]()

    def look(self, beats: list[Beat], now: float) -> str | None:
        """Return None while any rank progresses; otherwise, a text that says where the slowest rank is."""
        if beats != self.seen:
            self.seen, self._moved = list(beats), now
        if now - self._moved < self.limit_s or not beats:
            return None
        rank = min(range(len(beats)), key=lambda r: (PHASES.index(beats[r].phase), beats[r].step))
        return f"no progress for {self.limit_s:.0f} s: {in_words(rank, beats[rank])}"


def in_words(rank: int, beat: Beat) -> str:
    """Return a rank's progress in words, such as `rank 1 in training, step 5 of 100`."""
    return f"rank {rank} in {beat.phase}" + (f", step {beat.step} of {beat.steps}" if beat.steps else "")

"""One line of progress per run on stderr: rewritten in place on a terminal, else now and then."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from throughline.messages import Beat

EVERY_S, TERMINAL_EVERY_S = 15.0, 0.5


def title(spec: dict[str, Any]) -> str:
    """`bert fp32 bz32 torch 1n2g run 1`."""
    where = f"{spec['benchmark']} {spec['precision']} bz{spec['batch_per_device']}"
    return f"{where} {spec['framework']} {spec['topology']} run {spec['repeat']}"


class Progress:
    """`samples_per_step` is of all ranks together."""

    def __init__(self, spec: dict[str, Any], samples_per_step: int, stream: TextIO | None = None) -> None:
        self._title, self._samples = title(spec), samples_per_step
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._said = time.monotonic()
        self._began: tuple[str, float, int] = ("", 0.0, 0)

    def show(self, beats: list[Beat]) -> None:
        """Show the slowest rank, if it is time to."""
        now = time.monotonic()
        beat = min(beats, key=lambda beat: beat.step)
        if beat.phase != self._began[0]:
            self._began = (beat.phase, now, beat.step)
        if now - self._said >= (TERMINAL_EVERY_S if self._terminal else EVERY_S):
            self._said = now
            self._write(self._line(beat, now), "\r" if self._terminal else "\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(text, "\n")

    def _line(self, beat: Beat, now: float) -> str:
        if not beat.steps:
            return beat.phase
        text = ("" if beat.phase == "training" else f"{beat.phase} ") + f"step {beat.step}/{beat.steps}"
        steps, seconds = beat.step - self._began[2], now - self._began[1]
        if steps and seconds:
            left = (beat.steps - beat.step) * seconds / steps
            text += f", {steps * self._samples / seconds:.0f} samples/s, {left:.0f} s left"
        return text

    def _write(self, text: str, end: str) -> None:
        line = f"{self._title}: {text}"
        if self._terminal:
            line = f"\x1b[2K{line}"
        print(line, end=end, file=self._stream, flush=True)

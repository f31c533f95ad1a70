"""Finds a run that has stopped moving. It looks from outside: a worker that hangs cannot say so."""

from __future__ import annotations

from throughline.messages import Beat

HANG_AFTER_S = 300.0
COMPILE_HANG_AFTER_S = 1800.0
"""A compiler may work that long on the first step."""


PHASES = ("start", "join", "device", "model", "data", "optimizer", "warm-up", "training", "end")
"""In a run's order: who waits for another rank may be phases ahead of it."""


class Watchdog:
    """Remembers when any rank last moved. A step that takes longer than the limit counts as a hang."""

    def __init__(self, limit_s: float, now: float) -> None:
        self.limit_s = limit_s
        self._moved, self._seen = now, list[Beat]()

    def look(self, beats: list[Beat], now: float) -> str | None:
        """None while something moves, else who stands where: the rank that is furthest behind."""
        if beats != self._seen:
            self._seen, self._moved = list(beats), now
        if now - self._moved < self.limit_s or not beats:
            return None
        rank = min(range(len(beats)), key=lambda r: (PHASES.index(beats[r].phase), beats[r].step))
        return f"no progress for {self.limit_s:.0f} s: {place(rank, beats[rank])}"


def place(rank: int, beat: Beat) -> str:
    """`rank 1 in training, step 5 of 100`."""
    return f"rank {rank} in {beat.phase}" + (f", step {beat.step} of {beat.steps}" if beat.steps else "")

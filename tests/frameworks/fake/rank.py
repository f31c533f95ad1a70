"""One rank of `fake`, in numpy.

It trains, its ranks exchange gradients, and its loss falls. Variables change its behaviour. FAKE_HANGS_IN names a phase
in which rank 1 hangs for ever. FAKE_STEPS_MS lists the milliseconds that its steps sleep, in turn. From step
FAKE_DIVERGES_AT on, its loss is not a number.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from throughline import memory
from throughline.frameworks.rank import SETTINGS, Rank
from throughline.spec import RunSpec
from throughline.workloads import Unsupported

IMPORT_S = 1
"""Seconds that the import of a real library takes."""


class Fake(Rank):
    def __init__(self, spec: RunSpec[Any], rank: int, local_rank: int, world: int, kind: str) -> None:
        super().__init__(spec, rank, local_rank, world, kind)
        self.others: list[Connection[Any, Any]] = []
        self.left = float(os.environ.get("FAKE_DIVERGES_AT", "inf"))
        self.sleeps = itertools.cycle(float(each) for each in os.environ.get("FAKE_STEPS_MS", "0").split(","))

    def join(self) -> None:
        self._hang("join")
        if "FAKE_STEPS_MS" in os.environ:  # tests that look at times need telemetry, whose sampler needs time to start
            time.sleep(IMPORT_S)
        meeting = str(Path(os.environ["THROUGHLINE_NODE"]) / "meeting")
        if self.world > 1 and self.rank == 0:
            with Listener(meeting) as listener:
                self.others = [listener.accept() for _ in range(self.world - 1)]
        elif self.world > 1:
            deadline = time.monotonic() + 60
            while not self.others:
                try:
                    self.others = [Client(meeting)]
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def device(self) -> None:
        if self.spec.precision not in ("fp32", "bf16"):
            raise Unsupported("the fake framework counts in fp32")

    def model(self, facts: dict[str, Any]) -> None:
        self.network: np.ndarray = self.form.build(self.spec, facts)

    def data(self, arrays: dict[str, Any]) -> Any:
        return self.form.batch(arrays)

    def optimizer(self) -> None:
        self.rate = self.spec.optimizer.learning_rate * 1e4

    def set_rate(self, rate: float) -> None:
        self.rate = rate * 1e4

    def step(self, batches: list[Any]) -> float:
        self._hang("training")
        time.sleep(next(self.sleeps) / 1000)
        self.left -= 1
        total, gradient = 0.0 if self.left > 0 else math.nan, np.zeros_like(self.network)
        for batch in batches:
            loss, slope = self.form.loss(self.network, batch)
            total += loss / len(batches)
            gradient += slope / len(batches)
        gradient = self._mean(gradient) if self.options.gradient_sync else gradient
        if self.options.clip != "none":
            gradient /= max(1.0, float(np.linalg.norm(gradient)))
        self.network -= self.rate * gradient
        return total

    def _mean(self, value: np.ndarray) -> np.ndarray:
        """Return the ranks' mean: every rank sends to rank 0, which sends the mean back."""
        if self.world == 1:
            return value
        if self.rank == 0:
            value = (value + sum(other.recv() for other in self.others)) / self.world
            for other in self.others:
                other.send(value)
            return value
        self.others[0].send(value)
        received: np.ndarray = self.others[0].recv()
        return received

    def barrier(self) -> None:
        self._mean(np.zeros(1))

    def broadcast(self, value: int) -> int:
        return round(float(self._mean(np.array([value if self.rank == 0 else 0.0]))[0]) * self.world)

    def multiplied(self, left: Any, right: Any) -> Any:
        """Multiply, with FAKE_MULTIPLIES_WITH bits behind the point of each operand if the variable is set."""
        bits = int(os.environ.get("FAKE_MULTIPLIES_WITH", 24))
        left, right = (np.ldexp(np.rint(np.ldexp(part, bits)), -bits) for part in (left, right))
        return left @ right

    def memory(self) -> dict[str, Any]:
        return memory.of_process()

    def settings(self) -> dict[str, Any]:
        own = {"optimizer": "sgd", "learning_rate": self.rate}
        return {**dict.fromkeys(SETTINGS), **self.form.settings(self.network), **own}

    def versions(self) -> dict[str, str | None]:
        return {"numpy": np.__version__, **self.form.versions()}

    def close(self) -> None:
        for other in self.others:
            other.close()

    def _hang(self, phase: str) -> None:
        if self.rank == self.world - 1 and os.environ.get("FAKE_HANGS_IN") == phase:
            time.sleep(3600)

"""`fake`: a framework without a framework, in numpy. Copy it to begin with one of your own (docs/add-a-framework.md).

Its model is as small as a model can be: one number per word of the vocabulary, trained to say how often each word is
masked, whatever the sentence. It trains, its ranks exchange gradients, and its loss falls; it is no BERT, and the
equivalence of its mathematics says so. FAKE_HANGS_IN names a phase in which rank 1 stands still for ever;
FAKE_STEPS_MS are the milliseconds that its steps sleep, in turn; FAKE_TAKES names what it then takes for granted.
"""

from __future__ import annotations

import itertools
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from throughline import memory
from throughline.frameworks import SETTINGS, Spec, Unsupported


class Fake:
    def __init__(self, spec: Spec, rank: int, local_rank: int, world: int, kind: str) -> None:
        self.spec, self.options = spec, spec["options"]
        self.rank, self.world, self.kind = rank, world, kind
        self.others: list[Connection[Any, Any]] = []
        self.sleeps = itertools.cycle(float(each) for each in os.environ.get("FAKE_STEPS_MS", "0").split(","))

    def join(self) -> None:
        self._hang("join")
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
        if os.environ.get("FAKE_TAKES") == "everything":
            return
        if self.spec["precision"] != "fp32":
            raise Unsupported("the fake framework counts in fp32")
        if self.options["compile"] or self.options["checkpointing"]:
            raise Unsupported("the fake framework has nothing to compile or to recompute")

    def model(self, facts: dict[str, Any]) -> None:
        self.scores = np.zeros(facts["vocabulary"], np.float32)

    def load(self, weights: dict[str, Any]) -> None:
        """None of a BERT's weights has a place in it."""

    def data(self, arrays: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        return arrays["labels"].reshape(-1), (arrays["positions"] != 0).reshape(-1)

    def deliver(self, batch: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return batch

    def optimizer(self) -> None:
        self.rate = self.spec["optimizer"]["learning_rate"] * 1e4

    def step(self, batches: list[tuple[np.ndarray, np.ndarray]]) -> float:
        self._hang("training")
        time.sleep(next(self.sleeps) / 1000)
        total, gradient = 0.0, np.zeros_like(self.scores)
        for labels, weights in batches:
            shares = np.exp(self.scores - self.scores.max())
            shares /= shares.sum()
            seen = np.bincount(labels, weights, len(shares)) / weights.sum()
            total -= float((np.log(shares[labels]) * weights).sum() / weights.sum()) / len(batches)
            gradient += (shares - seen).astype(np.float32) / len(batches)
        gradient = self._mean(gradient) if self.options["exchange"] else gradient
        if self.options["clip"] != "none":
            gradient /= max(1.0, float(np.linalg.norm(gradient)))
        self.scores -= self.rate * gradient
        return total

    def _mean(self, value: np.ndarray) -> np.ndarray:
        """The ranks' mean: everybody sends to rank 0, which sends back."""
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

    def sync(self) -> None:
        """Nothing is ever under way."""

    def barrier(self) -> None:
        self._mean(np.zeros(1))

    def broadcast(self, value: int) -> int:
        return round(float(self._mean(np.array([value if self.rank == 0 else 0.0]))[0]) * self.world)

    def mark(self) -> float:
        return time.monotonic()

    def seconds(self, marks: list[float]) -> list[float]:
        return [end - start for start, end in itertools.pairwise(marks)]

    def losses(self, values: list[float]) -> list[float]:
        return values

    def skipped(self) -> int:
        return 0

    def memory(self) -> dict[str, Any]:
        return memory.of_process("the fake framework")

    def settings(self) -> dict[str, Any]:
        own = {"parameters": len(self.scores), "optimizer": "sgd", "learning_rate": self.rate, "loss": "masked words"}
        return {**dict.fromkeys(SETTINGS), **own}

    def versions(self) -> dict[str, str | None]:
        return {"numpy": np.__version__}

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def close(self) -> None:
        for other in self.others:
            other.close()

    def _hang(self, phase: str) -> None:
        if self.rank == self.world - 1 and os.environ.get("FAKE_HANGS_IN") == phase:
            time.sleep(3600)

"""Read batches of pixels for training. Other processes decode them ahead of time.

A row only states the shard, the picture in it and the epoch. Processes of the workflow's own environment, which has
Pillow, decode the rows into memory that they share with the rank. So every framework gets the same pixels from the same
decoder. Each of n processes decodes every n-th row of every batch, so the batches do not depend on n.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import processes
from throughline.images.layout import HEADER, HELD_OUT, batch_bytes, views
from throughline.workloads import Unsupported
from throughline.workloads.faces import SIDE

DRAWN = "random crops and flips drawn anew each epoch"
Arrays = dict[str, NDArray[Any]]


def reader(content: Mapping[str, Any], folder: Path, parameters: Any, seed: int) -> PictureReader:
    """Return a reader (`rank.data.Decoder`) for the shards in `folder` that a manifest (`content`) lists.

    `parameters` and `seed` are those of the run. Faces, whose parameters have no `image`, are shown whole.
    """
    image = getattr(parameters, "image", None)
    return PictureReader(content, folder, image or SIDE, seed, crops=image is not None)


class PictureReader:
    """Reads pictures of `image` pixels in height and width. Without `crops`, each is shown whole and only mirrored."""

    slots = 2
    """How many batches are decoded at a time."""

    def __init__(self, content: Mapping[str, Any], folder: Path, image: int, seed: int, crops: bool) -> None:
        self.folder, self.image, self.seed, self.shards = folder, image, seed, content["shards"]
        self.numbers = {shard["file"]: number for number, shard in enumerate(self.shards)}
        self.crops, self.drawn = crops, DRAWN if crops else "flips drawn anew each epoch"
        self.how: str | None = self.drawn

    def rows(self, shard: Mapping[str, Any]) -> int:
        return int(shard["rows"])

    def read(self, shard: Mapping[str, Any], epoch: int) -> Arrays:
        """Return `rows` i8[rows, 3]: the number of the shard, of the picture in it, and of the epoch."""
        rows = np.empty((self.rows(shard), 3), np.int64)
        rows[:, 0] = self.numbers[shard["file"]]
        rows[:, 1] = np.arange(len(rows))
        rows[:, 2] = HELD_OUT if shard["split"] == "test" else epoch
        return {"rows": rows}

    def batch_bytes(self, size: int) -> int:
        return batch_bytes(size, self.image)

    def decoded(self, rows: Iterator[Arrays], size: int, processes: int, python: str) -> Iterator[Arrays]:
        """Yield `pixels` u1[B, S, S, 3] and `labels` i4[B] of batches of at most `size` rows, decoded by processes.

        `processes`: how many processes there are, at most one per row. `python`: the interpreter that runs them.
        """
        count = min(processes, size)
        memory = os.memfd_create("pictures")  # it leaves no file behind, and /dev/shm does not limit it
        workers: list[subprocess.Popen[bytes]] = []
        try:
            os.ftruncate(memory, self.slots * self.batch_bytes(size))
            shared = mmap.mmap(memory, 0)
            for _ in range(count):
                workers.append(self._started(memory, size, python))
            versions = ", ".join(sorted({_answer(worker) for worker in workers}))
            self.how = f"{self.drawn}, decoded by Pillow {versions} in {count} process{'es' * (count > 1)}"
            asked: deque[tuple[int, int]] = deque()  # slot and number of rows
            slots = cycle(range(self.slots))
            while True:
                while len(asked) < self.slots and (batch := next(rows, None)) is not None:
                    slot = next(slots)
                    for first, worker in enumerate(workers):
                        _ask(worker, slot, batch["rows"], first, count)
                    asked.append((slot, len(batch["rows"])))
                if not asked:
                    return
                slot, length = asked.popleft()
                if problem := next(filter(None, [_answer(worker) for worker in workers]), None):
                    raise RuntimeError(problem)
                pixels, labels = views(shared, slot, size, self.image)
                yield {"pixels": pixels[:length].copy(), "labels": labels[:length].copy()}
        finally:
            for worker in workers:
                worker.kill()
                with suppress(OSError):
                    worker.communicate()
            os.close(memory)

    def by_dali(
        self, rows: Iterator[Arrays], size: int, threads: int, gpu: int | None, stays: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the same arrays, decoded by DALI in this process. Unsupported if this environment has no DALI.

        `stays`: pixels are left where they were decoded.
        """
        try:
            from throughline.images import dali
        except ImportError as error:
            raise Unsupported(
                f"options.image_decoder is dali, and this framework's environment lacks it ({error}): install DALI "
                "there (throughline dali FRAMEWORK), or leave the option out"
            ) from None
        self.how = f"{self.drawn}, decoded by DALI {dali.VERSION} on the " + (
            "CPU" if gpu is None else "GPU, where the pixels stay" if stays else "GPU, through the host's memory"
        )
        return dali.decoded(self.job, rows, size, threads, gpu, self.slots, stays)

    @property
    def job(self) -> dict[str, Any]:
        """The description of the work that a decoder needs."""
        return {
            "folder": str(self.folder),
            "shards": [{key: shard[key] for key in ("file", "index")} for shard in self.shards],
            "image": self.image,
            "seed": self.seed,
            "crops": self.crops,
        }

    def _started(self, memory: int, size: int, python: str) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            processes.module(python, "throughline.images.decoding"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[memory],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        job = {**self.job, "size": size, "memory": memory, "parent": os.getpid()}
        assert worker.stdin
        worker.stdin.write(json.dumps(job).encode() + b"\n")
        worker.stdin.flush()
        return worker


def _ask(worker: subprocess.Popen[bytes], slot: int, rows: NDArray[Any], first: int, step: int) -> None:
    share = np.ascontiguousarray(rows[first::step])
    assert worker.stdin
    with suppress(BrokenPipeError):  # `_answer` reports how the process ended
        worker.stdin.write(HEADER.pack(slot, len(share), first, step) + share.tobytes())
        worker.stdin.flush()


def _answer(worker: subprocess.Popen[bytes]) -> str:
    assert worker.stdout
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"a process that decodes pictures ended with status {worker.wait()}")
    return line.decode().strip()

"""Training data for one rank: the manifest, its shards, and batches that are ready before a step needs them.

The data package knows the format of its shards (`throughline.<room>.reading`). Here, one thread reads one shard ahead,
and another one gathers batches into a short queue. Each replica of the model reads its own rows; ranks that share a
replica read the same. Standard library and numpy only.
"""

import importlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from throughline import files, workloads
from throughline.files import UserError
from throughline.spec import RunSpec
from throughline.workloads import Arrays, Workload

AHEAD = 8
"""How many batches we prepare before they are needed."""
AHEAD_BYTES = 256 << 20
"""The memory for decoded batches that are prepared ahead. We prepare at least three, even if they need more."""
GATHERED = 1024
"""How many rows we gather at a time, rounded up to whole batches."""
SYNTHETIC_BATCHES = 4
"""The number of different batches on the device with synthetic data."""


PACKAGES = {"faces": "images"}
"""The data package of a section, if the package has another name."""
Shard = Mapping[str, Any]
"""The entry of a shard in its manifest."""


class Reader(Protocol):
    """Reads shards. A data package's `reading.reader` makes one from a manifest's content and folder, and a run's
    parameters and seed."""

    how: str | None
    """What reading adds to the data, in words (such as new masks in each epoch); None if rows are read unchanged."""

    def rows(self, shard: Shard) -> int:
        """Return how many rows a shard gives in every epoch, with the run's parameters."""

    def read(self, shard: Shard, epoch: int) -> Arrays:
        """Return all rows of a shard for this epoch, as arrays whose first axis is the row."""


@runtime_checkable
class Decoder(Reader, Protocol):
    """A reader whose rows only name samples, such as pictures. Other processes decode whole batches of samples."""

    slots: int
    """How many batches are decoded at the same time."""

    def batch_bytes(self, size: int) -> int:
        """Return the size in bytes of a decoded batch with `size` rows."""

    def decoded(self, rows: Iterator[Arrays], size: int, processes: int, python: str) -> Iterator[Arrays]:
        """Yield the decoded arrays of each batch (at most `size` rows), in the order of the batches.

        `python` is the interpreter of the decoding processes. They end when the iterator or this process ends.
        """

    def by_dali(
        self, rows: Iterator[Arrays], size: int, threads: int, gpu: int | None, stays: bool = False
    ) -> Iterator[Arrays]:
        """Do the same with DALI in this process, on GPU number `gpu` (None: on the CPU). May raise Unsupported.

        `stays`: what was decoded on the GPU stays there, as tensors that other libraries read by DLPack.
        """


class Manifest:
    """A manifest.json of the data package `room`: its shards by split, and the reader for these parameters and seed."""

    def __init__(self, path: Path, room: str, parameters: Any = None, seed: int = 0) -> None:
        if not path.is_file():
            raise UserError(f"{path} does not exist", next_step=f"make the data: {files.snakemake(str(path))}")
        self.path, self.room, self.content = path, room, files.read_json(path)
        self.shards = [shard for shard in self.content["shards"] if shard["split"] == "training"]
        self.held_out = [shard for shard in self.content["shards"] if shard["split"] == "test"]
        reading = importlib.import_module(f"throughline.{PACKAGES.get(room, room)}.reading")
        self.reader: Reader = reading.reader(self.content, path.parent, parameters, seed)
        self.rows = sum(map(self.reader.rows, self.shards))
        self.all_rows = self.rows + sum(map(self.reader.rows, self.held_out))

    @classmethod
    def of_run(cls, spec: RunSpec, path: str | Path) -> "Manifest":
        """Return the manifest in a file, read as a run of this specification reads it."""
        return cls(Path(path), str(workloads.of(spec.model).data), spec.parameters, spec.seed)

    def fits(self, workload: Workload[Any], parameters: Any, replicas: int) -> None:
        """Raise UserError unless the shards fit these parameters and have at least one row for every replica."""
        fault = workload.fits(parameters, self.content)
        if fault:
            what, _, reason = fault.partition("; ")
            raise UserError(
                f"{self.path} {what}",
                why=reason or None,
                next_step=f"correct the section {self.room} in config.yaml, or use the manifest that fits",
            )
        # With fewer shards than replicas, all replicas share every shard.
        shared = max(map(self.reader.rows, self.shards), default=0) if len(self.shards) < replicas else self.rows
        if shared < replicas:
            raise UserError(
                f"{self.path} lists {self.rows} training rows for {replicas} replicas of the model",
                why="every replica reads other rows; with fewer shards than replicas, each reads rows of every shard",
                next_step="use more data, or fewer devices",
            )

    def file(self, shard: dict[str, Any]) -> Path:
        return self.path.parent / str(shard["file"])

    def used(self, seed: int, replicas: int, count: int, size: int) -> list[dict[str, Any]]:
        """Return the shards that any replica reads for `count` batches of `size` rows, with what is read ahead."""
        needed = (count + AHEAD + 1) * size  # a full queue, and one batch that waits for a place in it
        used: set[int] = set()
        for replica in range(replicas):
            rows = 0
            for _, shard, each in self.order(seed, replica, replicas):
                used.add(shard)
                if rows >= needed or len(used) == len(self.shards):
                    break
                rows += each
        return [self.shards[shard] for shard in sorted(used)]

    def ahead(self, size: int) -> int:
        """Return how many batches of `size` rows may wait in the queue, without those that are being decoded."""
        if not isinstance(self.reader, Decoder):
            return AHEAD
        return max(1, min(AHEAD, AHEAD_BYTES // self.reader.batch_bytes(size)) - self.reader.slots)

    def decoded(
        self, rows: Iterator[Arrays], size: int, processes: int = 1, python: str = sys.executable
    ) -> Iterator[Arrays]:
        """Return the batches that a workload takes: decoded if the reader is a Decoder, otherwise unchanged."""
        return self.reader.decoded(rows, size, processes, python) if isinstance(self.reader, Decoder) else rows

    def order(self, seed: int, replica: int, replicas: int) -> Iterator[tuple[int, int, int]]:
        """Yield (epoch, shard, this replica's rows in it) without end. Each epoch has another order of shards.

        If there are at least as many shards as replicas, each replica reads whole shards of its own. Otherwise each
        replica reads all shards and takes every `replicas`-th row.
        """
        epoch, whole = 0, len(self.shards) >= replicas
        while True:
            order = [int(shard) for shard in _shuffled(len(self.shards), seed, epoch)]
            for shard in order[replica::replicas] if whole else order:
                rows = self.reader.rows(self.shards[shard])
                if count := rows if whole else len(range(replica, rows, replicas)):
                    yield epoch, shard, count
            epoch += 1

    def check(self, shards: list[dict[str, Any]]) -> None:
        """Raise UserError, with the command that repairs it, if a shard is missing or differs from the manifest."""
        with ThreadPoolExecutor(4) as pool:
            for path, fault in zip(map(self.file, shards), pool.map(self._fault, shards), strict=True):
                if fault:
                    raise UserError(
                        f"{path} {fault}",
                        why=f"it was removed, or its content differs from {self.path}",
                        next_step=f"repair it: {files.snakemake('--force', str(path))}",
                    )

    def _fault(self, shard: dict[str, Any]) -> str | None:
        for entry in filter(None, (shard, shard.get("index"))):
            path, beside = self.file(entry), "" if entry is shard else f" in its index {entry['file']}"
            if not path.is_file():
                return f"is missing{beside}"
            if files.sha256(path) != entry["sha256"]:
                return f"was changed{beside}: its sha256 differs"
        return None


def _shuffled(count: int, *key: int) -> Any:
    """Return a permutation of range(count) that is the same with every version of numpy."""
    import numpy as np

    bits = np.random.Philox(key=int.from_bytes(b"".join(k.to_bytes(4, "little") for k in key), "little"))
    return np.argsort(bits.random_raw(count), kind="stable")


def batches(manifest: Manifest, seed: int, replica: int, replicas: int, size: int) -> Iterator[Arrays]:
    """Yield batches of `size` rows for this replica without end. Rows are shuffled within a shard."""
    import numpy as np

    whole = len(manifest.shards) >= replicas
    order = manifest.order(seed, replica, replicas)
    parts: list[Arrays] = []
    need, together = size, size * -(-GATHERED // size)
    with ThreadPoolExecutor(1, thread_name_prefix="shard") as pool:

        def start() -> tuple[int, int, Any]:
            epoch, shard, _ = next(order)
            return epoch, shard, pool.submit(manifest.reader.read, manifest.shards[shard], epoch)

        following = start()
        while True:
            (epoch, shard, future), following = following, start()
            rows = future.result()
            chosen = _shuffled(len(next(iter(rows.values()))), seed, epoch, 1 + shard)
            chosen = chosen if whole else chosen[replica::replicas]
            for first in range(0, len(chosen), together):
                taken = chosen[first : first + together]
                gathered = {name: array[taken] for name, array in rows.items()}
                begin, count = 0, len(taken)
                while begin < count:
                    parts.append({name: array[begin : begin + need] for name, array in gathered.items()})
                    begin, need = begin + need, max(0, begin + need - count)
                    if need == 0:
                        joined = parts[0]
                        if len(parts) > 1:
                            joined = {name: np.concatenate([part[name] for part in parts]) for name in rows}
                        yield joined
                        parts, need = [], size


def held_out(manifest: Manifest, count: int) -> Arrays:
    """Return the first `count` held-out rows, as arrays by name. Raise UserError if there are fewer rows."""
    import numpy as np

    has = sum(map(manifest.reader.rows, manifest.held_out))
    if has < count:
        raise UserError(
            f"{manifest.path} has {has} held-out rows for an evaluation over {count}",
            next_step="use more data, or set job.held_out to a smaller number",
        )
    parts = list(first_held_out(manifest, count, count))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def first_held_out(manifest: Manifest, samples: int, size: int) -> Iterator[Arrays]:
    """Yield the first `samples` rows of the test shards, at most `size` at a time."""
    import numpy as np

    left = samples
    for shard in manifest.held_out:
        rows = manifest.reader.read(shard, 0)
        count = min(left, manifest.reader.rows(shard))
        for start in range(0, count, size):
            until = min(start + size, count)
            yield {name: np.ascontiguousarray(array[start:until]) for name, array in rows.items()}
        left -= count


def synthetic_seeds(seed: int, replica: int) -> list[int]:
    """Return the seeds of the synthetic batches that a replica trains on in turn."""
    return [seed * 1_000_003 + replica * SYNTHETIC_BATCHES + turn for turn in range(SYNTHETIC_BATCHES)]


class Loader:
    """Prepares items of `source` in a thread. `next()` returns one, and adds the seconds it waited to `stall_s`."""

    def __init__(self, source: Iterator[Any], prepare: Callable[[Any], Any], ahead: int = AHEAD) -> None:
        self.stall_s, self.ahead = 0.0, ahead
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one entry for each batch that may be prepared
        for _ in range(ahead):
            self._room.put(None)
        self._source, self._prepare = source, prepare
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="loader", daemon=True)
        self._thread.start()

    def next(self) -> Any:
        """Return the next item. Raise the error of the thread, if it had one."""
        try:
            item = self._items.get_nowait()
        except queue.Empty:
            start = time.monotonic()
            item = self._items.get()
            self.stall_s += time.monotonic() - start
        self._room.put(None)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._stopped.set()
        self._room.put(None)
        self._thread.join()

    def _fill(self) -> None:
        try:
            for item in self._source:
                prepared = self._prepare(item)
                self._room.get()
                if self._stopped.is_set():
                    return
                self._items.put(prepared)
        except BaseException as error:  # `next` raises it in the training thread
            self._items.put(error)

"""Training data for one rank: manifest, shards, and batches that are ready before the step asks for them.

What stands in a shard, and how its rows are read, is the data room's (`throughline.<room>.reading`). Here a thread
reads one shard ahead, and another gathers batches into a short queue; the training thread runs meanwhile. A replica
reads rows of its own: the ranks that share one read the same. Standard library and numpy only.
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

from throughline import files
from throughline.files import UserError
from throughline.workloads import Arrays, Workload

AHEAD = 8
"""Batches that are ready, or nearly so, before they are needed."""
AHEAD_BYTES = 256 << 20
"""Where batches are decoded: what those may hold together. There are three at least."""
GATHERED = 1024
"""Rows that are gathered at a time, or a few more: whole batches."""
SYNTHETIC_BATCHES = 4
"""Different batches on the device, where nothing is read."""


Shard = Mapping[str, Any]
"""A shard as its manifest lists it."""


class Reader(Protocol):
    """What a data room's `reading.reader` gives for a manifest's content, its folder, a run's parameters and seed."""

    how: str | None
    """What reading adds to the data, in words; None where they are read as they are."""

    def rows(self, shard: Shard) -> int:
        """How many rows these parameters get from a shard, in every epoch."""

    def read(self, shard: Shard, epoch: int) -> Arrays:
        """A shard's arrays, whole, with a row each as they are in the epoch."""


@runtime_checkable
class Decoder(Reader, Protocol):
    """A reader whose rows only name samples, such as pictures: it has other processes decode whole batches of them."""

    slots: int
    """Batches that are being decoded at a time."""

    def batch_bytes(self, size: int) -> int:
        """The bytes of a decoded batch of so many rows."""

    def decoded(self, rows: Iterator[Arrays], size: int, processes: int, python: str) -> Iterator[Arrays]:
        """The arrays of batches of at most `size` rows, in their order; `python` is the interpreter of the processes.
        They end with this iterator, and with this process."""

    def by_dali(self, rows: Iterator[Arrays], size: int, threads: int, gpu: int | None) -> Iterator[Arrays]:
        """The same by DALI in this process, on the GPU of this number if it has one. Raises Unsupported."""


class Manifest:
    """A manifest.json of the data room `room`: its shards, by their split, and the reader that knows how a run with
    these parameters and this seed reads them."""

    def __init__(self, path: Path, room: str, parameters: Any = None, seed: int = 0, repair: str | None = None) -> None:
        if not path.is_file():
            raise UserError(
                f"{path} does not exist", next_step=f"make the data: {repair or files.snakemake(str(path))}"
            )
        self.path, self.room, self.content = path, room, files.read_json(path)
        self.shards = [shard for shard in self.content["shards"] if shard["split"] == "training"]
        self.held_out = [shard for shard in self.content["shards"] if shard["split"] == "test"]
        made = importlib.import_module(f"throughline.{room}.reading").reader
        self.reader: Reader = made(self.content, path.parent, parameters, seed)
        self.rows = sum(map(self.reader.rows, self.shards))
        self.all_rows = self.rows + sum(map(self.reader.rows, self.held_out))

    def fits(self, workload: Workload, parameters: Any, replicas: int) -> None:
        """UserError unless the shards are what these parameters need, with a row for every replica."""
        fault = workload.fits(parameters, self.content)
        if fault:
            what, _, why = fault.partition("; ")
            raise UserError(
                f"{self.path} {what}",
                why=why or None,
                next_step=f"correct the section {self.room} in config.yaml, or use the manifest that fits",
            )
        # where shards are fewer than replicas, all share each of them
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
        """The shards that any replica reads for `count` batches of `size` rows, for those that are prepared ahead of
        need, and one shard more, which is read ahead."""
        needed = (count + AHEAD + 1) * size  # the queue is full, and one batch waits for room
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
        """Batches of `size` rows that may wait, beside those that are being decoded."""
        if not isinstance(self.reader, Decoder):
            return AHEAD
        return max(1, min(AHEAD, AHEAD_BYTES // self.reader.batch_bytes(size)) - self.reader.slots)

    def decoded(
        self, rows: Iterator[Arrays], size: int, processes: int = 1, python: str = sys.executable
    ) -> Iterator[Arrays]:
        """What a workload takes, from batches of rows as the reader gives them."""
        return self.reader.decoded(rows, size, processes, python) if isinstance(self.reader, Decoder) else rows

    def order(self, seed: int, replica: int, replicas: int) -> Iterator[tuple[int, int, int]]:
        """(epoch, shard, this replica's rows in it), for ever: shards in another order each epoch.

        With a shard for every replica, each reads whole shards of its own; otherwise every one reads all of them and
        takes each `replicas`-th row.
        """
        epoch, whole = 0, len(self.shards) >= replicas
        while True:
            order = [int(shard) for shard in _shuffled(len(self.shards), seed, epoch)]
            for shard in order[replica::replicas] if whole else order:
                rows = self.reader.rows(self.shards[shard])
                if count := rows if whole else len(range(replica, rows, replicas)):
                    yield epoch, shard, count
            epoch += 1

    def check(self, shards: list[dict[str, Any]], repair: str | None = None) -> None:
        """UserError, naming the command that repairs it, where a shard is missing or not what the manifest says."""
        with ThreadPoolExecutor(4) as pool:
            for path, fault in zip(map(self.file, shards), pool.map(self._fault, shards), strict=True):
                if fault:
                    raise UserError(
                        f"{path} {fault}",
                        why=f"{self.path} lists it with another content, or it was removed",
                        next_step=f"repair it: {repair or files.snakemake('--force', str(path))}",
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
    """A permutation of `count` that is the same with every version of numpy."""
    import numpy as np

    bits = np.random.Philox(key=int.from_bytes(b"".join(k.to_bytes(4, "little") for k in key), "little"))
    return np.argsort(bits.random_raw(count), kind="stable")


def batches(manifest: Manifest, seed: int, replica: int, replicas: int, size: int) -> Iterator[Arrays]:
    """Batches of `size` rows for this replica, for ever; rows shuffled within a shard; shards read one ahead."""
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
                        one = len(parts) == 1
                        yield parts[0] if one else {n: np.concatenate([part[n] for part in parts]) for n in rows}
                        parts, need = [], size


def held_out(manifest: Manifest, count: int) -> Arrays:
    """The first `count` held-out rows, as arrays by their names. UserError where there are fewer."""
    import numpy as np

    has = sum(map(manifest.reader.rows, manifest.held_out))
    if has < count:
        raise UserError(
            f"{manifest.path} has {has} held-out rows for an evaluation over {count}",
            next_step="use more data, or set job.held_out to a smaller number",
        )
    parts, left = [], count
    for shard in manifest.held_out:
        parts.append({name: array[:left] for name, array in manifest.reader.read(shard, 0).items()})
        left -= min(left, manifest.reader.rows(shard))
        if not left:
            break
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def synthetic_seeds(seed: int, replica: int) -> list[int]:
    """Seeds of the batches that a replica trains on in turn, where nothing is read."""
    return [seed * 1_000_003 + replica * SYNTHETIC_BATCHES + turn for turn in range(SYNTHETIC_BATCHES)]


class Loader:
    """Prepares items of `source` in a thread; `next()` hands one over and counts the seconds it had to wait."""

    def __init__(self, source: Iterator[Any], prepare: Callable[[Any], Any], ahead: int = AHEAD) -> None:
        self.stall_s, self.ahead = 0.0, ahead
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each batch that may be prepared
        for _ in range(ahead):
            self._room.put(None)
        self._source, self._prepare = source, prepare
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="loader", daemon=True)
        self._thread.start()

    def next(self) -> Any:
        """The next item; an error of the thread is raised here."""
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
        """Stop the thread, and wait for it."""
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
        except BaseException as error:  # handed to the training thread
            self._items.put(error)

"""Training data for one rank: manifest, shards, and batches that are ready before the step asks for them.

Shards are HDF5 files in NVIDIA's layout, or unmasked ones (then masks are drawn here), read whole, or memory-mapped
where they are not compressed. A thread reads one
shard ahead, another one gathers batches into a short queue; h5py and numpy let the training thread run meanwhile.
Standard library, numpy and h5py only; the isal package makes reading faster where it is installed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from throughline import files
from throughline.files import UserError

if TYPE_CHECKING:
    import numpy as np

    from throughline.corpus.shards.masks import Masking

    Rows = dict[str, np.ndarray]

ARRAYS = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "next_sentence_labels",
)
UNMASKED = ("input_ids", "a_lengths", "b_lengths", "next_sentence_labels")
"""What a shard holds whose masks are drawn while it is read."""
AHEAD = 8
"""Batches that wait in the queue."""
GATHERED = 1024
"""Rows that are gathered at a time, or a few more: whole batches."""
SYNTHETIC_BATCHES = 4
"""Different batches on the device, where nothing is read."""


class Manifest:
    """data/<corpus>/seq<S>/manifest.json: the training shards of one sequence length."""

    def __init__(self, path: Path, repair: str | None = None) -> None:
        if not path.is_file():
            raise UserError(f"{path} does not exist", next_step=f"make the corpus: {repair or f'snakemake {path}'}")
        self.path, self.content = path, files.read_json(path)
        self.shards = [shard for shard in self.content["shards"] if shard["split"] == "training"]
        self.held_out = [shard for shard in self.content["shards"] if shard["split"] == "test"]
        self.rows = sum(shard["rows"] for shard in self.shards)
        self.vocabulary = int(self.content["vocabulary"]["size"])

    def fits(self, sequence: int, predictions: int, world: int) -> None:
        """UserError unless the shards have this run's lengths, and a row for every rank."""
        has = (self.content["sequence"], self.content["predictions"])
        if has != (sequence, predictions):
            raise UserError(
                f"{self.path} holds sequences of {has[0]} tokens with {has[1]} predictions",
                why=f"the run asks for {sequence} with {predictions}",
                next_step="correct corpus.sequences in config.yaml, or give the manifest that fits",
            )
        if self.rows < world:
            raise UserError(
                f"{self.path} lists {self.rows} training rows for {world} ranks",
                why="every rank needs rows of its own",
                next_step="use a larger corpus, or fewer devices",
            )

    def file(self, shard: dict[str, Any]) -> Path:
        return self.path.parent / str(shard["file"])

    @cached_property
    def masking(self) -> Masking | None:
        """How rows are masked while they are read; None where the shards hold masks."""
        if not self.content.get("parameters", {}).get("dynamic"):
            return None
        from throughline.corpus.shards.masks import Masking

        return Masking.of_manifest(self.content)

    def read(self, shard: dict[str, Any], epoch: int) -> Rows:
        """The six arrays of a shard, whole; where masks are drawn while reading, with those of the epoch."""
        path = self.file(shard)
        if self.masking is None:
            return read_shard(path)
        return self.masking.masked(read_shard(path, UNMASKED), self.masking.stream(path.stem, epoch))

    def used(self, seed: int, world: int, rows_per_rank: int) -> list[dict[str, Any]]:
        """The shards that any rank reads for `rows_per_rank` rows, and the one read ahead of need."""
        used: set[int] = set()
        for rank in range(world):
            rows = 0
            for _, shard, count in _order(self.shards, seed, rank, world):
                used.add(shard)
                rows += count
                if rows > rows_per_rank + AHEAD or len(used) == len(self.shards):
                    break
        return [self.shards[shard] for shard in sorted(used)]

    def check(self, shards: list[dict[str, Any]], repair: str | None = None) -> None:
        """UserError, naming the command that repairs it, where a shard is missing or not what the manifest says."""
        with ThreadPoolExecutor(4) as pool:
            for fault in pool.map(self._fault, shards):
                if fault:
                    path, what = fault
                    raise UserError(
                        f"{path} {what}",
                        why=f"{self.path} lists it with another content, or it was removed",
                        next_step=f"repair it: {repair or f'snakemake --force {path}'}",
                    )

    def _fault(self, shard: dict[str, Any]) -> tuple[Path, str] | None:
        path = self.file(shard)
        if not path.is_file():
            return path, "is missing"
        return (path, "was changed: its sha256 differs") if files.sha256(path) != shard["sha256"] else None


def read_shard(path: Path, names: tuple[str, ...] = ARRAYS) -> Rows:
    """The arrays of a shard, whole; ValueError where one is missing or their lengths differ."""
    import h5py

    from throughline.corpus.shards import layout

    with h5py.File(path, "r") as file:
        missing = [name for name in names if name not in file]
        if missing:
            raise ValueError(f"{path.name} has no array {', '.join(missing)}")
        rows = {name: layout.whole(file[name]) for name in names}
    if len({len(array) for array in rows.values()}) != 1:
        raise ValueError(f"the arrays of {path.name} differ in length")
    return rows


def _shuffled(count: int, *key: int) -> np.ndarray:
    """A permutation of `count` that is the same with every version of numpy."""
    import numpy as np

    bits = np.random.Philox(key=int.from_bytes(b"".join(k.to_bytes(4, "little") for k in key), "little"))
    return np.argsort(bits.random_raw(count), kind="stable")


def _order(shards: list[dict[str, Any]], seed: int, rank: int, world: int) -> Iterator[tuple[int, int, int]]:
    """(epoch, shard, this rank's rows in it), for ever: shards in another order each epoch.

    With a shard for every rank, a rank reads whole shards of its own; otherwise every rank reads all of them and
    takes each world-th row.
    """
    epoch = 0
    while True:
        order = [int(shard) for shard in _shuffled(len(shards), seed, epoch)]
        for shard in order[rank::world] if len(shards) >= world else order:
            rows = shards[shard]["rows"]
            count = rows if len(shards) >= world else len(range(rank, rows, world))
            if count:
                yield epoch, shard, count
        epoch += 1


def batches(manifest: Manifest, seed: int, rank: int, world: int, size: int) -> Iterator[Rows]:
    """Batches of `size` rows for this rank, for ever; rows shuffled within a shard; shards read one ahead."""
    import numpy as np

    whole = len(manifest.shards) >= world
    order = _order(manifest.shards, seed, rank, world)
    parts: list[Rows] = []
    need, together = size, size * -(-GATHERED // size)
    with ThreadPoolExecutor(1, thread_name_prefix="shard") as pool:

        def start() -> tuple[int, int, Any]:
            epoch, shard, _ = next(order)
            return epoch, shard, pool.submit(manifest.read, manifest.shards[shard], epoch)

        following = start()
        while True:
            (epoch, shard, future), following = following, start()
            rows = future.result()
            chosen = _shuffled(len(rows["input_ids"]), seed, epoch, 1 + shard)
            chosen = chosen if whole else chosen[rank::world]
            for first in range(0, len(chosen), together):
                taken = chosen[first : first + together]
                gathered = {name: array.take(taken, axis=0) for name, array in rows.items()}
                begin, count = 0, len(taken)
                while begin < count:
                    parts.append({name: array[begin : begin + need] for name, array in gathered.items()})
                    begin, need = begin + need, max(0, begin + need - count)
                    if need == 0:
                        one = len(parts) == 1
                        yield parts[0] if one else {n: np.concatenate([part[n] for part in parts]) for n in ARRAYS}
                        parts, need = [], size


def synthetic_seeds(seed: int, rank: int) -> list[int]:
    """Seeds of the batches that a rank trains on in turn, where nothing is read."""
    return [seed * 1_000_003 + rank * SYNTHETIC_BATCHES + turn for turn in range(SYNTHETIC_BATCHES)]


class Loader:
    """Prepares items of `source` in a thread; `next()` hands one over and counts the seconds it had to wait."""

    def __init__(self, source: Iterator[Any], prepare: Callable[[Any], Any]) -> None:
        self.stall_s = 0.0
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each batch that may be prepared
        for _ in range(AHEAD):
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

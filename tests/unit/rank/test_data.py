"""What a rank reads: every row once per epoch, in whole batches, always in the same order, without waiting."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import training_fixtures
from throughline import workloads
from throughline.corpus import reading
from throughline.corpus.shards import layout
from throughline.files import UserError
from throughline.processes import wait_until
from throughline.rank import data
from throughline.workloads import bert


def numbered(folder: Path, rows: list[int]) -> data.Manifest:
    """Make shards whose rows have their own number as the first token."""
    import h5py

    training_fixtures.corpus(folder, shards=len(rows), rows=3)
    content = json.loads((folder / "manifest.json").read_text())
    first = 0
    for shard, count in zip(content["shards"], rows, strict=True):
        with h5py.File(folder / shard["file"], "r") as file:
            arrays = {name: np.resize(file[name][:], (count, *file[name].shape[1:])) for name in layout.TYPES}
        arrays["input_ids"][:, 0] = np.arange(first, first + count)
        first += count
        with h5py.File(folder / shard["file"], "w") as file:
            for name, array in arrays.items():
                file[name] = array
            file["more"] = [1, 2, 3]  # shards of another make may have more than the six arrays
        shard["rows"] = count
    (folder / "manifest.json").write_text(json.dumps(content))
    return data.Manifest(folder / "manifest.json", "corpus")


def read(manifest: data.Manifest, rank: int, world: int, size: int, count: int, seed: int = 1) -> list[int]:
    """Return the numbers of the rows in `count` batches."""
    source = data.batches(manifest, seed, rank, world, size)
    taken = list(itertools.islice(source, count))
    source.close()  # type: ignore[attr-defined]
    assert all(len(batch[name]) == size for batch in taken for name in layout.TYPES)
    return [int(token) for batch in taken for token in batch["input_ids"][:, 0]]


@pytest.mark.parametrize(("rows", "world"), [([24, 24, 24, 24], 2), ([30, 18], 3), ([48], 4), ([40, 56], 1)])
def test_every_row_once_an_epoch(tmp_path: Path, rows: list[int], world: int) -> None:
    manifest = numbered(tmp_path, rows)
    each = sum(rows) // world
    epoch = [read(manifest, rank, world, 4, each // 4) for rank in range(world)]
    assert sorted(itertools.chain(*epoch)) == list(range(sum(rows)))
    two = read(manifest, 0, world, 4, 2 * each // 4)
    assert two[:each] == epoch[0] and two[each:] != epoch[0], "the second epoch comes in another order"


def test_batches_larger_than_a_shard_and_than_the_corpus(tmp_path: Path) -> None:
    manifest = numbered(tmp_path, [5, 7])
    numbers = read(manifest, 0, 1, 30, 2)
    assert sorted(numbers[:12]) == list(range(12)) and len(numbers) == 60


def test_the_order_follows_the_seed(tmp_path: Path) -> None:
    manifest = numbered(tmp_path, [40, 40])
    assert read(manifest, 0, 1, 8, 10) == read(manifest, 0, 1, 8, 10)
    assert read(manifest, 0, 1, 8, 10) != read(manifest, 0, 1, 8, 10, seed=2)


def test_a_shard_with_fewer_rows_than_ranks(tmp_path: Path) -> None:
    manifest = numbered(tmp_path, [1, 9])
    seen = {number for rank in range(4) for number in read(manifest, rank, 4, 2, 3)}
    assert seen == set(range(10))


def test_only_shards_that_are_used_are_checked(tmp_path: Path) -> None:
    manifest = data.Manifest(training_fixtures.corpus(tmp_path, shards=8, rows=40), "corpus")
    assert 1 <= len(manifest.used(1, 1, 15, 4)) < 8
    assert len(manifest.used(1, 1, 2_500, 4)) == 8
    unused = next(shard for shard in manifest.shards if shard not in manifest.used(1, 1, 15, 4))
    manifest.file(unused).unlink()
    manifest.check(manifest.used(1, 1, 15, 4))
    with pytest.raises(UserError, match="is missing"):
        manifest.check(manifest.used(1, 1, 2_500, 4))


@pytest.mark.parametrize(("replicas", "size", "count"), [(1, 16, 2), (2, 4, 1), (3, 10, 3), (1, 40, 2)])
def test_what_is_read_ahead_is_checked_too(tmp_path: Path, replicas: int, size: int, count: int) -> None:
    manifest = data.Manifest(training_fixtures.corpus(tmp_path, shards=16, rows=40), "corpus")
    files = []
    manifest.reader.read = lambda shard, epoch: files.append(shard["file"]) or reading.read_shard(manifest.file(shard))  # type: ignore[method-assign]
    for replica in range(replicas):
        source = data.batches(manifest, 1, replica, replicas, size)
        loader = data.Loader(source, lambda batch: batch)
        for _ in range(count):
            loader.next()
        assert wait_until(lambda loader=loader: loader._items.qsize() == data.AHEAD, 20)  # type: ignore[misc]
        loader.close()
        source.close()  # type: ignore[attr-defined]
    assert set(files) == {shard["file"] for shard in manifest.used(1, replicas, count, size)}
    assert len(set(files)) < 16


def test_more_ranks_than_rows(tmp_path: Path) -> None:
    manifest = data.Manifest(training_fixtures.corpus(tmp_path, shards=1, rows=2), "corpus")
    with pytest.raises(UserError, match="2 training rows for 3 replicas"):
        manifest.fits(workloads.of("bert-tiny"), bert.Parameters(32, 5), 3)
    shared = data.Manifest(training_fixtures.corpus(tmp_path, shards=2, rows=2), "corpus")
    with pytest.raises(UserError, match="4 training rows for 3 replicas"):  # three ranks share two shards of two rows
        shared.fits(workloads.of("bert-tiny"), bert.Parameters(32, 5), 3)
    shared.fits(workloads.of("bert-tiny"), bert.Parameters(32, 5), 2)


def test_arrays_of_different_lengths_are_an_error(tmp_path: Path) -> None:
    import h5py

    manifest = data.Manifest(training_fixtures.corpus(tmp_path, shards=1), "corpus")
    path = manifest.file(manifest.shards[0])
    with h5py.File(path, "a") as file:
        del file["input_mask"]
        file["input_mask"] = np.ones((3, 32), "i1")
    with pytest.raises(ValueError, match="differ in length"):
        reading.read_shard(path)


def test_the_loader_counts_the_seconds_it_was_waited_for() -> None:
    """It counts no other seconds. A batch is prepared either while the step waits for it, or before the step asks."""
    asked = threading.Semaphore(0)

    def slow() -> Any:
        for number in range(3):
            asked.acquire()
            time.sleep(0.01)  # meanwhile the step begins to wait
            yield number

    def ask(loader: data.Loader) -> Any:
        asked.release()
        return loader.next()

    loader, stalls = data.Loader(slow(), lambda number: number * 10), [0.0]
    for expected in (0, 10, 20):
        assert ask(loader) == expected
        stalls.append(loader.stall_s)
    assert all(before < after for before, after in itertools.pairwise(stalls))
    loader.close()

    there = threading.Event()
    quick = data.Loader(iter(range(100)), lambda number: there.set() if number == data.AHEAD else number)
    there.wait()  # AHEAD batches are ready
    assert [quick.next() for _ in range(data.AHEAD)] == list(range(data.AHEAD))
    assert quick.stall_s == 0
    quick.close()


def test_an_error_in_the_loaders_thread_reaches_the_step() -> None:
    def broken() -> Any:
        yield 1
        raise OSError("the disk is gone")

    loader = data.Loader(broken(), lambda number: number)
    assert loader.next() == 1
    with pytest.raises(OSError, match="the disk is gone"):
        loader.next()

"""Measure how fast shards become batches: sequences per CPU-second of two ways to read them, in turn.

    python benchmarks/reading.py SHARDS...          shards of one length, made by us or by others such as NVIDIA

`loop` is what a training run does (throughline.rank.data: read ahead, shuffle, batches through the loader's queue). It
also draws the masks if the shards have none (corpus.masking.dynamic). `whole` reads the same shards with h5py alone; it
shuffles nothing and makes no batches. The shards are read from the page cache. CPU-seconds are those of all threads.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import harness

from throughline.corpus.shards import layout
from throughline.rank.data import Loader, Manifest, batches

BATCH = 64
SHARDS = 16


def manifest_of(folder: Path, paths: list[Path]) -> Path:
    """Copy the shards into `folder` under our names, and write a manifest; return its path."""
    listed: list[dict[str, Any]] = []
    for number, path in enumerate(paths):
        name = f"training_{number:04d}.hdf5"
        shutil.copy(path, folder / name)
        listed.append({"file": name, "split": "training", "rows": layout.size(path)[0]})
    listed *= -(-SHARDS // len(listed))  # as in a corpus of many shards: a reader always reads one shard ahead
    content: dict[str, Any] = {"shards": listed, "vocabulary": {"size": 30522, "mask": 103, "words": [[999, 30522]]}}
    with layout.open_shard(paths[0]) as stream:
        if layout.is_unmasked(stream):
            content["parameters"] = json.loads(stream.attrs["parameters"])
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder / "manifest.json"


def loop(manifest: Path, rows: int) -> Callable[[], int]:
    """Return a function that reads about `rows` rows in batches, as a training run does."""

    def read() -> int:
        source = batches(Manifest(manifest, "corpus"), 1, 0, 1, BATCH)
        loader = Loader(source, lambda batch: batch)
        for _ in range(rows // BATCH):
            loader.next()
        loader.close()
        return rows // BATCH * BATCH

    return read


def whole(manifest: Path) -> Callable[[], int]:
    """Return a function that reads every shard with h5py."""

    def read() -> int:
        count = 0
        for shard in Manifest(manifest, "corpus").shards:
            with h5py.File(manifest.parent / shard["file"]) as file:
                count += max(len(file[name][:]) for name in layout.types(file))
        return count

    return read


def main() -> None:
    """Measure both ways in turn, for several rounds, and print what each reads per CPU-second."""
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("shards", type=Path, nargs="+")
    given = parser.parse_args()

    def speed(read: Callable[[], int]) -> float:
        counts: list[int] = []
        seconds = harness.timed(lambda: counts.append(read()))
        return counts[0] / seconds

    with tempfile.TemporaryDirectory() as name:
        ours = manifest_of(Path(name), given.shards)
        rows = Manifest(ours, "corpus").rows
        stored = sum(layout.size(path)[0] for path in given.shards)
        size = sum(path.stat().st_size for path in Path(name).glob("*.hdf5"))
        print(f"{rows} sequences of {layout.size(given.shards[0])[1]} tokens, {size / stored:.0f} bytes each\n")
        ways = {"loop": partial(speed, loop(ours, rows)), "whole, h5py": partial(speed, whole(ours))}
        rounds = harness.in_turn(ways, given.rounds)
    table = harness.Table("", "sequences per CPU-second", "least", "most", "over loop")
    for name in ways:
        speeds = [each[name] for each in rounds]
        cells = (f"{value:,.0f}" for value in (harness.middle(rounds, name), min(speeds), max(speeds)))
        table.add(name, *cells, harness.ratio(rounds, name, "loop"))
    harness.write(given.json, rounds)


if __name__ == "__main__":
    main()

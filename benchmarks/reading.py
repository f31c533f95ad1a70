"""Measure how fast shards become batches: sequences per CPU-second of every way to read them, in turn.

    python benchmarks/reading.py SHARDS...          shards of one length, made by us or by others such as NVIDIA
    python benchmarks/reading.py --tokens MANIFEST  GPT-2's tokens (data/<corpus>/bpe/manifest.json), windows of 1,024

`loop` is what a training run does (throughline.rank.data: read ahead, shuffle, batches through the loader's queue). It
also draws the masks if the shards have none (corpus.masking.dynamic). `whole` reads the same shards with h5py alone; it
shuffles nothing and makes no batches. The shards are read from the page cache, as compressed files and as unpacked,
memory-mapped copies. CPU-seconds are those of all threads. With --tokens, the loop over windows is compared with
`slices`, which is what nanoGPT's script does for each batch: it takes slices of a mapped file at random places,
converts each to i8, and stacks them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from throughline.corpus.shards import layout, making  # noqa: E402
from throughline.rank.data import Loader, Manifest, batches  # noqa: E402

BATCH = 64
SHARDS = 16
SEQUENCE, WINDOWS = 1024, 1 << 14


def manifest_of(folder: Path, paths: list[Path], *, unpack: bool) -> Path:
    """Copy the shards into `folder` under our names, and write a manifest; return its path."""
    listed: list[dict[str, Any]] = []
    for number, path in enumerate(paths):
        name = f"training_{number:04d}.hdf5"
        (making.unpack if unpack else shutil.copy)(path, folder / name)
        listed.append({"file": name, "split": "training", "rows": layout.size(path)[0]})
    listed *= -(-SHARDS // len(listed))  # as in a corpus of many shards: a reader always reads one shard ahead
    content: dict[str, Any] = {"shards": listed, "vocabulary": {"size": 30522, "mask": 103, "words": [[999, 30522]]}}
    with layout.open_shard(paths[0]) as stream:
        if layout.is_unmasked(stream):
            content["parameters"] = json.loads(stream.attrs["parameters"])
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder / "manifest.json"


def loop(manifest: Path, rows: int, parameters: Any = None) -> Callable[[], int]:
    """Return a function that reads about `rows` rows in batches, as a training run does."""

    def read() -> int:
        source = batches(Manifest(manifest, "corpus", parameters), 1, 0, 1, BATCH)
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


def slices(manifest: Path, rows: int) -> Callable[[], int]:
    """Return a function that reads about `rows` windows of a shard at random places."""
    content = json.loads(manifest.read_text())
    shard = max(content["shards"], key=lambda shard: shard["tokens"])

    def read() -> int:
        for _ in range(rows // BATCH):
            tokens = np.memmap(manifest.parent / shard["file"], shard["type"], "r", shard["offset"], (shard["tokens"],))
            places = np.random.randint(len(tokens) - SEQUENCE, size=BATCH)
            np.stack([tokens[place : place + SEQUENCE + 1].astype(np.int64) for place in places])
        return rows // BATCH * BATCH

    return read


def of_tokens(manifest: Path, rounds: int) -> None:
    """Print windows per CPU-second of the loop and of slices, in turn."""
    ways = {
        "loop": loop(manifest, WINDOWS, SimpleNamespace(sequence=SEQUENCE)),
        "slices, to i8": slices(manifest, WINDOWS),
    }
    print(f"{WINDOWS} windows of {SEQUENCE} + 1 tokens, {rounds} rounds in turn\n")
    table(measured(ways, rounds), "windows")


def measured(ways: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Return what each way reads per CPU-second, for every round. The ways take turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, read in ways.items():
            begun = time.process_time()
            count = read()
            found[name].append(count / (time.process_time() - begun))
    return found


def table(found: dict[str, list[float]], what: str) -> None:
    print(f"| | {what} per CPU-second | least | most |\n|---|--:|--:|--:|")
    for name, speeds in found.items():
        print(f"| {name} | {median(speeds):,.0f} | {min(speeds):,.0f} | {max(speeds):,.0f} |")


def main() -> None:
    """Measure all ways in turn, for several rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("shards", type=Path, nargs="*", default=[])
    what.add_argument("--tokens", type=Path, metavar="MANIFEST")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.tokens:
        of_tokens(arguments.tokens, arguments.rounds)
        return
    with tempfile.TemporaryDirectory() as place:
        packed, unpacked = Path(place, "packed"), Path(place, "unpacked")
        packed.mkdir()
        unpacked.mkdir()
        one = manifest_of(packed, arguments.shards, unpack=False)
        other = manifest_of(unpacked, arguments.shards, unpack=True)
        rows = Manifest(one, "corpus").rows
        ways = {"loop": loop(one, rows), "loop, unpacked": loop(other, rows), "whole, h5py": whole(one)}
        found = measured(ways, arguments.rounds)
        size = [sum(path.stat().st_size for path in folder.glob("*.hdf5")) for folder in (packed, unpacked)]
    size = [total / sum(layout.size(path)[0] for path in arguments.shards) for total in size]
    print(f"{rows} sequences of {layout.size(arguments.shards[0])[1]} tokens, {arguments.rounds} rounds in turn")
    print(f"bytes per sequence: {size[0]:.0f}, unpacked {size[1]:.0f}\n")
    table(found, "sequences")


if __name__ == "__main__":
    main()

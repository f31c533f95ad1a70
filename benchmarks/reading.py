"""How fast shards become batches: sequences per CPU-second, of every way to read them, in turn.

    python benchmarks/reading.py SHARDS...          shards of one length, of whichever maker: ours, NVIDIA's

`loop` is what a training run does (throughline.rank.data: read ahead, shuffle, batches through the loader's queue);
`whole` is the same shards read by h5py alone, which shuffles nothing and makes no batches. The shards are read from the
page cache, as compressed files and as unpacked, memory-mapped copies of them. CPU-seconds are those of all threads.
Of shards without masks (corpus.masking.dynamic), `loop` draws them.
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
from typing import Any

import h5py

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from throughline.corpus.shards import layout, making  # noqa: E402
from throughline.rank.data import Loader, Manifest, batches  # noqa: E402

BATCH = 64
SHARDS = 16


def manifest_of(folder: Path, paths: list[Path], *, unpack: bool) -> Path:
    """The shards in `folder` under our names, with a manifest."""
    listed: list[dict[str, Any]] = []
    for number, path in enumerate(paths):
        name = f"training_{number:04d}.hdf5"
        (making.unpack if unpack else shutil.copy)(path, folder / name)
        listed.append({"file": name, "split": "training", "rows": layout.size(path)[0]})
    listed *= -(-SHARDS // len(listed))  # a reader is always a shard ahead: as in a corpus of many shards
    content: dict[str, Any] = {"shards": listed, "vocabulary": {"size": 30522, "mask": 103, "words": [[999, 30522]]}}
    with layout.open_shard(paths[0]) as stream:
        if layout.is_unmasked(stream):
            content["parameters"] = json.loads(stream.attrs["parameters"])
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder / "manifest.json"


def loop(manifest: Path, rows: int) -> Callable[[], int]:
    """An epoch of batches, as a training run reads them."""

    def read() -> int:
        source = batches(Manifest(manifest, "corpus"), 1, 0, 1, BATCH)
        loader = Loader(source, lambda batch: batch)
        for _ in range(rows // BATCH):
            loader.next()
        loader.close()
        return rows // BATCH * BATCH

    return read


def whole(manifest: Path) -> Callable[[], int]:
    """Every shard by h5py."""

    def read() -> int:
        count = 0
        for shard in Manifest(manifest, "corpus").shards:
            with h5py.File(manifest.parent / shard["file"]) as file:
                count += max(len(file[name][:]) for name in layout.types(file))
        return count

    return read


def main() -> None:
    """All ways in turn, several rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        packed, unpacked = Path(place, "packed"), Path(place, "unpacked")
        packed.mkdir()
        unpacked.mkdir()
        one = manifest_of(packed, arguments.shards, unpack=False)
        other = manifest_of(unpacked, arguments.shards, unpack=True)
        rows = Manifest(one, "corpus").rows
        ways = {"loop": loop(one, rows), "loop, unpacked": loop(other, rows), "whole, h5py": whole(one)}
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, read in ways.items():
                begun = time.process_time()
                count = read()
                found[name].append(count / (time.process_time() - begun))
        size = [sum(path.stat().st_size for path in folder.glob("*.hdf5")) for folder in (packed, unpacked)]
    size = [total / sum(layout.size(path)[0] for path in arguments.shards) for total in size]
    print(f"{rows} sequences of {layout.size(arguments.shards[0])[1]} tokens, {arguments.rounds} rounds in turn")
    print(f"bytes per sequence: {size[0]:.0f}, unpacked {size[1]:.0f}\n")
    print("| | sequences per CPU-second | least | most |\n|---|--:|--:|--:|")
    for name, speeds in found.items():
        print(f"| {name} | {median(speeds):,.0f} | {min(speeds):,.0f} | {max(speeds):,.0f} |")


if __name__ == "__main__":
    main()

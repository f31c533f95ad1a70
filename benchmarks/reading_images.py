"""Measure how many pictures become batches in a second: a training run's loader with 1, 2 ... processes, a plain loop.

    python benchmarks/reading_images.py [--image 224] [--processes 1 2]

The pictures are made from the sample's photograph: 500 x 375 pixels, quality 92. `plain` opens a file with Pillow,
converts it to RGB, cuts out a random crop, resizes it, and mirrors half of the crops. That is what torchvision's
transforms do, in one process. `loader` is throughline.rank.data: shards, order, processes, shared memory, queue. The
ways take turns. The figures are pictures per second, and pictures per second of processor time, including that of the
loader's processes.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import harness
import numpy as np
from PIL import Image

from images_helpers import made
from throughline import processes
from throughline.images.decoding import random_crop
from throughline.images.sources import photograph
from throughline.randomness import Stream
from throughline.rank.data import Loader, Manifest, batches

BATCH = 32


def pictures(folder: Path, count: int) -> Path:
    """Make a folder with two classes of pictures, each of them another part of the photograph."""
    whole = photograph()
    for number in range(count):
        part = whole.crop((number % 12, number % 200, 500 + number % 12, 375 + number % 200))
        path = folder / f"train/{number % 2}/{number:04d}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        part.save(path, quality=92)
    return folder


def plain(paths: list[Path], image: int, count: int) -> None:
    for number in range(count):
        picture = Image.open(io.BytesIO(paths[number % len(paths)].read_bytes())).convert("RGB")
        (left, top, wide, high), mirrored = random_crop(Stream("plain", number), *picture.size)
        part = picture.crop((left, top, left + wide, top + high)).resize((image, image), Image.Resampling.BILINEAR)
        np.asarray(part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else part)


def loader(manifest: Path, image: int, count: int) -> Loader:
    """Return the loader of a training run, after it has read its first batch."""
    read = Manifest(manifest, "images", SimpleNamespace(image=image), 1)
    source = read.decoded(batches(read, 1, 0, 1, BATCH), BATCH, count)
    made = Loader(source, dict, read.ahead(BATCH))
    made.next()
    return made


def cpu_s() -> float:
    """Return the processor seconds of this process and of those that it has started."""
    every = filter(None, map(processes.stat, [os.getpid(), *processes.descendants(os.getpid())]))
    return sum(int(fields[11]) + int(fields[12]) for fields in every) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pictures", type=int, default=1024, help="pictures that are read in each round")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        source = pictures(Path(place, "source"), 128)
        manifest, paths = made(source, Path(place, "made"), 4, 0), sorted(source.rglob("*.JPEG"))
        ways = {"plain": partial(spent, lambda: plain(paths, given.image, given.pictures), given.pictures)}
        for count in given.processes:
            name = f"loader, {count} process{'es' * (count > 1)}"
            ways[name] = partial(by_loader, manifest, given.image, count, given.pictures)
        every = harness.in_turn(ways, given.rounds)
        size = json.loads(manifest.read_text())["statistics"]["bytes"] // 128
    print(f"{given.pictures} pictures of 500 x 375 ({size:,} bytes), to {given.image} x {given.image}\n")
    table = harness.Table("", "pictures per second", "least", "most", "per CPU-second", "over plain")
    rounds = [{name: per_cpu for name, (_, per_cpu) in each.items()} for each in every]
    for name in ways:
        speeds = [each[name][0] for each in every]
        cells = [f"{value:,.0f}" for value in (median(speeds), min(speeds), max(speeds), harness.middle(rounds, name))]
        table.add(name, *cells, harness.ratio(rounds, name, "plain"))
    harness.write(given.json, every)


def by_loader(manifest: Path, image: int, count: int, pictures: int) -> tuple[float, float]:
    """Return what `spent` returns, for the loader of a training run."""
    way = loader(manifest, image, count)
    try:
        return spent(lambda: [way.next() for _ in range(pictures // BATCH)], pictures)
    finally:
        way.close()


def spent(work: Callable[[], Any], pictures: int) -> tuple[float, float]:
    """Return the pictures per second and per CPU-second."""
    cpu = cpu_s()
    seconds = harness.timed(work, "seconds")
    return pictures / seconds, pictures / (cpu_s() - cpu)


if __name__ == "__main__":
    main()

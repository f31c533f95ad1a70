"""Small pictures, folders of small pictures, and all steps that make shards from them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from throughline.datasets.shards import shard_names
from throughline.files import write_json
from throughline.images import shards


def picture(seed: int = 0, size: tuple[int, int] = (24, 18), kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """Return the file of a picture whose colours depend on the seed."""
    draw = np.random.default_rng(seed)
    coarse = Image.fromarray(draw.integers(0, 256, (3, 4, 3)).astype(np.uint8))
    stream = io.BytesIO()
    coarse.resize(size, Image.Resampling.BILINEAR).convert(mode).save(stream, kind)
    return stream.getvalue()


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def tar(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def classes(count: int = 2, each: int = 4, split: str = "train/", **how: Any) -> dict[str, bytes]:
    """Return pictures by name, with one folder for each class."""
    names = [f"{split}class{label}/{number}.JPEG" for label in range(count) for number in range(each)]
    return {name: picture(seed, **how) for seed, name in enumerate(names)}


def made(source: str | Path, place: Path, training: int = 2, test: int = 1, skip: bool = False) -> Path:
    """Make listing, shards, verifications and manifest from a source; return the manifest's path."""
    place.mkdir(parents=True, exist_ok=True)
    listed = place / "listing.jsonl"
    counts = {"training": training, "test": test}
    shards.write_listing(str(source), counts, listed)
    results = []
    for name in shard_names(counts):
        shards.write_shard(listed, str(source), skip, place / f"{name}.tar")
        results.append(place / f"verified/{name}.json")
        write_json(results[-1], shards.verify(place / f"{name}.tar", listed, skip))
    shards.write_manifest("little", results, listed, {}, place / "manifest.json")
    return place / "manifest.json"

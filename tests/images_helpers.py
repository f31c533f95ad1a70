"""Small pictures, folders of small pictures, and all steps that make shards from them."""

from __future__ import annotations

import io
import struct
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


PERSONS, SIDE = 3, 112
FACES = [picture(seed, (SIDE, SIDE)) for seed in range(4 * PERSONS)]


def recordio(path: Path, several: bool = False) -> Path:
    """Write train.rec and train.idx: record 0, the faces, and a record for each person. Several labels stand behind the
    header."""
    count = len(FACES)

    def record(content: bytes, *labels: float) -> bytes:
        more = struct.pack(f"<{len(labels)}f", *labels) if len(labels) > 1 else b""
        whole = struct.pack("<IfQQ", len(labels) if more else 0, 0.0 if more else labels[0], 7, 0) + more + content
        return struct.pack("<II", 0xCED7230A, len(whole)) + whole + bytes(-len(whole) % 4)

    persons = [float(number * PERSONS // count) for number in range(count)]
    records = [record(b"", count + 1, count + 1 + PERSONS)]
    records += [record(face, person, *[0.0][:several]) for face, person in zip(FACES, persons, strict=True)]
    records += [record(b"", 1 + 4 * person, 5 + 4 * person) for person in range(PERSONS)]
    places = np.cumsum([0, *map(len, records)])[:-1]
    index = "".join(f"{number}\t{place}\n" for number, place in enumerate(places))
    return folder(path, {"train.rec": b"".join(records), "train.idx": index.encode()})


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def tar(files: Mapping[str, bytes], *members: tarfile.TarInfo) -> bytes:
    """Return a tar file of these files, then of these members, which are empty."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in members:
            archive.addfile(member)
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

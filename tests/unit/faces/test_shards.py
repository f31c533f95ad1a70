"""Aligned faces: InsightFace's RecordIO files, or folders, become shards, and training shows whole faces."""

from __future__ import annotations

import struct
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from images_helpers import folder, made, picture
from throughline.datasets.targets import FolderTargets
from throughline.files import UserError, read_json
from throughline.images import layout, pictures, shards
from throughline.rank.data import Manifest, batches
from throughline.study.config import load
from throughline.workloads.faces import SIDE

PERSONS, EACH = 3, 4
FACES = [picture(seed, (SIDE, SIDE)) for seed in range(PERSONS * EACH)]


def record(content: bytes, labels: tuple[float, ...]) -> bytes:
    """Return a record of MXNet's RecordIO. Several labels stand behind the header."""
    several = len(labels) != 1
    head = struct.pack("<IfQQ", len(labels) if several else 0, 0.0 if several else labels[0], 7, 0)
    whole = head + (struct.pack(f"<{len(labels)}f", *labels) if several else b"") + content
    return struct.pack("<II", 0xCED7230A, len(whole)) + whole + bytes(-len(whole) % 4)


def recordio(path: Path, several: bool = False) -> Path:
    """Write train.rec and train.idx: record 0, the faces, and then one record per person with the numbers of that
    person's faces."""
    count = len(FACES)
    records = [record(b"", (count + 1, count + 1 + PERSONS))]
    for number, face in enumerate(FACES):
        person = float(number // EACH)
        records.append(record(face, (person, 0.0) if several else (person,)))
    records += [record(b"", (1 + EACH * person, 1 + EACH * (person + 1))) for person in range(PERSONS)]
    places = np.cumsum([0, *map(len, records)])[:-1]
    path.mkdir(parents=True, exist_ok=True)
    (path / "train.rec").write_bytes(b"".join(records))
    (path / "train.idx").write_text("".join(f"{number}\t{place}\n" for number, place in enumerate(places)))
    return path


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
def test_recordio_gives_its_faces_and_persons(tmp_path: Path, several: bool) -> None:
    manifest = made(recordio(tmp_path / "source", several), tmp_path / "made")
    content = read_json(manifest)
    assert (content["classes"], content["rows"]) == (PERSONS, len(FACES))
    seen = {}
    for shard in content["shards"]:
        rows = layout.read_index(tmp_path / "made" / shard["index"]["file"]).tolist()
        data = (tmp_path / "made" / shard["file"]).read_bytes()
        for offset, size, label_offset, label_size in rows:
            seen[data[offset : offset + size]] = int(data[label_offset : label_offset + label_size])
    assert seen == {face: number // EACH for number, face in enumerate(FACES)}


def test_a_face_is_shown_whole_or_mirrored(tmp_path: Path) -> None:
    manifest = Manifest(made(recordio(tmp_path / "source"), tmp_path / "made"), "faces", SimpleNamespace(), 1)
    whole = [np.asarray(pictures.opened(face)) for face in FACES]
    mirrored = 0
    source = manifest.decoded(batches(manifest, 1, 0, 1, 4), 4, 1)
    for batch in islice(source, 6):
        for shown, label in zip(batch["pixels"], batch["labels"].tolist(), strict=True):
            own = whole[label * EACH : (label + 1) * EACH]
            straight = any(np.array_equal(shown, face) for face in own)
            assert straight or any(np.array_equal(shown, face[:, ::-1]) for face in own)
            mirrored += not straight
    source.close()  # type: ignore[attr-defined]
    assert 0 < mirrored < 24


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "train.idx").unlink(), "No such file"),
        (lambda path: (path / "train.idx").write_text("0 0\n"), "not enough values to unpack"),
        (lambda path: (path / "train.idx").write_text("0\t0\n1\t3\n"), "at byte 3 there is no record"),
        (lambda path: (path / "train.rec").write_bytes((path / "train.rec").read_bytes()[:60]), "is cut off"),
    ],
    ids=["no index", "another index", "places that are none", "cut off"],
)  # fmt: skip
def test_a_file_that_is_no_whole_recordio_is_named(tmp_path: Path, damage: object, message: str) -> None:
    source = recordio(tmp_path / "source")
    damage(source)  # type: ignore[operator]
    with pytest.raises(UserError, match=r"train\.rec is no whole RecordIO file") as caught:
        shards.write_listing(str(source), {"training": 1, "test": 0}, tmp_path / "listing.jsonl")
    assert message in str(caught.value)


def test_a_face_of_another_size_is_named(tmp_path: Path) -> None:
    files = {f"train/{person}/{number}.jpg": FACES[number] for person in (0, 1) for number in range(2)}
    source = folder(tmp_path / "source", {**files, "train/1/small.jpg": picture(9, (96, 96))})
    listed, shard = tmp_path / "listing.jsonl", tmp_path / "training_0000.tar"
    shards.write_listing(str(source), {"training": 1, "test": 0}, listed)
    shards.write_shard(listed, str(source), False, shard)
    with pytest.raises(UserError, match=r"train/1/small\.jpg has 96 x 96 pixels"):
        shards.verify(shard, listed, False, SIDE)
    assert shards.verify(shard, listed, False)["rows"] == 5


def test_without_a_source_faces_are_synthetic_and_with_one_they_are_read() -> None:
    block = {"f": {"model": "iresnet-tiny", "classes": 40, "batch": {"fp32": [4]}}}
    without, read = (load([], {"benchmarks": block, "faces": faces}) for faces in ({}, {"source": "ms1m"}))
    assert without.data_of(without.benchmarks["f"]) is None and read.data_of(read.benchmarks["f"]) is read.faces
    assert FolderTargets(without.faces, "faces", ".tar").files() == []
    assert FolderTargets(read.faces, "faces", ".tar").files()[0] == "data/faces/faces/manifest.json"
    with pytest.raises(UserError, match=r"name a folder as faces\.source"):
        FolderTargets(without.faces, "faces", ".tar").check(name="faces")

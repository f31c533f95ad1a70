"""From pictures and faces to verified shards: what is found, what is refused by name, and what a shard contains."""

import gzip
import json
import os
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images_helpers import FACES, PERSONS, classes, folder, made, picture, recordio, tar
from throughline import files
from throughline.datasets.targets import FolderTargets
from throughline.files import UserError, read_json
from throughline.images import layout, shards
from throughline.study.config import load
from throughline.workloads.faces import SIDE


def test_from_a_folder_to_a_manifest(tmp_path: Path) -> None:
    odd = {
        "train/class0/a PNG.JPEG": picture(50, kind="PNG"),
        "train/class0/printed.jpg": picture(51, mode="CMYK"),
        "train/class1/grey.jpeg": picture(52, mode="L"),
        "train/class1/two\nlines.jpg": picture(53),
        "train/class1/übergröße 猫.jpg": picture(54),
        "train/class1/deeper/still.jpg": picture(55),
        "train/class1/notes.txt": b"no picture",
        "train/.hidden/x.jpg": b"",
    }
    pictures = classes(split="train/") | classes(split="val/", each=2) | odd
    for place in ("source", "elsewhere"):
        folder(tmp_path / place, pictures)
        (tmp_path / place / "train/class1/link.jpg").symlink_to(tmp_path / place / "train/class0/0.JPEG")
        made(tmp_path / place, tmp_path / f"made {place}")
    source, shard_folder = tmp_path / "source", tmp_path / "made source"
    for file in shard_folder.glob("*.*"):
        assert file.read_bytes() == (tmp_path / "made elsewhere" / file.name).read_bytes(), "the place changes nothing"
    assert files.sha256(shard_folder / "listing.jsonl").startswith("1e886b49"), "where each picture is"
    content = read_json(shard_folder / "manifest.json")
    assert (content["class_names"], content["rows"], content["skipped"]) == (["class0", "class1"], 19, 0)
    assert content["statistics"]["formats"] == {"JPEG": 18, "PNG": 1}
    assert content["statistics"]["modes"] == {"CMYK": 1, "L": 1, "RGB": 17}
    assert (content["statistics"]["pixels"], content["statistics"]["width"]) == (19 * 24 * 18, [24, 24])
    assert [(shard["file"], shard["split"], shard["rows"]) for shard in content["shards"]] == [
        ("training_0000.tar", "training", 8),
        ("training_0001.tar", "training", 7),
        ("test_0000.tar", "test", 4),
    ]
    names = []
    for shard in ("training_0000", "training_0001"):
        with tarfile.open(shard_folder / f"{shard}.tar") as archive:
            members = archive.getmembers()
            places = [place for member in members for place in (member.offset_data, member.size)]
            assert places == layout.read_index(shard_folder / f"{shard}.idx").ravel().tolist()
            listed = shards.listed_pictures(shard_folder / "listing.jsonl", shard)
            for picture_, file, label in zip(listed, members[::2], members[1::2], strict=True):
                assert archive.extractfile(file).read() == (source / picture_.file).read_bytes()  # type: ignore
                assert archive.extractfile(label).read() == b"%d" % picture_.label  # type: ignore
                assert picture_.file.startswith(f"train/class{picture_.label}/")
                names.append(picture_.name)
    assert r"'train/class1/two\nlines.jpg'" in names
    packed = subprocess.run(["tar", "-tf", shard_folder / "training_0000.tar"], capture_output=True, check=True)
    assert len(packed.stdout.split()) == 16, "tar itself opens a shard"


def test_the_sample(tmp_path: Path) -> None:
    content = read_json(made("sample", tmp_path))
    assert (content["rows"], content["classes"]) == (256, 16) and "Grace Hopper" in content["attribution"]
    assert content["statistics"]["width"] == content["statistics"]["height"] == [256, 256]
    listed = shards.listed_pictures(tmp_path / "listing.jsonl", "training_0000")
    assert {picture.label for picture in listed} == set(range(16)), "every shard holds every class"


def test_tar_files_of_a_class_and_of_webdataset(tmp_path: Path) -> None:
    pictures = {f"{number}.jpg": picture(number) for number in range(4)}
    one = folder(tmp_path / "a", {"train/n01.tar": tar(pictures), "train/n02.tar": tar({"../../out.jpg": picture(9)})})
    content = read_json(made(one, tmp_path / "made a", test=0))
    assert content["class_names"] == ["n01", "n02"] and content["rows"] == 5
    assert not (tmp_path / "out.jpg").exists() and not (tmp_path.parent / "out.jpg").exists()

    samples = {name: data for number in range(4) for name, data in sample(f"{number:04d}", number % 2 * 10)}
    held = {name: data for number in range(2) for name, data in sample(f"x{number}/0.y", number * 10)}
    two = folder(tmp_path / "b", {"some-train-000.tar": tar(samples), "some-val-000.tar": tar(held)})
    content = read_json(made(two, tmp_path / "made b"))
    assert content["class_names"] == [str(number) for number in range(11)]
    listed = shards.listed_pictures(tmp_path / "made b/listing.jsonl", "test_0000")
    assert sorted(picture.label for picture in listed) == [0, 10]


def sample(key: str, label: int) -> list[tuple[str, bytes]]:
    return [(f"{key}.jpg", picture(label)), (f"{key.partition('.')[0]}.cls", b"%d\n" % label)]


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
def test_recordio_gives_its_faces_and_persons(tmp_path: Path, several: bool) -> None:
    content = read_json(made(recordio(tmp_path / "source", several), tmp_path / "made"))
    assert (content["classes"], content["rows"]) == (PERSONS, len(FACES))
    seen = {}
    for shard in content["shards"]:
        data = (tmp_path / "made" / shard["file"]).read_bytes()
        for offset, size, label, label_size in layout.read_index(tmp_path / "made" / shard["index"]["file"]).tolist():
            seen[data[offset : offset + size]] = int(data[label : label + label_size])
    assert seen == {face: number * PERSONS // len(FACES) for number, face in enumerate(FACES)}


def big(width: int, height: int) -> bytes:
    """Return a JPEG file whose header states this size."""
    data = bytearray(picture())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (picture()[:-60], "truncated"),
        (b"", "empty"),
        (picture(kind="GIF"), "neither JPEG nor PNG"),
        (big(30000, 30000), "30000 x 30000 pixels"),
    ],
)
def test_a_damaged_picture_is_refused_by_name_or_skipped_and_counted(tmp_path: Path, data: bytes, why: str) -> None:
    source = folder(tmp_path / "source", {**classes(), "train/class0/broken.JPEG": data})
    with pytest.raises(UserError, match=r"the picture train/class0/broken\.JPEG is damaged") as refused:
        made(source, tmp_path / "refused")
    assert why in str(refused.value.why)
    content = read_json(made(source, tmp_path / "skipped", skip=True))
    assert content["skipped"] == 1 and content["rows"] == 8


def packed(data: bytes) -> Callable[[Path], object]:
    return lambda path: folder(path, {"a.tar": data})


LINK = tarfile.TarInfo("1.jpg")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"
WHOLE = tar({f"{number}.jpg": picture(number, (200, 200)) for number in range(3)})
UNTIL = -(-len(WHOLE.rstrip(b"\0")) // 512) * 512
"""The place in WHOLE where the last picture ends and the closing blocks of the tar file begin."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no folder"),
        (lambda path: path.mkdir(), "holds no pictures"),
        (lambda path: folder(path, classes(1)), "has 1 classes to train on"),
        (lambda path: folder(path, classes(split="") | {"x.jpg": picture()}), r"x\.jpg cannot be used\s+why:  it has"),
        (lambda path: folder(path, classes() | {"val/new/x.jpg": picture()}), "classes only in its test pictures: new"),
        (lambda path: folder(path, classes(2, 1)), "2 pictures for 3 shards"),
        (lambda path: (folder(path, classes()) / "train/again").symlink_to(path), "is a link to a folder that"),
        (lambda path: (folder(path, classes()) / "gone.jpg").symlink_to("nothing"), r"gone\.jpg cannot .*\s+why:  it"),
        (packed(tar({"0.jpg": picture()}, LINK)), r"it holds '1\.jpg' twice, or as a link"),
        (packed(tar({"0.jpg": picture()}, tarfile.TarInfo("0.jpg"))), r"it holds '0\.jpg' twice"),
        (packed(WHOLE[:-20000]), r"a\.tar cannot be used\s+why:  it is cut off or compressed"),
        (packed(WHOLE[:UNTIL]), r"a\.tar cannot be used\s+why:  it is cut off or compressed: its end"),
        (packed(gzip.compress(WHOLE)), r"a\.tar cannot be used\s+why:  it is cut off or compressed"),
        (packed(tar({**dict(sample("0", 1)), "1.jpg": picture()})), r"holds '1\.jpg' without its class"),
        (packed(tar({"0.jpg": picture(), "0.cls": b"cat"})), r"holds b'cat' in '0\.cls'"),
        (lambda path: (recordio(path) / "train.idx").unlink(), r"train\.rec cannot be used\s+why:  .*No such file"),
        (lambda path: (recordio(path) / "train.idx").write_text("0 0\n"), "its index, has other lines than"),
        (lambda path: (recordio(path) / "train.idx").write_text("0\t0\n1\t3\n"), "at byte 3 there is no record"),
        (lambda path: (recordio(path) / "train.idx").write_text("0\t0\n2\t40\n"), "its index lacks record 1"),
        (lambda path: os.truncate(recordio(path) / "train.rec", 60), "the record at byte .* is cut off"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_used_says_why(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "source")
    with pytest.raises(UserError, match=message):
        made(tmp_path / "source", tmp_path / "made")


def replaced(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def made_with(shard: Path, change: Callable[[list[Any]], list[Any]]) -> None:
    """Make the shard again from a listing in which its pictures are changed."""
    listing = shard.parent / "listing.jsonl"
    before = listing.read_text()
    first, *lines = map(json.loads, before.splitlines())
    inside = change([line for line in lines if line[0] == shard.stem])
    listing.write_text("".join(json.dumps(line) + "\n" for line in [first, *inside]))
    shards.write_shard(listing, str(shard.parents[1] / "source"), False, shard)
    listing.write_text(before)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda shard: shard.write_bytes(shard.read_bytes()[:3000]), "names other places than"),
        (lambda shard: shard.write_bytes(b"x" * 3000), "is no whole tar file"),
        (lambda shard: shard.with_suffix(".idx").unlink(), r"training_0000\.idx is no index"),
        (lambda shard: shard.with_suffix(".idx").write_text("v1.2 1\njpg 512 7 a.jpg\n"), "is no index"),
        (lambda shard: shard.with_suffix(".idx").write_text("v1.2 7\n"), "is no index"),
        (lambda shard: replaced(shard.with_suffix(".idx"), "jpg 512 ", "jpg 513 "), "names other places than"),
        (lambda shard: made_with(shard, lambda lines: [[*line[:2], 1 - line[2], *line[3:]] for line in lines]),
         "has another class for train/class"),
        (lambda shard: made_with(shard, lambda lines: lines[1:]), "lacks train/class"),
        (lambda shard: made_with(shard, lambda lines: [*lines, lines[0]]), "which are not listed for it"),
    ],
)  # fmt: skip
def test_a_shard_that_is_not_what_was_written_is_refused(
    tmp_path: Path, harm: Callable[[Path], object], message: str
) -> None:
    made(folder(tmp_path / "source", classes(2, 4)), tmp_path / "made", test=0)
    shard, listing = tmp_path / "made/training_0000.tar", tmp_path / "made/listing.jsonl"
    assert shards.verify(shard, listing, skip=False)["rows"] == 4
    harm(shard)
    with pytest.raises(UserError, match=message) as refused:
        shards.verify(shard, listing, skip=False)
    assert "snakemake --force" in str(refused.value.next_step)


@pytest.mark.parametrize("name", ["train/class0/0.JPEG", "train/class2.tar"])
def test_a_source_that_changed_after_it_was_listed(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path / "source", classes() | {"train/class2.tar": tar({"0.jpg": picture()})})
    made(source, tmp_path / "made", 1, 0)
    shard = tmp_path / "made/training_0000.tar"
    before = shard.read_bytes()
    os.truncate(source / name, 9) if name.endswith("tar") else (source / name).unlink()
    with pytest.raises(UserError, match=f"{name}.* is not in .* any more"):
        shards.write_shard(tmp_path / "made/listing.jsonl", str(source), False, shard)
    assert shard.read_bytes() == before, "the shard of before is still there"


def test_a_face_of_another_size_is_named(tmp_path: Path) -> None:
    files = {f"train/{person}/{number}.jpg": FACES[number] for person in (0, 1) for number in range(2)}
    source = folder(tmp_path / "source", {**files, "train/1/small.jpg": picture(9, (SIDE, 96))})
    made(source, tmp_path / "made", 1, 0)
    with pytest.raises(UserError, match=r"train/1/small\.jpg has 112 x 96 pixels"):
        shards.verify(tmp_path / "made/training_0000.tar", tmp_path / "made/listing.jsonl", False, SIDE)


def test_the_sections() -> None:
    digests = [
        load([], {"images": {"source": source, "damaged": damaged}}).images.digest("images")
        for source, damaged in (("/data/imagenet", "refuse"), ("/mnt/imagenet", "refuse"), ("/mnt/imagenet", "skip"))
    ]
    assert digests[0] == digests[1] != digests[2], "the place of a source decides nothing"
    block = {"f": {"model": "iresnet-tiny", "classes": 40, "batch": {"fp32": [4]}}}
    without, read = (load([], {"benchmarks": block, "faces": faces}) for faces in ({}, {"source": "ms1m"}))
    assert without.data_of(without.benchmarks["f"]) is None and read.data_of(read.benchmarks["f"]) is read.faces
    assert FolderTargets(without.faces, "faces", ".tar").files() == []
    assert FolderTargets(read.faces, "faces", ".tar").files()[0] == "data/faces/faces/manifest.json"
    with pytest.raises(UserError, match=r"name a folder as faces\.source"):
        FolderTargets(without.faces, "faces", ".tar").check(name="faces")

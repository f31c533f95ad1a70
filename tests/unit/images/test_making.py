"""From a folder of pictures to verified shards: what is found, what is refused by name, and what a shard contains."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from images_helpers import classes, folder, made, picture, tar
from throughline import files
from throughline.files import UserError
from throughline.images import layout, shards, sources
from throughline.study.config import load


def big(width: int, height: int) -> bytes:
    """Return a JPEG file whose header states this size."""
    data = bytearray(picture())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


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
    source = folder(tmp_path / "source", classes(split="train/") | classes(split="val/", each=2) | odd)
    (source / "train/class1/link.jpg").symlink_to(source / "train/class0/0.JPEG")
    content = json.loads(made(source, tmp_path / "made").read_text())
    assert (
        content["class_names"] == ["class0", "class1"] and content["rows"] == 8 + 4 + 6 + 1 and content["skipped"] == 0
    )
    assert content["statistics"]["formats"] == {"JPEG": 18, "PNG": 1}
    assert content["statistics"]["modes"] == {"CMYK": 1, "L": 1, "RGB": 17}
    assert [(shard["file"], shard["split"], shard["rows"]) for shard in content["shards"]] == [
        ("training_0000.tar", "training", 8),
        ("training_0001.tar", "training", 7),
        ("test_0000.tar", "test", 4),
    ]
    listed = [
        one
        for shard in ("training_0000", "training_0001")
        for one in shards.listed_pictures(tmp_path / "made/listing.jsonl", shard)
    ]
    assert any(one.name == r"'train/class1/two\nlines.jpg'" for one in listed)
    for shard in ("training_0000", "training_0001"):
        with tarfile.open(tmp_path / f"made/{shard}.tar") as archive:
            members = archive.getmembers()
            places = [place for one in members for place in (one.offset_data, one.size)]
            assert places == layout.read_index(tmp_path / f"made/{shard}.idx").ravel().tolist()
            pictures = shards.listed_pictures(tmp_path / "made/listing.jsonl", shard)
            for one, file, label in zip(pictures, members[::2], members[1::2], strict=True):
                assert archive.extractfile(file).read() == (source / one.file).read_bytes()  # type: ignore[union-attr]
                assert archive.extractfile(label).read() == b"%d" % one.label  # type: ignore[union-attr]
                assert one.file.startswith(f"train/class{one.label}/")


def test_the_same_pictures_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    for place in ("one", "two"):
        made(folder(tmp_path / place, classes()), tmp_path / f"made {place}")
    for name in ("training_0000.tar", "training_0000.idx", "test_0000.tar", "manifest.json", "listing.jsonl"):
        assert (tmp_path / "made one" / name).read_bytes() == (tmp_path / "made two" / name).read_bytes()


def test_the_sample(tmp_path: Path) -> None:
    content = json.loads(made("sample", tmp_path, training=2, test=1).read_text())
    assert content["rows"] == 256 and content["classes"] == 16 and "Grace Hopper" in content["attribution"]
    assert content["statistics"]["width"] == content["statistics"]["height"] == [256, 256]
    labels = [one.label for one in shards.listed_pictures(tmp_path / "listing.jsonl", "training_0000")]
    assert set(labels) == set(range(16)), "every shard holds every class"


def test_tar_files_of_a_class_and_of_webdataset(tmp_path: Path) -> None:
    pictures = {f"{number}.jpg": picture(number) for number in range(4)}
    one = folder(tmp_path / "a", {"train/n01.tar": tar(pictures), "train/n02.tar": tar({"../../out.jpg": picture(9)})})
    content = json.loads(made(one, tmp_path / "made a", test=0).read_text())
    assert content["class_names"] == ["n01", "n02"] and content["rows"] == 5
    assert not (tmp_path / "out.jpg").exists() and not (tmp_path.parent / "out.jpg").exists()

    samples = {name: data for number in range(4) for name, data in sample(f"{number:04d}", number % 2 * 10, number)}
    held = {name: data for number in range(2) for name, data in sample(f"x/{number}.y", 10, 20 + number)}
    two = folder(tmp_path / "b", {"some-train-000.tar": tar(samples), "some-val-000.tar": tar(held)})
    content = json.loads(made(two, tmp_path / "made b").read_text())
    assert content["class_names"] == [str(number) for number in range(11)]
    assert [one.label for one in shards.listed_pictures(tmp_path / "made b/listing.jsonl", "test_0000")] == [10, 10]


def sample(key: str, label: int, seed: int) -> list[tuple[str, bytes]]:
    return [(f"{key}.jpg", picture(seed)), (f"{key.partition('.')[0]}.cls", b"%d\n" % label)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (picture()[:-60], "truncated"),
        (b"", "empty"),
        (picture(kind="GIF"), "neither JPEG nor PNG"),
        (b"hello", "neither JPEG nor PNG"),
        (big(30000, 30000), "30000 x 30000 pixels"),
    ],
)
def test_a_damaged_picture_is_refused_by_name_or_skipped_and_counted(tmp_path: Path, data: bytes, why: str) -> None:
    source = folder(tmp_path / "source", {**classes(), "train/class0/broken.JPEG": data})
    with pytest.raises(UserError, match=r"the picture train/class0/broken\.JPEG is damaged") as refused:
        made(source, tmp_path / "refused")
    assert why in str(refused.value.why)
    content = json.loads(made(source, tmp_path / "skipped", skip=True).read_text())
    assert content["skipped"] == 1 and content["rows"] == 8


def looped(path: Path) -> None:
    (folder(path, classes()) / "train/class0/again").symlink_to(path / "train")


def dangling(path: Path) -> None:
    (folder(path, classes()) / "train/class0/gone.jpg").symlink_to(path / "nothing")


def linked_in_tar(path: Path) -> None:
    folder(path, {"a.tar": tar({"0.jpg": picture()})})
    member = tarfile.TarInfo("1.jpg")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(path / "a.tar", "a") as archive:
        archive.addfile(member)


def holding(**content: bytes) -> Callable[[Path], object]:
    return lambda path: folder(
        path, {name.replace("__", "/").replace("_tar", ".tar"): content[name] for name in content}
    )


WHOLE = tar({f"{number}.jpg": picture(number, (200, 200)) for number in range(3)})
UNTIL = -(-len(WHOLE.rstrip(b"\0")) // 512) * 512
"""The place in WHOLE where the last picture ends and the closing blocks of the tar file begin."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no folder"),
        (lambda path: path.mkdir(), "holds no pictures"),
        (lambda path: folder(path, classes(1)), "has 1 classes to train on"),
        (lambda path: folder(path, classes(split="") | {"x.jpg": picture()}), r"x\.jpg in .* has no class"),
        (lambda path: folder(path, classes() | {"val/new/x.jpg": picture()}), "classes only in its test pictures: new"),
        (lambda path: folder(path, classes(2, 1)), "2 pictures for 3 shards"),
        (looped, "is a link to a folder that it is in"),
        (dangling, r"gone\.jpg is no file"),
        (linked_in_tar, r"a\.tar holds 1\.jpg, which is no ordinary file"),
        (holding(a_tar=WHOLE[:-20000]), r"a\.tar is no tar file, or it was cut off"),
        (holding(a_tar=WHOLE[:UNTIL]), r"a\.tar is no tar file, or it was cut off"),
        (holding(a_tar=gzip.compress(WHOLE)), r"a\.tar is no tar file, or it was cut off"),
        (holding(a_tar=tar({**dict(sample("0", 1, 1)), "1.jpg": picture()})), r"holds 1\.jpg without its class"),
        (holding(a_tar=tar({"0.jpg": picture(), "0.cls": b"cat"})), r"0\.cls, which is no class"),
    ],
)
def test_a_source_that_cannot_be_used_says_why(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "source")
    with pytest.raises(UserError, match=message):
        made(tmp_path / "source", tmp_path / "made")


def test_a_name_that_a_tar_file_holds_twice(tmp_path: Path) -> None:
    folder(tmp_path, {"a.tar": tar({"0.jpg": picture()})})
    with tarfile.open(tmp_path / "a.tar", "a") as archive:
        archive.add(folder(tmp_path / "x", {"y": picture(1)}) / "y", "0.jpg")
    with pytest.raises(UserError, match=r"a\.tar holds 0\.jpg twice"):
        list(sources.pictures(str(tmp_path)))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda shard: shard.write_bytes(shard.read_bytes()[:3000]), "holds 2 files, and its index 4"),
        (lambda shard: shard.write_bytes(b"x" * 3000), "is no whole tar file"),
        (lambda shard: shard.with_suffix(".idx").unlink(), r"training_0000\.idx is no index"),
        (lambda shard: shard.with_suffix(".idx").write_text("v1.2 1\njpg 512 7 a.jpg\n"), "is no index"),
        (lambda shard: shift(shard.with_suffix(".idx")), "has other places for"),
        (lambda shard: relabel(shard), "has another class for train/class"),
        (lambda shard: forget(shard), "holds 6 files, and its index 4 pictures|lacks train/class"),
    ],
)
def test_a_shard_that_is_not_what_was_written_is_refused(
    tmp_path: Path, harm: Callable[[Path], object], message: str
) -> None:
    made(folder(tmp_path / "source", classes(2, 4)), tmp_path / "made", test=0)
    shard, listed = tmp_path / "made/training_0000.tar", tmp_path / "made/listing.jsonl"
    assert shards.verify(shard, listed, skip=False)["rows"] == 4
    harm(shard)
    with pytest.raises(UserError, match=message) as refused:
        shards.verify(shard, listed, skip=False)
    assert "snakemake --force" in str(refused.value.next_step)


def shift(beside: Path) -> None:
    first, line, *rest = beside.read_text().splitlines()
    words = line.split()
    words[1] = str(int(words[1]) + 1)
    beside.write_text("\n".join([first, " ".join(words), *rest]) + "\n")


def relabel(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    at = int(layout.read_index(shard.with_suffix(".idx"))[0, 2])
    data[at] ^= 1
    shard.write_bytes(data)


def forget(shard: Path) -> None:
    """Write the shard again without one of its pictures, as if that picture had been skipped."""
    listed = shard.with_name("listing.jsonl")
    lines = listed.read_text().splitlines(keepends=True)
    gone = next(line for line in lines if line.startswith('["training_0000"'))
    listed.write_text("".join(line for line in lines if line != gone))
    shards.write_shard(listed, str(shard.parents[1] / "source"), False, shard)
    listed.write_text("".join(lines))


def test_a_source_that_changed_after_it_was_listed(tmp_path: Path) -> None:
    source = folder(tmp_path / "source", classes())
    made(source, tmp_path / "made")
    one = next(shards.listed_pictures(tmp_path / "made/listing.jsonl", "training_0000"))
    os.unlink(source / one.file)
    with pytest.raises(UserError, match=f"{one.file} is not in .* any more"):
        shards.write_shard(tmp_path / "made/listing.jsonl", str(source), False, tmp_path / "made/training_0000.tar")
    assert files.sha256(tmp_path / "made/training_0000.tar"), "the shard of before is still there"


def test_tar_itself_opens_a_shard(tmp_path: Path) -> None:
    made(folder(tmp_path / "source", classes()), tmp_path, test=0)
    listed = subprocess.run(["tar", "-tf", tmp_path / "training_0000.tar"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.split()) == 8


def test_the_section_names_its_source_and_not_where_it_lies() -> None:
    images = load([], {"images": {"source": "/data/of/me/imagenet", "shards": {"test": 0}}}).images
    elsewhere = load([], {"images": {"source": "/mnt/imagenet", "shards": {"test": 0}, "damaged": "refuse"}}).images
    assert images.without_places()["source"] == "imagenet" and images.digest("images") == elsewhere.digest("images")
    skipping = load([], {"images": {"source": "/mnt/imagenet", "shards": {"test": 0}, "damaged": "skip"}}).images
    assert skipping.digest("images") != images.digest("images")
    assert list(images.held_out_mistakes("images")) == [
        "convergence: it looks at held-out pictures, and images.shards.test is 0"
    ]

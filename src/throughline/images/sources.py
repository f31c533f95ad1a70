"""Where pictures come from: a folder of files, tar files and MXNet's RecordIO files, or the sample.

Tar and RecordIO files stay packed. Their pictures are read from their places, so no name in them leads out of the
folder.
"""

import io
import os
import re
import struct
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from PIL import Image

from throughline.datasets.shards import WORDS, installed_file
from throughline.files import UserError
from throughline.study.data_sections import SAMPLE

PICTURES = (".jpg", ".jpeg", ".png")
Part = tuple[int, int]
"""The place of a picture in a tar or RecordIO file: first byte, number of bytes. In the sample: a crop's corner."""


class SourcePicture(NamedTuple):
    """A picture in a source: its name in messages, its class, and where it is.

    `split` is None if the source does not tell it. `file` is the path below the source; `part` is None if the picture
    is the whole file.
    """

    name: str
    label: str
    split: str | None
    file: str
    part: Part | None


def pictures(source: str) -> Iterator[SourcePicture]:
    """Yield the pictures of a source; UserError if a picture has no class, or if a file cannot be read."""
    if source == SAMPLE:
        yield from _in_sample()
        return
    folder = Path(source)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}", next_step="correct the section's `source` in config.yaml")
    for path in _files(folder, ()):
        file, ending = str(path.relative_to(folder)), path.suffix.lower()
        parts = file.split(os.sep)
        split = WORDS.get(parts[0].lower()) if len(parts) > 1 else None
        try:
            if ending in PICTURES:
                classes = parts[:-1] if split is None else parts[1:-1]
                if not classes:
                    raise ValueError("it has no class: a class is a folder, as in train/cat/1.jpg")
                yield SourcePicture(_named(file), classes[0], split, file, None)
            elif ending == ".tar":
                yield from _in_tar(path, file, split or _split_of(path.stem))
            elif ending == ".rec":
                yield from _in_recordio(path, file, split or _split_of(path.stem))
        except (OSError, ValueError, tarfile.TarError) as error:
            packed = "it is cut off or compressed: " if isinstance(error, tarfile.TarError) else ""
            raise _unusable(path, f"{packed}{error}") from None


def read(source: str, name: str, file: str, part: Part | None) -> bytes:
    """Return the file of a picture; UserError if the source has changed since the picture was listed."""
    if source == SAMPLE:
        assert part is not None
        left, top = part
        crop = io.BytesIO()
        photograph().crop((left, top, left + SIDE, top + SIDE)).save(crop, "JPEG", quality=QUALITY)
        return crop.getvalue()
    offset, size = part or (0, -1)
    try:
        with Path(source, file).open("rb") as stream:
            stream.seek(offset)
            data = stream.read(size)
    except FileNotFoundError:
        data, size = b"", 1
    if len(data) < size:
        raise UserError(
            f"{name} is not in {source} any more",
            why="the folder has changed since its pictures were listed",
            next_step="put it back; or remove data/<name>/images/listing.jsonl and run snakemake again",
        )
    return data


# Folders


def _files(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names. Follows links. `above`: the folders that it is in."""
    facts = folder.stat()
    here = facts.st_dev, facts.st_ino
    if here in above:
        raise _unusable(folder, "it is a link to a folder that it is in")
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path), (*above, here))
        elif entry.is_file():
            yield Path(entry.path)
        else:
            raise _unusable(entry.path, "it is no file but a device, a pipe, or a link to nothing")


def _split_of(stem: str) -> str | None:
    """Return the split from the first word in a file's name that tells it, as in `imagenet-val-000003`, or None."""
    return next((WORDS[word] for word in re.split("[-_.]", stem.lower()) if word in WORDS), None)


def _named(name: str) -> str:
    """Return a file's name for messages: in quotes and with escapes if it has characters that cannot be printed."""
    return name if name.isprintable() else ascii(name)


def _unusable(path: str | Path, why: str) -> UserError:
    return UserError(
        f"{_named(str(path))} cannot be used",
        why=why,
        next_step="correct the folder, or name another one as `source` in config.yaml",
    )


# Tar files: of a class, or webdataset's


def _in_tar(path: Path, file: str, split: str | None) -> Iterator[SourcePicture]:
    """Yield the pictures in a tar file. ValueError or TarError if it is compressed or cut off, or holds what we refuse.

    Each picture has its class in a `.cls` file beside it. If the tar file has no `.cls`, its own name is the class.
    """
    parts: dict[str, Part] = {}
    labels: dict[str, str] = {}
    with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            name, ending = member.name, os.path.splitext(member.name)[1].lower()
            if not (member.isdir() or member.isreg()) or member.issparse() or name in parts:
                raise ValueError(f"it holds {name!r} twice, or as a link or device")
            if ending in PICTURES:
                parts[name] = member.offset_data, member.size
            elif ending == ".cls":
                stream.seek(member.offset_data)
                text = stream.read(min(member.size, 32))
                if not text.strip().isdigit():
                    raise ValueError(f"it holds {text!r} in {name!r}, and a class is a whole number from 0 on")
                labels[_key(name)] = str(int(text))
        stream.seek(archive.offset)
        if stream.read(512) != bytes(512):
            raise tarfile.ReadError("its end is missing")
    for name, part in parts.items():
        if labels and _key(name) not in labels:
            raise ValueError(f"it holds {name!r} without its class, and other pictures with one")
        yield SourcePicture(f"{_named(file)}/{_named(name)}", labels.get(_key(name), path.stem), split, file, part)


def _key(name: str) -> str:
    """Return webdataset's key, which the files of a sample share: the path up to the first dot of the file's name."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


# RecordIO files, in the form of InsightFace's data sets: `train.rec`, and its index `train.idx`

RECORD = struct.Struct("<IIIfQQ")
"""The head of a record with a picture: magic number, length without these two, count of labels that follow, a label,
two numbers that we do not need. The upper three bits of the length say if the next record continues this one."""
MAGIC, LONGEST = 0xCED7230A, (1 << 29) - 1


def _in_recordio(path: Path, file: str, split: str | None) -> Iterator[SourcePicture]:
    """Yield the pictures in a RecordIO file. If a picture is cut off, the later reading of the picture finds it.

    Record 0 holds no picture but two labels, and the first of them is the number of pictures plus one. The records
    after the pictures say which pictures show the same person. We do not need them. The index has a line for each
    record: number, tab, first byte. OSError or ValueError if it does not fit.
    """
    lines = path.with_suffix(".idx").read_text(encoding="ascii").splitlines()
    try:
        places = {int(number): int(place) for number, place in (line.split("\t") for line in lines if line)}
        first, end = min(places), max(places) + 1
    except ValueError:
        raise ValueError(f"{path.stem}.idx, its index, has other lines than number, tab, first byte") from None
    with path.open("rb") as stream:
        if first == 0:
            labels, _ = _record(stream, places[0])
            first, end = 1, int(labels[0]) if len(labels) == 2 else end
        for number in range(first, end):
            if number not in places:
                raise ValueError(f"its index lacks record {number}")
            labels, part = _record(stream, places[number])
            yield SourcePicture(f"{_named(file)}, record {number}", str(int(labels[0])), split, file, part)


def _record(stream: BinaryIO, place: int) -> tuple[tuple[float, ...], Part]:
    """Return the labels of a record, and the place of its picture; ValueError if there is no whole record."""
    stream.seek(place)
    try:
        magic, length, count, label, _, _ = RECORD.unpack(stream.read(RECORD.size))
        before = RECORD.size - 8 + 4 * count
        if magic != MAGIC or not before <= length <= LONGEST:
            raise ValueError(f"at byte {place} there is no record")
        labels = struct.unpack(f"<{count}f", stream.read(4 * count)) if count else (label,)
    except struct.error:
        raise ValueError(f"the record at byte {place} is cut off") from None
    return labels, (place + 8 + before, length - before)


# The sample: 256 crops of a photograph from an installed package

PACKAGE, PHOTOGRAPH = "matplotlib", "grace_hopper.jpg"
SHA256 = "a8ca6d734765703b09728ab47fe59f473d93ae3967fc24c7c0288c3c7adb7130"
ATTRIBUTION = (
    "crops of a portrait of Grace Hopper, which the package matplotlib carries as grace_hopper.jpg; the file names its "
    "source: commons.wikimedia.org/wiki/File:Grace_Hopper.jpg"
)
SIDE, QUALITY = 256, 90
CELLS = 4
"""The number of classes in each direction, and of a class's crops in each direction."""


def _in_sample() -> Iterator[SourcePicture]:
    """Yield the crops: 4 x 4 classes, which are regions of the photograph, each with 4 x 4 crops a few pixels apart."""
    width, height = photograph().size
    steps = CELLS * CELLS - 1
    for row in range(CELLS * CELLS):
        for column in range(CELLS * CELLS):
            left, top = column * (width - SIDE) // steps, row * (height - SIDE) // steps
            label = f"part_{row // CELLS}_{column // CELLS}"
            yield SourcePicture(f"{PHOTOGRAPH} at {left},{top}", label, None, PHOTOGRAPH, (left, top))


@cache
def photograph() -> Image.Image:
    """Return the decoded photograph; UserError if the package does not have it."""
    with Image.open(installed_file("the sample of images", PACKAGE, PHOTOGRAPH, SHA256)) as photograph:
        return photograph.convert("RGB")

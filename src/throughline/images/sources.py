"""Where pictures come from: a folder of files, tar files and MXNet's RecordIO files, or the sample.

Tar and RecordIO files stay packed. Their pictures are read from their places, so no name in them leads out of the
folder.
"""

from __future__ import annotations

import io
import os
import struct
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from PIL import Image

from throughline.datasets.shards import WORDS, installed_file
from throughline.files import UserError
from throughline.study.images_section import SAMPLE

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
        file = str(path.relative_to(folder))
        parts = file.split(os.sep)
        split = WORDS.get(parts[0].lower()) if len(parts) > 1 else None
        if path.suffix.lower() in PICTURES:
            classes = parts[:-1] if split is None else parts[1:-1]
            if not classes:
                raise _unusable(f"{_named(file)} in {folder} has no class", "a class is a folder: train/cat/1.jpg")
            yield SourcePicture(_named(file), classes[0], split, file, None)
        elif path.suffix.lower() in (".tar", ".rec"):
            inside = _in_tar if path.suffix.lower() == ".tar" else _in_recordio
            yield from inside(path, file, split or _split_of(path.stem))


def read(source: str, name: str, file: str, part: Part | None) -> bytes:
    """Return the file of a picture; UserError if the source has changed since the picture was listed."""
    if source == SAMPLE:
        assert part is not None
        return _sample_crop(part)
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
        raise _unusable(f"the folder {_named(str(folder))} is a link to a folder that it is in")
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path), (*above, here))
        elif entry.is_file():
            yield Path(entry.path)
        else:
            raise _unusable(f"{_named(entry.path)} is no file", "it is a link to nothing, or a device or pipe")


def _split_of(stem: str) -> str | None:
    """Return the split from the first word in a file's name that tells it, as in `imagenet-val-000003`, or None."""
    words = stem.lower().replace("_", "-").replace(".", "-").split("-")
    return next((WORDS[word] for word in words if word in WORDS), None)


def _named(name: str) -> str:
    """Return a file's name for messages: in quotes and with escapes if it has characters that cannot be printed."""
    return name if name.isprintable() else ascii(name)


def _unusable(what: str, why: str | None = None) -> UserError:
    return UserError(what, why=why, next_step="correct the folder, or name another one as `source` in config.yaml")


# Tar files: of a class, or webdataset's


def _in_tar(path: Path, file: str, split: str | None) -> Iterator[SourcePicture]:
    """Yield the pictures in a tar file.

    Each picture has its class in a `.cls` file beside it. If the tar file has no `.cls`, its own name is the class.
    """
    parts: dict[str, Part] = {}
    labels: dict[str, str] = {}
    with path.open("rb") as stream:
        for member in _members(path, file):
            name = member.name
            if name in parts:
                raise _unusable(f"{_named(file)} holds {_named(name)} twice")
            if name.lower().endswith(PICTURES):
                parts[name] = member.offset_data, member.size
            elif name.lower().endswith(".cls"):
                stream.seek(member.offset_data)
                text = stream.read(min(member.size, 32))
                if not text.strip().isdigit():
                    why = f"a class is a whole number from 0 on, as text; this is {text!r}"
                    raise _unusable(f"{_named(file)} holds {_named(name)}, which is no class", why)
                labels[_key(name)] = str(int(text))
    for name, part in parts.items():
        label = labels.get(_key(name)) if labels else path.stem
        if label is None:
            why = f"other pictures of the file have one; {_named(_key(name))}.cls is missing"
            raise _unusable(f"{_named(file)} holds {_named(name)} without its class", why)
        yield SourcePicture(f"{_named(file)}/{_named(name)}", label, split, file, part)


def _members(path: Path, file: str) -> Iterator[tarfile.TarInfo]:
    """Yield the files in a tar file; UserError if it holds links or devices, is compressed, or is cut off."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    why = "links and devices are not followed out of a tar file"
                    raise _unusable(f"{_named(file)} holds {_named(member.name)}, which is no ordinary file", why)
                yield member
            end = archive.offset
        with path.open("rb") as stream:
            stream.seek(end)
            if stream.read(512) != bytes(512):
                raise tarfile.ReadError("its end is missing")
    except tarfile.TarError as error:
        why = f"{error}. A tar file must not be compressed: pictures are read from their places in it"
        raise _unusable(f"{_named(file)} is no tar file, or it was cut off", why) from None


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
    after the pictures say which pictures show the same person. We do not need them.
    """
    try:
        lines = path.with_suffix(".idx").read_text(encoding="ascii").splitlines()
        places = {int(number): int(place) for number, place in (line.split("\t") for line in lines if line)}
        first, end = min(places), max(places) + 1
        with path.open("rb") as stream:
            if first == 0:
                labels, _ = _record(stream, places[0])
                first, end = 1, int(labels[0]) if len(labels) == 2 else end
            for number in range(first, end):
                if number not in places:
                    raise ValueError(f"record {number} is missing")
                labels, part = _record(stream, places[number])
                yield SourcePicture(f"{_named(file)}, record {number}", str(int(labels[0])), split, file, part)
    except (OSError, ValueError) as error:
        why = f"{error}; its index, {path.stem}.idx, has a line for each record: number, tab, first byte"
        raise _unusable(f"{_named(file)} is no whole RecordIO file", why) from None


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


def _sample_crop(corner: Part) -> bytes:
    """Return the JPEG file of the crop with this upper left corner."""
    left, top = corner
    stream = io.BytesIO()
    photograph().crop((left, top, left + SIDE, top + SIDE)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


@cache
def photograph() -> Image.Image:
    """Return the decoded photograph; UserError if the package does not have it."""
    with Image.open(installed_file("the sample of images", PACKAGE, PHOTOGRAPH, SHA256)) as photograph:
        return photograph.convert("RGB")

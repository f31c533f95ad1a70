"""Find the pictures in a folder and their classes: in files, or inside tar and RecordIO files, which stay packed."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from throughline.datasets.shards import WORDS
from throughline.files import UserError
from throughline.images import recordio

PICTURES = (".jpg", ".jpeg", ".png")
_CORRECT = "correct the folder, or name another one as `source` in config.yaml"


class SourcePicture(NamedTuple):
    """A picture that was found in a source.

    `name` is for messages. `split` is None if the source does not tell it. `file` is the path below the source. `part`
    is the picture's place in a tar or RecordIO file (first byte, number of bytes), None if the picture is the whole
    file; in the sample it is the crop's upper left corner.
    """

    name: str
    label: str
    split: str | None
    file: str
    part: tuple[int, int] | None


def in_folder(folder: Path) -> Iterator[SourcePicture]:
    """Yield the pictures in a folder and in its tar and RecordIO files.

    UserError if a picture has no class, or if a file cannot be read.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}", next_step="correct the section's `source` in config.yaml")
    for path in _files(folder, ()):
        file = str(path.relative_to(folder))
        parts = file.split(os.sep)
        split = WORDS.get(parts[0].lower()) if len(parts) > 1 else None
        if path.suffix.lower() in PICTURES:
            classes = parts[:-1] if split is None else parts[1:-1]
            if not classes:
                raise UserError(
                    f"{named(file)} in {folder} has no class",
                    why="each class has a folder of its own, such as train/cat/1.jpg",
                    next_step=_CORRECT,
                )
            yield SourcePicture(named(file), classes[0], split, file, None)
        elif path.suffix.lower() == ".tar":
            yield from _in_tar(path, file, split or _split_of(path.stem))
        elif path.suffix.lower() == ".rec":
            yield from _in_recordio(path, file, split or _split_of(path.stem))


def named(name: str) -> str:
    """Return a file's name for messages: in quotes and with escapes if it has characters that cannot be printed."""
    return name if name.isprintable() else ascii(name)


def _files(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names. Follows links. `above`: the folders that it is in."""
    facts = folder.stat()
    here = facts.st_dev, facts.st_ino
    if here in above:
        raise UserError(f"the folder {named(str(folder))} is a link to a folder that it is in", next_step=_CORRECT)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path), (*above, here))
        elif entry.is_file():
            yield Path(entry.path)
        else:
            raise UserError(
                f"{named(entry.path)} is no file",
                why="it is a link to something that does not exist" if entry.is_symlink() else "it is a device or pipe",
                next_step=_CORRECT,
            )


def _split_of(stem: str) -> str | None:
    """Return the split from the first word in a file's name that tells it, as in `imagenet-val-000003`, or None."""
    words = stem.lower().replace("_", "-").replace(".", "-").split("-")
    return next((WORDS[word] for word in words if word in WORDS), None)


def _in_tar(path: Path, file: str, split: str | None) -> Iterator[SourcePicture]:
    """Yield the pictures in a tar file.

    Each picture has its class in a `.cls` file beside it. If the tar file has no `.cls`, its own name is the class.
    """
    pictures: dict[str, tuple[int, int]] = {}
    labels: dict[str, str] = {}
    with path.open("rb") as stream:
        for member in _members(path, file):
            name, place = member.name, (member.offset_data, member.size)
            if name in pictures:
                raise UserError(f"{named(file)} holds {named(name)} twice", next_step=_CORRECT)
            if name.lower().endswith(PICTURES):
                pictures[name] = place
            elif name.lower().endswith(".cls"):
                stream.seek(member.offset_data)
                labels[_key(name)] = _label(stream.read(min(member.size, 32)), file, name)
    for name, place in pictures.items():
        label = labels.get(_key(name)) if labels else path.stem
        if label is None:
            raise UserError(
                f"{named(file)} holds {named(name)} without its class",
                why=f"other pictures of the file have one; {named(_key(name))}.cls is missing",
                next_step=_CORRECT,
            )
        yield SourcePicture(f"{named(file)}/{named(name)}", label, split, file, place)


def _in_recordio(path: Path, file: str, split: str | None) -> Iterator[SourcePicture]:
    """Yield the pictures in a RecordIO file. If a picture is cut off, the later reading of the picture finds it."""
    try:
        for number, place, label in recordio.pictures(path):
            yield SourcePicture(f"{named(file)}, record {number}", str(label), split, file, place)
    except recordio.Broken as error:
        raise UserError(f"{named(file)} is no whole RecordIO file", why=str(error), next_step=_CORRECT) from None


def _members(path: Path, file: str) -> Iterator[tarfile.TarInfo]:
    """Yield the files in a tar file; UserError if it holds links or devices, is compressed, or is cut off."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise UserError(
                        f"{named(file)} holds {named(member.name)}, which is no ordinary file",
                        why="links and devices are not followed out of a tar file",
                        next_step=_CORRECT,
                    )
                yield member
            end = archive.offset
        with path.open("rb") as stream:
            stream.seek(end)
            if stream.read(512) != bytes(512):
                raise tarfile.ReadError("its end is missing")
    except tarfile.TarError as error:
        raise UserError(
            f"{named(file)} is no tar file, or it was cut off",
            why=f"{error}. A tar file must not be compressed: pictures are read from their places in it",
            next_step=_CORRECT,
        ) from None


def _key(name: str) -> str:
    """Return webdataset's key, which the files of one sample share: the path up to the first dot of the file's name."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _label(text: bytes, file: str, name: str) -> str:
    if not text.strip().isdigit():
        raise UserError(
            f"{named(file)} holds {named(name)}, which is no class",
            why=f"a class is a whole number from 0 on, as text; this is {text[:32]!r}",
            next_step=_CORRECT,
        )
    return str(int(text))

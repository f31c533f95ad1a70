"""The listing of a source: its classes, and the shard and number of each picture.

The first line is a map: `classes`, `images`, `attribution`. Each other line is one picture: [shard, number, label,
name, file, part]. Each line begins with its shard, so a job parses only the lines of its own shard.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from throughline import files
from throughline.datasets.shards import shard_names
from throughline.files import UserError
from throughline.images import sample, source_pictures
from throughline.images.source_pictures import SourcePicture
from throughline.study.images_section import SAMPLE


class ListedPicture(NamedTuple):
    """A picture of a shard: its number among all pictures, the number of its class; the rest is as in SourcePicture."""

    number: int
    label: int
    name: str
    file: str
    part: tuple[int, int] | None


def write(source: str, shards: Mapping[str, int], path: Path) -> dict[str, Any]:
    """Write the listing of a source and return its first line. `shards`: how many of each split, training and test."""
    is_sample = source == SAMPLE
    found = list(sample.crops() if is_sample else source_pictures.in_folder(Path(source)))
    names = classes(found, source)
    dealt = list(_dealt(found, shards, source))
    first = {"classes": names, "images": len(dealt), "attribution": sample.ATTRIBUTION if is_sample else None}
    numbers = {name: number for number, name in enumerate(names)}
    with files.atomic(path) as temporary, temporary.open("w", encoding="ascii") as stream:
        stream.write(json.dumps(first) + "\n")
        for number, (shard, picture) in enumerate(dealt):
            line = shard, number, numbers[picture.label], picture.name, picture.file, picture.part
            stream.write(json.dumps(line) + "\n")
    return first


def first_line(path: Path) -> dict[str, Any]:
    with path.open(encoding="ascii") as stream:
        return dict(json.loads(stream.readline()))


def of_shard(path: Path, shard: str) -> Iterator[ListedPicture]:
    """Yield the pictures of a shard in their order in the shard."""
    begin = f'["{shard}", '
    with path.open(encoding="ascii") as stream:
        for line in stream:
            if line.startswith(begin):
                _, number, label, name, file, part = json.loads(line)
                yield ListedPicture(number, label, name, file, tuple(part) if part else None)


def classes(found: Sequence[SourcePicture], source: str) -> list[str]:
    """Return the classes in the order of their numbers; UserError if the source has no usable classes.

    Names are sorted as torchvision's ImageFolder does. If the classes are numbers (in a tar or RecordIO file), these
    are all the numbers from 0 to the highest.
    """
    seen = {picture.label for picture in found}
    training = {picture.label for picture in found if picture.split != "test"}
    for is_wrong, fault in (
        (not found, "holds no pictures: no .jpg, .jpeg or .png, and no .tar with any"),
        (len(training) < 2, f"has {len(training)} classes to train on; a model learns to tell apart at least two"),
        (seen - training, f"has classes only in its test pictures: {', '.join(sorted(seen - training)[:5])}"),
    ):
        if is_wrong:
            raise UserError(f"{source} {fault}", next_step="name another folder as `source` in config.yaml")
    if all(label.isdecimal() for label in seen) and any(picture.part for picture in found):
        return [str(label) for label in range(max(map(int, seen)) + 1)]
    return sorted(seen)


def _dealt(
    found: Iterable[SourcePicture], shards: Mapping[str, int], source: str
) -> Iterator[tuple[str, SourcePicture]]:
    """Assign each picture to a shard: sort pictures by the digests of their names and deal them out in turn.

    If the source has test pictures, these go to the test shards and the others to the training shards. Otherwise all
    pictures are dealt to all shards.
    """
    ordered = sorted(found, key=lambda picture: hashlib.sha256(ascii(picture.name).encode()).digest())
    names = shard_names(shards)
    held_out = [picture for picture in ordered if picture.split == "test"]
    rest = [picture for picture in ordered if picture.split != "test"]
    trains = shards["training"] if held_out else len(names)
    for pictures, into in ((rest, names[:trains]), (held_out, names[trains:])):
        if len(pictures) < len(into):
            raise UserError(
                f"{source} has {len(pictures)} pictures for {len(into)} shards",
                next_step="set fewer `shards` in config.yaml, or use more pictures",
            )
        yield from zip(cycle(into), pictures, strict=False)

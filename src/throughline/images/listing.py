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
from throughline.files import UserError
from throughline.images import sample, source_pictures
from throughline.images.source_pictures import Found
from throughline.study.images_section import SAMPLE


class Listed(NamedTuple):
    """A picture of a shard: its number among all pictures and the number of its class. The rest is as in Found."""

    number: int
    label: int
    name: str
    file: str
    part: tuple[int, int] | None


def write(place: str, shards: Mapping[str, int], path: Path) -> dict[str, Any]:
    """Write the listing of a source and return its first line. `shards`: how many of each split, training and test."""
    is_sample = place == SAMPLE
    found = list(sample.found() if is_sample else source_pictures.found(Path(place)))
    names = classes(found, place)
    dealt = list(_dealt(found, shards, place))
    first = {"classes": names, "images": len(dealt), "attribution": sample.ATTRIBUTION if is_sample else None}
    numbers = {name: number for number, name in enumerate(names)}
    with files.atomic(path) as temporary, temporary.open("w", encoding="ascii") as stream:
        stream.write(json.dumps(first) + "\n")
        for number, (shard, one) in enumerate(dealt):
            line = shard, number, numbers[one.label], one.name, one.file, one.part
            stream.write(json.dumps(line) + "\n")
    return first


def first_line(path: Path) -> dict[str, Any]:
    with path.open(encoding="ascii") as stream:
        return dict(json.loads(stream.readline()))


def of_shard(path: Path, shard: str) -> Iterator[Listed]:
    """Yield the pictures of a shard in their order in the shard."""
    begin = f'["{shard}", '
    with path.open(encoding="ascii") as stream:
        for line in stream:
            if line.startswith(begin):
                _, number, label, name, file, part = json.loads(line)
                yield Listed(number, label, name, file, tuple(part) if part else None)


def classes(found: Sequence[Found], place: str) -> list[str]:
    """Return the classes in the order of their numbers; UserError if the source has no usable classes.

    Names are sorted as torchvision's ImageFolder does. If the classes are numbers (in a tar or RecordIO file), these
    are all the numbers from 0 to the highest.
    """
    seen = {one.label for one in found}
    training = {one.label for one in found if one.split != "test"}
    for wrong, why in (
        (not found, "holds no pictures: no .jpg, .jpeg or .png, and no .tar with any"),
        (len(training) < 2, f"has {len(training)} classes to train on; a model learns to tell apart at least two"),
        (seen - training, f"has classes only in its test pictures: {', '.join(sorted(seen - training)[:5])}"),
    ):
        if wrong:
            next_step = "name another folder as `source` in config.yaml"
            raise UserError(f"{place} {why}", next_step=next_step)
    if all(label.isdecimal() for label in seen) and any(one.part for one in found):
        return [str(label) for label in range(max(map(int, seen)) + 1)]
    return sorted(seen)


def _dealt(found: Iterable[Found], shards: Mapping[str, int], place: str) -> Iterator[tuple[str, Found]]:
    """Assign each picture to a shard: sort pictures by the digests of their names and deal them out in turn.

    If the source has test pictures, these go to the test shards and the others to the training shards. Otherwise all
    pictures are dealt to all shards.
    """
    ordered = sorted(found, key=lambda one: hashlib.sha256(ascii(one.name).encode()).digest())
    trains, tests = ([f"{split}_{number:04d}" for number in range(count)] for split, count in shards.items())
    own = [one for one in ordered if one.split == "test"]
    rest = [one for one in ordered if one.split != "test"]
    for pictures, names in ((rest, trains), (own, tests)) if own else ((rest, trains + tests),):
        if len(pictures) < len(names):
            raise UserError(
                f"{place} has {len(pictures)} pictures for {len(names)} shards",
                next_step="set fewer `shards` in config.yaml, or use more pictures",
            )
        yield from zip(cycle(names), pictures, strict=False)

"""From a source to verified shards: the listing, the shards with their indexes, verification, and the manifest.

A shard is a tar file in webdataset's layout. Each picture is `<number>.jpg`, its unchanged file, followed by
`<number>.cls`, the number of its class as text. Everything else in the tar file is constant, so the same pictures
always give the same bytes.

The listing says in which shard each picture is. Its first line is a map: `classes`, `images`, `attribution`. Each other
line is a picture: [shard, number, label, name, file, part]. Each line begins with its shard, so a job parses only the
lines of its own shard.
"""

import hashlib
import io
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import PIL
from PIL import Image, features

from throughline import files
from throughline.datasets import manifest
from throughline.datasets.shards import CHANGED, fault, shard_names
from throughline.files import UserError
from throughline.images import decoding, layout, sources
from throughline.images.sources import Part, SourcePicture
from throughline.progress import Progress
from throughline.study.data_sections import SAMPLE


class ListedPicture(NamedTuple):
    """A picture of a shard: its number among all pictures, the number of its class; the rest is as in SourcePicture."""

    number: int
    label: int
    name: str
    file: str
    part: Part | None

    @property
    def key(self) -> str:
        """The name of its two files in the shard, without the endings."""
        return f"{self.number:08d}"


# The listing


def write_listing(source: str, shards: Mapping[str, int], path: Path) -> dict[str, Any]:
    """Write the listing of a source and return its first line. `shards`: how many of each split, training and test."""
    pictures = list(sources.pictures(source))
    names = _classes(pictures, source)
    attribution = sources.ATTRIBUTION if source == SAMPLE else None
    dealt = list(_dealt(pictures, shards, source))
    first = {"classes": names, "images": len(dealt), "attribution": attribution}
    numbers = {name: number for number, name in enumerate(names)}
    with files.atomic(path) as temporary, temporary.open("w", encoding="ascii") as stream:
        stream.write(json.dumps(first) + "\n")
        for number, (shard, picture) in enumerate(dealt):
            line = shard, number, numbers[picture.label], picture.name, picture.file, picture.part
            stream.write(json.dumps(line) + "\n")
    return first


def listed_pictures(listing: Path, shard: str) -> Iterator[ListedPicture]:
    """Yield the pictures of a shard in their order in the shard."""
    begin = f'["{shard}", '
    with listing.open(encoding="ascii") as stream:
        for line in stream:
            if line.startswith(begin):
                _, number, label, name, file, part = json.loads(line)
                yield ListedPicture(number, label, name, file, tuple(part) if part else None)


def _classes(pictures: Sequence[SourcePicture], source: str) -> list[str]:
    """Return the classes in the order of their numbers; UserError if the source has no usable classes.

    Names are sorted as torchvision's ImageFolder does. If the classes are numbers (in a tar or RecordIO file), these
    are all the numbers from 0 to the highest.
    """
    seen = {picture.label for picture in pictures}
    training = {picture.label for picture in pictures if picture.split != "test"}
    for is_wrong, what in (
        (not pictures, "holds no pictures: no .jpg, .jpeg or .png, and no .tar with any"),
        (len(training) < 2, f"has {len(training)} classes to train on; a model learns to tell apart at least two"),
        (seen - training, f"has classes only in its test pictures: {', '.join(sorted(seen - training)[:5])}"),
    ):
        if is_wrong:
            raise UserError(f"{source} {what}", next_step="name another folder as `source` in config.yaml")
    if all(label.isdecimal() for label in seen) and any(picture.part for picture in pictures):
        return [str(label) for label in range(max(map(int, seen)) + 1)]
    return sorted(seen)


def _dealt(
    pictures: Iterable[SourcePicture], shards: Mapping[str, int], source: str
) -> Iterator[tuple[str, SourcePicture]]:
    """Assign each picture to a shard: sort pictures by the digests of their names and deal them out in turn.

    If the source has test pictures, these go to the test shards and the others to the training shards. Otherwise all
    pictures are dealt to all shards.
    """
    ordered = sorted(pictures, key=lambda picture: hashlib.sha256(ascii(picture.name).encode()).digest())
    names = shard_names(shards)
    held_out = [picture for picture in ordered if picture.split == "test"]
    rest = [picture for picture in ordered if picture.split != "test"]
    trains = shards["training"] if held_out else len(names)
    for dealt, into in ((rest, names[:trains]), (held_out, names[trains:])):
        if len(dealt) < len(into):
            raise UserError(
                f"{source} has {len(dealt)} pictures for {len(into)} shards",
                next_step="set fewer `shards` in config.yaml, or use more pictures",
            )
        yield from zip(cycle(into), dealt, strict=False)


# Shards


def write_shard(listing: Path, source: str, skip: bool, path: Path) -> int:
    """Write a shard and its index beside it. With `skip`, leave damaged pictures out and return their number.

    Without `skip` no picture is decoded here: verification finds damaged ones.
    """
    samples, skipped = [], 0
    with files.atomic(path) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
        for picture in listed_pictures(listing, path.stem):
            data = sources.read(source, picture.name, picture.file, picture.part)
            if skip:
                try:
                    decoding.opened(data, decode=True)
                except decoding.Damaged as error:
                    print(f"skipped {picture.name}: {error}", file=sys.stderr)
                    skipped += 1
                    continue
            key = picture.key
            label = b"%d" % picture.label
            samples.append((key, *_add(archive, f"{key}.jpg", data), *_add(archive, f"{key}.cls", label)))
    files.write_text(path.with_suffix(".idx"), layout.index_text(samples))
    return skipped


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> tuple[int, int]:
    """Add a file to a shard and return its place: first byte, number of bytes."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    offset = archive.offset + tarfile.BLOCKSIZE
    archive.addfile(member, io.BytesIO(data))
    return offset, len(data)


# Verification


def verify(path: Path, listing: Path, skip: bool, side: int | None = None) -> dict[str, Any]:
    """Verify a shard and return its result for the manifest; UserError names the first fault.

    Reads the whole file, compares it with its index and the listing, and decodes every picture once. `skip`: pictures
    may be missing. `side`: the height and width in pixels that every picture must have, if given.
    """
    expected = {picture.key: picture for picture in listed_pictures(listing, path.stem)}
    index = path.with_suffix(".idx")
    content, formats, modes = hashlib.sha256(), Counter[str](), Counter[str]()
    try:
        places = layout.read_index(index).tolist()
    except (OSError, ValueError, IndexError) as error:
        raise fault(index, f"is no index: {error}", CHANGED) from None
    progress = Progress(f"verifying {path.name}", path.stat().st_size)
    sizes, total = [], 0
    for picture, data in _checked(path, expected, places):
        image = _decoded(picture, data, side)
        content.update(f"{picture.label} {len(data)}\n".encode() + data)
        formats[str(image.format)] += 1
        modes[image.mode] += 1
        sizes.append(image.size)
        total += len(data)
        progress.to(total)
    if expected and not skip:
        raise fault(path, f"lacks {next(iter(expected.values())).name}", CHANGED)
    statistics = {
        "bytes": total,
        "formats": dict(sorted(formats.items())),
        "modes": dict(sorted(modes.items())),
        "width": _span(width for width, _ in sizes),
        "height": _span(height for _, height in sizes),
        "pixels": sum(width * height for width, height in sizes),
    }
    facts = {"rows": len(places), "skipped": len(expected)}
    return manifest.verified(path, facts, content.hexdigest(), index, statistics=statistics)


def _checked(
    path: Path, expected: dict[str, ListedPicture], places: Sequence[list[int]]
) -> Iterator[tuple[ListedPicture, bytes]]:
    """Yield each picture of a shard with its bytes, and take it out of `expected`, which has the listed ones by key.

    UserError if the shard is no tar file, or has other files than are listed for it or other places than its index.
    """
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as stream:
            members = list(archive)
            pairs = list(zip(members[::2], members[1::2], strict=False))
            inside = [[image.offset_data, image.size, label.offset_data, label.size] for image, label in pairs]
            if places != inside or len(members) % 2:
                raise fault(path.with_suffix(".idx"), "names other places than those in the shard", CHANGED)
            for image, label in pairs:
                key = image.name.removesuffix(".jpg")
                picture = expected.pop(key, None)
                if picture is None or (image.name, label.name) != (f"{key}.jpg", f"{key}.cls"):
                    raise fault(path, f"holds {image.name} and {label.name}, which are not listed for it", CHANGED)
                stream.seek(image.offset_data)
                data = stream.read(image.size)
                stream.seek(label.offset_data)
                if stream.read(label.size) != b"%d" % picture.label:
                    raise fault(path, f"has another class for {picture.name} than {picture.label}", CHANGED)
                yield picture, data
    except tarfile.TarError as error:
        raise fault(path, f"is no whole tar file: {error}", CHANGED) from None


def _decoded(picture: ListedPicture, data: bytes, side: int | None) -> Image.Image:
    """Return the decoded picture; UserError if it is damaged or has another size than faces must have."""
    try:
        image = decoding.opened(data, decode=True)
    except decoding.Damaged as error:
        raise UserError(
            f"the picture {picture.name} is damaged",
            why=str(error),
            next_step="set the section's `damaged: skip` in config.yaml to leave such pictures out; or replace the "
            "picture and make its shard again with snakemake --force",
        ) from None
    if side is not None and image.size != (side, side):
        raise UserError(
            f"the picture {picture.name} has {image.width} x {image.height} pixels",
            why=f"faces are aligned, and have {side} x {side}",
            next_step="align the faces first, or name another folder in config.yaml",
        )
    return image


# The manifest


def write_manifest(name: str, verified: Sequence[Path], listing: Path, parameters: dict[str, Any], path: Path) -> None:
    """Write the manifest from the results of all shards: the classes, and statistics of the pictures."""
    nothing = UserError(f"the images {name} have no picture to train on", next_step="name a folder with more pictures")
    results = manifest.read_results(verified, "rows", nothing)
    with listing.open(encoding="ascii") as stream:
        first = json.loads(stream.readline())
    classes, attribution = first["classes"], first["attribution"]
    head = {"kind": "images", "images": name, "classes": len(classes), "class_names": classes}
    statistics = [result["statistics"] for result in results if result["rows"]]
    counted = {key: sum((Counter(shard[key]) for shard in statistics), Counter[str]()) for key in ("formats", "modes")}
    facts = {
        "verified_with": {"pillow": PIL.__version__, "libjpeg_turbo": features.version("libjpeg_turbo")},
        **{key: sum(result[key] for result in results) for key in ("rows", "skipped")},
        "statistics": {
            **{key: sum(shard[key] for shard in statistics) for key in ("bytes", "pixels")},
            **{key: dict(sorted(counts.items())) for key, counts in counted.items()},
            **{key: _span(edge for shard in statistics for edge in shard[key]) for key in ("width", "height")},
        },
    }
    kept = ("rows", "skipped", "sha256", "index", "content_digest")
    manifest.write(path, {**head, "attribution": attribution}, parameters, facts, results, kept)


def _span(values: Iterable[int]) -> list[int]:
    """Return the least and the most of the values; 0 without any."""
    values = list(values)
    return [min(values, default=0), max(values, default=0)]

"""Verify a shard: read the whole file, compare it with its index and the listing, and decode every picture once."""

from __future__ import annotations

import hashlib
import tarfile
from collections import Counter
from pathlib import Path
from typing import IO, Any

from throughline.datasets import manifest
from throughline.datasets.shards import CHANGED, fault
from throughline.files import UserError
from throughline.images import listing, pictures, shard_index
from throughline.images.listing import ListedPicture
from throughline.progress import Progress


def verify(path: Path, listed: Path, skip: bool, side: int | None = None) -> dict[str, Any]:
    """Verify a shard and return its entry for the manifest; UserError names the first fault.

    `skip`: pictures may be missing. `side`: the height and width in pixels that every picture must have, if given.
    """
    expected = {picture.number: picture for picture in listing.of_shard(listed, path.stem)}
    index_file = path.with_suffix(".idx")
    try:
        places = shard_index.read(index_file).tolist()
    except (OSError, ValueError, IndexError) as error:
        raise fault(index_file, f"is no index: {error}", CHANGED) from None
    content, counts, widths, heights = hashlib.sha256(), Counter[str](), [], []
    progress = Progress(f"verifying {path.name}", path.stat().st_size)
    seen: set[int] = set()
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as stream:
            members = list(archive)
            if len(members) != 2 * len(places):
                raise fault(path, f"holds {len(members)} files, and its index {len(places)} pictures", CHANGED)
            for row, place in enumerate(places):
                pair = members[2 * row : 2 * row + 2]
                picture = _expected(path, expected, pair)
                if [number for file in pair for number in (file.offset_data, file.size)] != place:
                    raise fault(index_file, f"has other places for {pair[0].name} than the shard", CHANGED)
                data = _labelled(path, picture, stream, place)
                image = _whole(picture, data, side)
                counts[f"format {image.format}"] += 1
                counts[f"mode {image.mode}"] += 1
                counts["bytes"] += len(data)
                widths.append(image.width)
                heights.append(image.height)
                content.update(f"{picture.label} {len(data)}\n".encode() + data)
                seen.add(picture.number)
                progress.to(place[0])
    except tarfile.TarError as error:
        raise fault(path, f"is no whole tar file: {error}", CHANGED) from None
    missing = [picture for number, picture in expected.items() if number not in seen]
    if missing and not skip:
        raise fault(path, f"lacks {missing[0].name}", CHANGED)
    statistics = {
        "bytes": counts["bytes"],
        "formats": _counted(counts, "format"),
        "modes": _counted(counts, "mode"),
        "width": [min(widths, default=0), max(widths, default=0)],
        "height": [min(heights, default=0), max(heights, default=0)],
        "pixels": sum(width * height for width, height in zip(widths, heights, strict=True)),
    }
    facts = {"rows": len(places), "skipped": len(missing)}
    return manifest.verified(path, facts, content.hexdigest(), index_file, statistics=statistics)


def _expected(path: Path, expected: dict[int, ListedPicture], members: list[tarfile.TarInfo]) -> ListedPicture:
    """Return the listed picture of these two files of a shard; UserError if it is not listed for this shard."""
    names = [member.name for member in members]
    key = names[0].partition(".")[0]
    picture = expected.get(int(key)) if key.isdecimal() else None
    if picture is None or names != [f"{key}.jpg", f"{key}.cls"]:
        raise fault(path, f"holds {' and '.join(names)}, which is no picture that is listed for it", CHANGED)
    return picture


def _labelled(path: Path, picture: ListedPicture, stream: IO[bytes], place: list[int]) -> bytes:
    """Return the bytes of a picture; UserError if its class is not the listed one."""
    offset, size, label_offset, label_size = place
    stream.seek(offset)
    data = stream.read(size)
    stream.seek(label_offset)
    label = stream.read(label_size)
    if label != b"%d" % picture.label:
        raise fault(path, f"has the class {label!r} for {picture.name}, which is of class {picture.label}", CHANGED)
    return data


def _whole(picture: ListedPicture, data: bytes, side: int | None) -> Any:
    """Return the decoded picture; UserError if it is damaged or has another size than faces must have."""
    try:
        image = pictures.checked(data)
    except pictures.Damaged as error:
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


def _counted(counts: Counter[str], kind: str) -> dict[str, int]:
    return {name.split()[1]: count for name, count in sorted(counts.items()) if name.startswith(f"{kind} ")}

"""Verify a shard: read the whole file, compare it with its index and the listing, and decode every picture once."""

from __future__ import annotations

import hashlib
import tarfile
from collections import Counter
from pathlib import Path
from typing import IO, Any

from throughline import files
from throughline.datasets import manifest
from throughline.datasets.faults import changed
from throughline.files import UserError
from throughline.images import listing, pictures, shard_index
from throughline.images.listing import Listed
from throughline.progress import Progress


def verify(path: Path, listed: Path, skip: bool, side: int | None = None) -> dict[str, Any]:
    """Verify a shard and return its entry for the manifest; UserError names the first fault.

    `skip`: pictures may be missing. `side`: the height and width in pixels that every picture must have, if given.
    """
    expected = {one.number: one for one in listing.of_shard(listed, path.stem)}
    beside = path.with_suffix(".idx")
    try:
        places = shard_index.read(beside).tolist()
    except (OSError, ValueError, IndexError) as error:
        raise changed(beside, f"is no index: {error}") from None
    content, counts, widths, heights = hashlib.sha256(), Counter[str](), [], []
    progress = Progress(f"verifying {path.name}", path.stat().st_size)
    seen: set[int] = set()
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as stream:
            members = list(archive)
            if len(members) != 2 * len(places):
                raise changed(path, f"holds {len(members)} files, and its index {len(places)} pictures")
            for row, place in enumerate(places):
                pair = members[2 * row : 2 * row + 2]
                one = _expected(path, expected, pair)
                if [number for file in pair for number in (file.offset_data, file.size)] != place:
                    raise changed(beside, f"has other places for {pair[0].name} than the shard")
                data = _labelled(path, one, stream, place)
                picture = _whole(one, data, side)
                counts[f"format {picture.format}"] += 1
                counts[f"mode {picture.mode}"] += 1
                counts["bytes"] += len(data)
                widths.append(picture.width)
                heights.append(picture.height)
                content.update(f"{one.label} {len(data)}\n".encode() + data)
                seen.add(one.number)
                progress.to(place[0])
    except tarfile.TarError as error:
        raise changed(path, f"is no whole tar file: {error}") from None
    missing = [one for number, one in expected.items() if number not in seen]
    if missing and not skip:
        raise changed(path, f"lacks {missing[0].name}")
    statistics = {
        "bytes": counts["bytes"],
        "formats": _counted(counts, "format"),
        "modes": _counted(counts, "mode"),
        "width": [min(widths, default=0), max(widths, default=0)],
        "height": [min(heights, default=0), max(heights, default=0)],
        "pixels": sum(width * height for width, height in zip(widths, heights, strict=True)),
    }
    facts: dict[str, Any] = {"rows": len(places), "skipped": len(missing)}
    facts["index"] = {"file": beside.name, "sha256": files.sha256(beside)}
    return manifest.verified(path, facts, content.hexdigest(), statistics=statistics)


def _expected(path: Path, expected: dict[int, Listed], members: list[tarfile.TarInfo]) -> Listed:
    """Return the listed picture of these two files of a shard; UserError if it is not listed for this shard."""
    names = [member.name for member in members]
    key = names[0].partition(".")[0]
    one = expected.get(int(key)) if key.isdecimal() else None
    if one is None or names != [f"{key}.jpg", f"{key}.cls"]:
        raise changed(path, f"holds {' and '.join(names)}, which is no picture that is listed for it")
    return one


def _labelled(path: Path, one: Listed, stream: IO[bytes], place: list[int]) -> bytes:
    """Return the bytes of a picture; UserError if its class is not the listed one."""
    offset, size, label_offset, label_size = place
    stream.seek(offset)
    data = stream.read(size)
    stream.seek(label_offset)
    label = stream.read(label_size)
    if label != b"%d" % one.label:
        raise changed(path, f"has the class {label!r} for {one.name}, which is of class {one.label}")
    return data


def _whole(one: Listed, data: bytes, side: int | None) -> Any:
    """Return the decoded picture; UserError if it is damaged or has another size than faces must have."""
    try:
        picture = pictures.checked(data)
    except pictures.Damaged as error:
        raise UserError(
            f"the picture {one.name} is damaged",
            why=str(error),
            next_step="set the section's `damaged: skip` in config.yaml to leave such pictures out; or replace the "
            "picture and make its shard again with snakemake --force",
        ) from None
    if side is not None and picture.size != (side, side):
        raise UserError(
            f"the picture {one.name} has {picture.width} x {picture.height} pixels",
            why=f"faces are aligned, and have {side} x {side}",
            next_step="align the faces first, or name another folder in config.yaml",
        )
    return picture


def _counted(counts: Counter[str], kind: str) -> dict[str, int]:
    return {name.split()[1]: count for name, count in sorted(counts.items()) if name.startswith(f"{kind} ")}

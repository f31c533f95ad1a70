"""Make a shard of listed pictures: a tar file in webdataset's layout, and its index.

Each picture is `<number>.jpg`, its unchanged file, followed by `<number>.cls`, the number of its class as text.
Everything else in the tar file is constant, so the same pictures always give the same bytes.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from throughline import files
from throughline.files import UserError
from throughline.images import listing, pictures, sample, shard_index
from throughline.images.listing import ListedPicture
from throughline.study.images_section import SAMPLE


def make(listed: Path, source: str, skip: bool, path: Path) -> int:
    """Write a shard and its index beside it. With `skip`, leave damaged pictures out and return their number.

    Without `skip` no picture is decoded here: verification finds damaged ones.
    """
    samples, skipped = [], 0
    with files.atomic(path) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
        for picture, data in _read(listing.of_shard(listed, path.stem), source):
            if skip:
                try:
                    pictures.checked(data)
                except pictures.Damaged as error:
                    print(f"skipped {picture.name}: {error}", file=sys.stderr)
                    skipped += 1
                    continue
            key = f"{picture.number:08d}"
            samples.append((key, _add(archive, f"{key}.jpg", data), _add(archive, f"{key}.cls", b"%d" % picture.label)))
    files.write_text(path.with_suffix(".idx"), shard_index.text(samples))
    return skipped


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> shard_index.Place:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    offset = archive.offset + tarfile.BLOCKSIZE
    archive.addfile(member, io.BytesIO(data))
    return offset, len(data)


def _read(listed: Iterator[ListedPicture], source: str) -> Iterator[tuple[ListedPicture, bytes]]:
    """Yield each picture with the bytes of its file; UserError if the source has changed since it was listed."""
    with ExitStack() as stack:
        tars: dict[str, BinaryIO] = {}
        for picture in listed:
            if source == SAMPLE:
                assert picture.part is not None
                yield picture, sample.crop(picture.part)
                continue
            path = Path(source) / picture.file
            try:
                if picture.part is None:
                    yield picture, path.read_bytes()
                    continue
                if picture.file not in tars:
                    tars[picture.file] = stack.enter_context(path.open("rb"))
                offset, size = picture.part
                tars[picture.file].seek(offset)
                data = tars[picture.file].read(size)
            except FileNotFoundError:
                data, size = b"", 1
            if len(data) < size:
                raise UserError(
                    f"{picture.name} is not in {source} any more",
                    why="the folder has changed since its pictures were listed",
                    next_step="put it back; or remove data/<name>/images/listing.jsonl and run snakemake again",
                )
            yield picture, data

"""Open the pictures that rows name, crop them, and decode them with Pillow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray
from PIL.Image import Image

from throughline import files
from throughline.images import crops, pictures, shard_index
from throughline.images.shared_batches import HELD_OUT
from throughline.randomness import Stream

OPEN_AT_MOST = 64
"""How many shards stay open."""


class Decoder:
    def __init__(self, job: Mapping[str, Any]) -> None:
        self.folder, self.image, self.seed, self.shards = Path(job["folder"]), job["image"], job["seed"], job["shards"]
        self.crops = job["crops"]
        self.opened = lru_cache(OPEN_AT_MOST)(self._open)

    def _open(self, shard: int) -> tuple[BinaryIO, NDArray[Any]]:
        entry = self.shards[shard]
        beside = self.folder / entry["index"]["file"]
        if files.sha256(beside) != entry["index"]["sha256"]:
            raise ValueError(f"{beside} is not what the manifest says: make it again")
        return (self.folder / entry["file"]).open("rb", buffering=0), shard_index.read(beside)

    def sample(self, shard: int, row: int, epoch: int) -> tuple[NDArray[Any], int]:
        """Return a picture's pixels and its class."""
        _, picture, label = self.file(shard, row)
        box, mirrored = self.crop(picture, shard, row, epoch)
        array = crops.pixels(picture, box, self.image)
        return array[:, ::-1] if mirrored else array, label

    def file(self, shard: int, row: int) -> tuple[bytes, Image, int]:
        """Return a picture's file, the picture (not decoded yet, only its header is read), and its class."""
        stream, places = self.opened(shard)
        offset, size, label_offset, label_size = places[row].tolist()
        label = int(os.pread(stream.fileno(), label_size, label_offset))
        data = os.pread(stream.fileno(), size, offset)
        return data, pictures.opened(data), label

    def crop(self, picture: Image, shard: int, row: int, epoch: int) -> tuple[crops.Box, bool]:
        """Return which part of a picture is shown, and whether it is mirrored."""
        if epoch == HELD_OUT:
            return crops.middle(*picture.size) if self.crops else (0, 0, *picture.size), False
        name = Path(self.shards[shard]["file"]).stem
        box, mirrored = crops.drawn(Stream(self.seed, "crop", name, row, epoch), *picture.size)
        return box if self.crops else (0, 0, *picture.size), mirrored

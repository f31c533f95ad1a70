"""Decode the pictures that rows name, for a rank: in a process of its own with Pillow, or beside DALI (dali.py).

    python -m throughline.images.decoding     (reading.py starts it, in the workflow's own environment)

The process writes pixels into memory that it shares with the rank (layout.py). Input: a line of JSON, then for each
batch HEADER and the rows. Output: a line with Pillow's version, then for each batch a line that is empty or says what
went wrong. The process ends when its input or its parent process ends.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL.Image import Image

from throughline import files
from throughline.images import pictures
from throughline.images.layout import HEADER, HELD_OUT, read_index, views
from throughline.processes import die_with_parent
from throughline.randomness import Stream

OPEN_AT_MOST = 64
"""How many shards stay open."""


class Decoder:
    """Finds, crops and decodes the pictures of rows. `job` is `PictureReader.job`."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.folder, self.image, self.seed, self.shards = Path(job["folder"]), job["image"], job["seed"], job["shards"]
        self.crops = job["crops"]
        self.opened = lru_cache(OPEN_AT_MOST)(self._open)

    def _open(self, shard: int) -> tuple[BinaryIO, NDArray[Any]]:
        entry = self.shards[shard]
        beside = self.folder / entry["index"]["file"]
        if files.sha256(beside) != entry["index"]["sha256"]:
            raise ValueError(f"{beside} is not what the manifest says: make it again")
        return (self.folder / entry["file"]).open("rb", buffering=0), read_index(beside)

    def find(self, shard: int, row: int, epoch: int) -> tuple[bytes, Image, pictures.Box, bool, int]:
        """Return a picture's file, the picture (only its header is read), the part of it that is shown, whether it is
        mirrored, and its class."""
        stream, places = self.opened(shard)
        offset, size, label_offset, label_size = places[row].tolist()
        label = int(os.pread(stream.fileno(), label_size, label_offset))
        data = os.pread(stream.fileno(), size, offset)
        picture = pictures.opened(data)
        if epoch == HELD_OUT:
            box, mirrored = pictures.center_crop(*picture.size), False
        else:
            name = Path(self.shards[shard]["file"]).stem
            box, mirrored = pictures.random_crop(Stream(self.seed, "crop", name, row, epoch), *picture.size)
        return data, picture, box if self.crops else (0, 0, *picture.size), mirrored, label

    def sample(self, shard: int, row: int, epoch: int) -> tuple[NDArray[Any], int]:
        """Return a picture's pixels and its class."""
        _, picture, box, mirrored, label = self.find(shard, row, epoch)
        array = pictures.resized(picture, box, self.image)
        return array[:, ::-1] if mirrored else array, label


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to end
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    job = json.loads(stdin.readline())
    die_with_parent(job["parent"], signal.SIGKILL)
    decoder, memory = Decoder(job), mmap.mmap(job["memory"], 0)
    answer = PIL.__version__
    while True:
        stdout.write(answer.encode() + b"\n")
        stdout.flush()
        header = stdin.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        slot, count, first, step = HEADER.unpack(header)
        rows = np.frombuffer(stdin.read(count * 24), np.int64).reshape(-1, 3)
        pixels, labels = views(memory, slot, job["size"], job["image"])
        answer = ""
        for place, (shard, row, epoch) in zip(range(first, first + count * step, step), rows.tolist(), strict=True):
            try:
                pixels[place], labels[place] = decoder.sample(shard, row, epoch)
            except Exception as error:  # the rank gets the message and ends with it
                answer = f"picture {row} of {job['shards'][shard]['file']}: {type(error).__name__}: {error}"
                answer = " ".join(answer.split())


if __name__ == "__main__":
    main()

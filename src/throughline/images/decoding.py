"""Decode the pictures that rows name, for a rank: in a process of its own with Pillow, or beside DALI (dali.py).

    python -m throughline.images.decoding     (reading.py starts it, in the workflow's own environment)

The process writes pixels into memory that it shares with the rank (layout.py). Input: a line of JSON, then for each
batch HEADER and the rows. Output: a line with Pillow's version, then for each batch a line that is empty or says what
went wrong. The process ends when its input or its parent process ends.

In training a row shows a random resized crop of its picture (Szegedy et al. 2014): 8 to 100 % of the area, width to
height from 3:4 to 4:3, and mirrored with probability 1/2. The crop depends only on the stream's random words. A
held-out row shows the square in the middle, with 7/8 of the shorter side.
"""

import io
import json
import math
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
from PIL import Image, UnidentifiedImageError

from throughline import files
from throughline.images.layout import HEADER, HELD_OUT, read_index, views
from throughline.processes import die_with_parent
from throughline.randomness import Stream, uniform

OPEN_AT_MOST = 64
"""How many shards stay open."""
FORMATS = ("JPEG", "PNG")
"""The allowed formats, whatever a file's name ends with. (ImageNet has a PNG among its JPEG files.)"""
MOST_PIXELS = 89_478_485
"""Pillow's own limit. We treat a larger picture as a file that was made to fill the memory."""
Image.MAX_IMAGE_PIXELS = None  # `opened` checks the limit, because Pillow would only warn
PLAIN = ("RGB", "L", "CMYK")
"""The modes in which a picture can be resized before it is converted to RGB."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
MIDDLE = 7 / 8

Box = tuple[int, int, int, int]
"""Left, top, width, height in pixels."""


class Damaged(Exception):
    """A picture cannot be used. The message says why."""


def opened(data: bytes, decode: bool = False) -> Image.Image:
    """Open a picture. Only its header is read, unless all of it is to be decoded."""
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
        if picture.width * picture.height > MOST_PIXELS:
            raise Damaged(f"it has {picture.width} x {picture.height} pixels; {MOST_PIXELS:,} is the most")
        if decode:
            picture.load()
    except UnidentifiedImageError:
        raise Damaged(f"it is neither JPEG nor PNG; it begins with {data[:8]!r}" if data else "it is empty") from None
    except Damaged:
        raise
    except Exception as error:  # Pillow's many parsers raise many kinds of exceptions
        raise Damaged(str(error) or type(error).__name__) from None
    return picture


def random_crop(stream: Stream, width: int, height: int) -> tuple[Box, bool]:
    """Draw the next crop of a picture of this size, and whether it is mirrored."""
    numbers = uniform(stream.words(2 * TRIES + 3)).tolist()
    mirrored = numbers[0] < 0.5
    for area, ratio in zip(numbers[3::2], numbers[4::2], strict=True):
        target = width * height * (AREA[0] + area * (AREA[1] - AREA[0]))
        shape = math.exp(math.log(RATIO[0]) + ratio * (math.log(RATIO[1]) - math.log(RATIO[0])))
        wide, high = round(math.sqrt(target * shape)), round(math.sqrt(target / shape))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(numbers[1] * (width - wide + 1)), int(numbers[2] * (height - high + 1))
            return (left, top, wide, high), mirrored
    # No try fitted, so the picture is very long: take as much of its middle as has an allowed shape.
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return ((width - wide) // 2, (height - high) // 2, max(1, wide), max(1, high)), mirrored


def center_crop(width: int, height: int) -> Box:
    """Return the crop of a held-out picture of this size."""
    side = max(1, round(min(width, height) * MIDDLE))
    return (width - side) // 2, (height - side) // 2, side, side


def resized(picture: Image.Image, box: Box, size: int) -> NDArray[Any]:
    """Return the box of a picture, resized to u1[size, size, 3] (bilinear, with antialiasing).

    A JPEG file is decoded at a half, a quarter or an eighth of its size if that still has enough pixels.
    """
    width, height = picture.size
    left, top, wide, high = box
    picture.draft(None, (math.ceil(width * size / wide), math.ceil(height * size / high)))
    across, down = picture.width / width, picture.height / height
    edges = left * across, top * down, (left + wide) * across, (top + high) * down
    inside = edges[0], edges[1], min(edges[2], picture.width), min(edges[3], picture.height)
    if picture.mode not in PLAIN:
        picture = picture.convert("RGB")
    small = picture.resize((size, size), Image.Resampling.BILINEAR, box=inside)
    return np.asarray(small if small.mode == "RGB" else small.convert("RGB"))


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

    def find(self, shard: int, row: int, epoch: int) -> tuple[bytes, Image.Image, Box, bool, int]:
        """Return a picture's file, the picture (only its header is read), the part of it that is shown, whether it is
        mirrored, and its class."""
        stream, places = self.opened(shard)
        offset, size, label_offset, label_size = places[row].tolist()
        label = int(os.pread(stream.fileno(), label_size, label_offset))
        data = os.pread(stream.fileno(), size, offset)
        picture = opened(data)
        if epoch == HELD_OUT:
            box, mirrored = center_crop(*picture.size), False
        else:
            name = Path(self.shards[shard]["file"]).stem
            box, mirrored = random_crop(Stream(self.seed, "crop", name, row, epoch), *picture.size)
        return data, picture, box if self.crops else (0, 0, *picture.size), mirrored, label

    def sample(self, shard: int, row: int, epoch: int) -> tuple[NDArray[Any], int]:
        """Return a picture's pixels and its class."""
        _, picture, box, mirrored, label = self.find(shard, row, epoch)
        array = resized(picture, box, self.image)
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

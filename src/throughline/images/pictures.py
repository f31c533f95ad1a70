"""A picture with Pillow: open it, check it, choose the part that a sample shows, and compute the sample's pixels.

In training the part is a random resized crop (Szegedy et al. 2014): 8 to 100 % of the picture's area, width to height
from 3:4 to 4:3, and mirrored with probability 1/2. It depends only on the stream's random words. For a held-out picture
it is the square in the middle, with 7/8 of the shorter side.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from throughline.randomness import Stream, uniform

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

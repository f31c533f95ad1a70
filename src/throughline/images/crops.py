"""Which part of a picture a sample shows, and its pixels. What is drawn follows from the words alone.

In training: a random resized crop (Szegedy et al. 2014), 8 to 100 % of the picture's area in the shape 3:4 to 4:3,
mirrored every other time. For held-out pictures: the square in the middle, 7/8 of the shorter side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from throughline.randomness import Stream, uniform

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
MIDDLE = 7 / 8
PLAIN = ("RGB", "L", "CMYK")
"""Modes in which a picture may be resized before it becomes RGB."""

Box = tuple[int, int, int, int]
"""Left, top, width, height in pixels."""


def drawn(stream: Stream, width: int, height: int) -> tuple[Box, bool]:
    """The next crop of a picture of this size, and whether it is mirrored."""
    numbers = uniform(stream.words(2 * TRIES + 3)).tolist()
    mirrored = numbers[0] < 0.5
    for area, ratio in zip(numbers[3::2], numbers[4::2], strict=True):
        target = width * height * (AREA[0] + area * (AREA[1] - AREA[0]))
        shape = math.exp(math.log(RATIO[0]) + ratio * (math.log(RATIO[1]) - math.log(RATIO[0])))
        wide, high = round(math.sqrt(target * shape)), round(math.sqrt(target / shape))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(numbers[1] * (width - wide + 1)), int(numbers[2] * (height - high + 1))
            return (left, top, wide, high), mirrored
    # A very long picture: as much of its middle as has an allowed shape.
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return ((width - wide) // 2, (height - high) // 2, max(1, wide), max(1, high)), mirrored


def middle(width: int, height: int) -> Box:
    side = max(1, round(min(width, height) * MIDDLE))
    return (width - side) // 2, (height - side) // 2, side, side


def pixels(picture: Image.Image, box: Box, size: int) -> NDArray[Any]:
    """u1[size, size, 3]: the box of a picture, resized (bilinear, as wide as the reduction).

    A JPEG file is decoded at a half, a quarter or an eighth where that still has a pixel for each that is needed.
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

"""The sample: 256 crops of one photograph from an installed package. Each of the 16 classes is a region of it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache

from PIL import Image

from throughline.datasets.shards import installed_file
from throughline.images.source_pictures import SourcePicture

PACKAGE, PHOTOGRAPH = "matplotlib", "grace_hopper.jpg"
SHA256 = "a8ca6d734765703b09728ab47fe59f473d93ae3967fc24c7c0288c3c7adb7130"
ATTRIBUTION = (
    "crops of a portrait of Grace Hopper, which the package matplotlib carries as grace_hopper.jpg; the file names its "
    "source: commons.wikimedia.org/wiki/File:Grace_Hopper.jpg"
)
SIDE, QUALITY = 256, 90
CELLS = 4
"""The number of classes in each direction, and of a class's crops in each direction."""


def crops() -> Iterator[SourcePicture]:
    """Yield the crops: 4 x 4 classes, each with 4 x 4 crops that begin a few pixels apart."""
    width, height = photograph().size
    steps = CELLS * CELLS - 1
    for row in range(CELLS * CELLS):
        for column in range(CELLS * CELLS):
            left, top = column * (width - SIDE) // steps, row * (height - SIDE) // steps
            name = f"part_{row // CELLS}_{column // CELLS}"
            yield SourcePicture(f"{PHOTOGRAPH} at {left},{top}", name, None, PHOTOGRAPH, (left, top))


def crop(place: tuple[int, int]) -> bytes:
    """Return the JPEG file of the crop whose upper left corner is at `place`."""
    left, top = place
    stream = io.BytesIO()
    photograph().crop((left, top, left + SIDE, top + SIDE)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


@cache
def photograph() -> Image.Image:
    """Return the decoded photograph; UserError if the package does not have it."""
    with Image.open(installed_file("the sample of images", PACKAGE, PHOTOGRAPH, SHA256)) as photograph:
        return photograph.convert("RGB")

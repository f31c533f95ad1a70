"""The sample: 256 crops of one photograph that an installed package carries, in 16 classes by where they lie in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from PIL import Image

from throughline import files
from throughline.files import UserError
from throughline.images.source import Found

PACKAGE, PHOTOGRAPH = "matplotlib", "grace_hopper.jpg"
SHA256 = "a8ca6d734765703b09728ab47fe59f473d93ae3967fc24c7c0288c3c7adb7130"
ATTRIBUTION = (
    "crops of a portrait of Grace Hopper, which the package matplotlib carries as grace_hopper.jpg; the file names its "
    "source: commons.wikimedia.org/wiki/File:Grace_Hopper.jpg"
)
SIDE, QUALITY = 256, 90
CELLS = 4
"""Classes in each direction, and crops of a class in each direction."""


def found() -> Iterator[Found]:
    """The crops: 4 x 4 classes, and in each 4 x 4 crops that lie a few pixels apart."""
    width, height = photograph().size
    steps = CELLS * CELLS - 1
    for row in range(CELLS * CELLS):
        for column in range(CELLS * CELLS):
            left, top = column * (width - SIDE) // steps, row * (height - SIDE) // steps
            name = f"part_{row // CELLS}_{column // CELLS}"
            yield Found(f"{PHOTOGRAPH} at {left},{top}", name, None, PHOTOGRAPH, (left, top))


def crop(place: tuple[int, int]) -> bytes:
    """The JPEG file of the crop that begins there."""
    left, top = place
    stream = io.BytesIO()
    photograph().crop((left, top, left + SIDE, top + SIDE)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


@cache
def photograph() -> Image.Image:
    """The photograph, decoded."""
    try:
        listed = metadata.distribution(PACKAGE).files or []
        path = next(Path(str(file.locate())) for file in listed if file.name == PHOTOGRAPH)
        right = files.sha256(path) == SHA256
    except (metadata.PackageNotFoundError, StopIteration, OSError):
        right = False
    if not right:
        raise UserError(
            "the sample of images is not on this machine",
            why=f"it is cut out of {PHOTOGRAPH} of the package {PACKAGE}, which lacks it, has another one, or is not "
            "installed",
            next_step="install the matplotlib pinned in envs/main.txt",
        )
    with Image.open(path) as photograph:
        return photograph.convert("RGB")

"""One picture: what kind it is, and whether all of it can be decoded. Pillow alone."""

from __future__ import annotations

import io

from PIL import Image, UnidentifiedImageError

FORMATS = ("JPEG", "PNG")
"""What a picture may be, whatever its name ends with: ImageNet has a PNG among its JPEG files."""
MOST_PIXELS = 89_478_485
"""Pillow's own limit: more is taken for a file that is made to fill the memory."""
Image.MAX_IMAGE_PIXELS = None  # `opened` looks at the limit: Pillow's warning would be no error


class Damaged(Exception):
    """A picture that cannot be used, and why."""


def opened(data: bytes) -> Image.Image:
    """The picture, of which only the header is read so far."""
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:  # Pillow raises what its many parsers do
        raise Damaged(_reason(data, error)) from None
    if picture.width * picture.height > MOST_PIXELS:
        raise Damaged(f"it has {picture.width} x {picture.height} pixels; {MOST_PIXELS:,} is the most")
    return picture


def checked(data: bytes) -> Image.Image:
    """The picture, completely decoded once."""
    picture = opened(data)
    try:
        picture.load()
    except Exception as error:
        raise Damaged(_reason(data, error)) from None
    return picture


def _reason(data: bytes, error: Exception) -> str:
    if not data:
        return "it is empty"
    if isinstance(error, UnidentifiedImageError):
        return f"it is neither JPEG nor PNG; it begins with {data[:8]!r}"
    return str(error) or type(error).__name__

"""Open one picture with Pillow, and check its format and that all of it can be decoded."""

from __future__ import annotations

import io

from PIL import Image, UnidentifiedImageError

FORMATS = ("JPEG", "PNG")
"""The allowed formats, whatever a file's name ends with. (ImageNet has a PNG among its JPEG files.)"""
MOST_PIXELS = 89_478_485
"""Pillow's own limit. We treat a larger picture as a file that was made to fill the memory."""
Image.MAX_IMAGE_PIXELS = None  # `opened` checks the limit, because Pillow would only warn


class Damaged(Exception):
    """A picture cannot be used. The message says why."""


def opened(data: bytes) -> Image.Image:
    """Open a picture without decoding it: only its header is read."""
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:  # Pillow's many parsers raise many kinds of exceptions
        raise Damaged(_reason(data, error)) from None
    if picture.width * picture.height > MOST_PIXELS:
        raise Damaged(f"it has {picture.width} x {picture.height} pixels; {MOST_PIXELS:,} is the most")
    return picture


def checked(data: bytes) -> Image.Image:
    """Open a picture and decode all of it."""
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

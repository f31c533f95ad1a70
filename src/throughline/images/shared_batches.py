"""The memory that a rank shares with the processes that decode its pictures, and what the rank asks them for.

The memory has slots. A slot holds a batch: the pixels u1[size, S, S, 3] of its pictures, then their labels i4[size].
This module runs in a framework's own environment and needs only numpy.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<4q")
"""Precedes the rows of a batch: the slot, the number of rows, the first row's place in the batch, and the step."""
HELD_OUT = -1
"""The epoch of rows of test shards. Nothing random is drawn for them."""


def batch_bytes(size: int, image: int) -> int:
    """Return the size in bytes of a slot for `size` pictures of `image` pixels in height and width."""
    return size * (3 * image**2 + 4)


def views(memory: mmap.mmap, slot: int, size: int, image: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return views of a slot's pixels u1[size, S, S, 3] and labels i4[size]."""
    begin, pixels = slot * batch_bytes(size, image), size * 3 * image**2
    flat = np.frombuffer(memory, np.uint8)[begin : begin + pixels + 4 * size]
    return flat[:pixels].reshape(size, image, image, 3), flat[pixels:].view(np.int32)

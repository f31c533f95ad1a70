"""The layout of a shard's index, and of the memory that a rank shares with the processes that decode its pictures.

This module runs in a framework's own environment and needs only numpy.

The index says where each picture and its class lie in the tar file. Its format is that of DALI's `wds2idx`: a line with
`v1.2` and the number of samples, then a line for each sample: `jpg <offset> <size> <name> cls <offset> <size> <name>`.

The shared memory has slots. A slot holds a batch: the pixels u1[size, S, S, 3] of its pictures, then their labels
i4[size].
"""

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = "v1.2"
HEADER = struct.Struct("<4q")
"""Precedes the rows of a batch: the slot, the number of rows, the first row's place in the batch, and the step."""
HELD_OUT = -1
"""The epoch of rows of test shards. Nothing random is drawn for them."""


def index_text(samples: Sequence[tuple[str, int, int, int, int]]) -> str:
    """Return the text of an index. Each sample is its key, then offset and size of its picture and of its class."""
    lines = [f"jpg {at} {size} {key}.jpg cls {cls} {cls_size} {key}.cls" for key, at, size, cls, cls_size in samples]
    return "\n".join([f"{VERSION} {len(samples)}", *lines]) + "\n"


def read_index(path: Path) -> NDArray[Any]:
    """Return i8[rows, 4]: offset and size of each picture and of its class. ValueError if it is no index."""
    first, *lines = path.read_text(encoding="ascii").splitlines()
    if first != f"{VERSION} {len(lines)}":
        raise ValueError(f"{path.name} begins with {first[:40]!r} and has {len(lines)} samples")
    samples = [line.split(" ") for line in lines]
    return np.array([(sample[1], sample[2], sample[5], sample[6]) for sample in samples], np.int64).reshape(-1, 4)


def batch_bytes(size: int, image: int) -> int:
    """Return the size in bytes of a slot for `size` pictures of `image` pixels in height and width."""
    return size * (3 * image**2 + 4)


def views(memory: mmap.mmap, slot: int, size: int, image: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return views of a slot's pixels u1[size, S, S, 3] and labels i4[size]."""
    begin, pixels = slot * batch_bytes(size, image), size * 3 * image**2
    flat = np.frombuffer(memory, np.uint8)[begin : begin + pixels + 4 * size]
    return flat[:pixels].reshape(size, image, image, 3), flat[pixels:].view(np.int32)

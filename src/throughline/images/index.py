"""The index of a shard: where in the tar file each picture and its class lie. Standard library and numpy only.

The format is that of DALI's `wds2idx`: `v1.2` and the number of samples, then for each a line
`jpg <offset> <size> <name> cls <offset> <size> <name>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = "v1.2"
Place = tuple[int, int]
"""From which byte of the tar file on, and how many."""


def text(samples: Sequence[tuple[str, Place, Place]]) -> str:
    """The index of samples: the key, the place of the picture, that of its class."""
    lines = [f"jpg {a[0]} {a[1]} {key}.jpg cls {b[0]} {b[1]} {key}.cls" for key, a, b in samples]
    return "\n".join([f"{VERSION} {len(samples)}", *lines]) + "\n"


def read(path: Path) -> NDArray[Any]:
    """i8[rows, 4]: offset and size of each picture, offset and size of its class. ValueError where it is no index."""
    first, *lines = path.read_text(encoding="ascii").splitlines()
    if first != f"{VERSION} {len(lines)}":
        raise ValueError(f"{path.name} begins with {first[:40]!r} and has {len(lines)} samples")
    words = [line.split(" ") for line in lines]
    return np.array([(one[1], one[2], one[5], one[6]) for one in words], np.int64).reshape(-1, 4)

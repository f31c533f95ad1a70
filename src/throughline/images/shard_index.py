"""The index of a shard: the place of each picture and its class in the tar file. This module needs only numpy.

The format is that of DALI's `wds2idx`: a line with `v1.2` and the number of samples, then a line for each sample:
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
"""The first byte in the tar file, and the number of bytes."""


def text(samples: Sequence[tuple[str, Place, Place]]) -> str:
    """Return the text of an index. Each sample is its key, the place of its picture and the place of its class."""
    lines = [f"jpg {a[0]} {a[1]} {key}.jpg cls {b[0]} {b[1]} {key}.cls" for key, a, b in samples]
    return "\n".join([f"{VERSION} {len(samples)}", *lines]) + "\n"


def read(path: Path) -> NDArray[Any]:
    """Return i8[rows, 4]: offset and size of each picture and of its class. ValueError if it is no index."""
    first, *lines = path.read_text(encoding="ascii").splitlines()
    if first != f"{VERSION} {len(lines)}":
        raise ValueError(f"{path.name} begins with {first[:40]!r} and has {len(lines)} samples")
    samples = [line.split(" ") for line in lines]
    return np.array([(sample[1], sample[2], sample[5], sample[6]) for sample in samples], np.int64).reshape(-1, 4)

"""Verify a shard: read the whole file and compare it with the parts from which it was made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from throughline.clicks import log_lines, making
from throughline.clicks.reading import opened
from throughline.datasets import manifest
from throughline.datasets.hdf5 import mapped
from throughline.datasets.shards import CHANGED, fault


def verify(path: Path, parts: Sequence[Path], shard: int) -> dict[str, Any]:
    """Verify a shard and return its entry for the manifest; UserError names the first fault.

    Every row must be the same as in its part, and have a label of 0 or 1 and finite numbers.
    """
    content = hashlib.sha256()
    with opened(path) as stream:
        arrays = {name: mapped(stream[name]) for name in log_lines.TYPES}
        for name, (kind, shape) in log_lines.TYPES.items():
            if arrays[name].dtype != kind or arrays[name].shape[1:] != shape:
                raise fault(path, f"has {name} of another type or shape", CHANGED)
        rows = 0
        for part, block, to in making.blocks(parts, shard):
            for name, array in arrays.items():
                if not np.array_equal(array[to], part[name][block]):
                    where = f"somewhere in rows {to.start} to {to.stop - 1}"
                    raise fault(path, f"has other {name} than {Path(part.filename).name}, {where}", CHANGED)
            rows = to.stop
        if {rows} != {len(array) for array in arrays.values()}:
            raise fault(path, f"has {len(arrays['labels'])} rows, and its parts have {rows}", CHANGED)
        if rows and (arrays["labels"].max() > 1 or not np.isfinite(arrays["numbers"]).all()):
            raise fault(path, "has a label that is not 0 or 1, or a number that is not finite", CHANGED)
        for name in sorted(arrays):
            content.update(np.ascontiguousarray(arrays[name]).data)
        clicks = int(arrays["labels"].sum(dtype=np.int64))
    return manifest.verified(path, {"rows": rows, "clicks": clicks}, content.hexdigest())

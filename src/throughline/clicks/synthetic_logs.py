"""Synthetic logs in Criteo's format: values by Zipf's law within each field, and clicks by a rule that can be
learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from throughline import files
from throughline.workloads import wide_deep

AT_ONCE = 1 << 14
MISSING = 0.05
"""The share of numbers that are missing. The rule counts a missing number as 0."""


def write(path: Path, part: int, rows: int, values: int) -> None:
    """Write one file of `rows` rows. `values`: the number of different categories in all fields together."""
    draw = np.random.Generator(np.random.Philox(key=part))
    sizes = wide_deep.cardinalities(values)
    with files.atomic(path) as partial, partial.open("wb") as stream:
        for first in range(0, rows, AT_ONCE):
            count = min(AT_ONCE, rows - first)
            drawn = wide_deep.drawn(draw, count, sizes)
            numbers = draw.lognormal(size=(count, wide_deep.NUMBERS)).astype(np.int64)
            missing = draw.random(numbers.shape) < MISSING
            labels = wide_deep.clicked(draw, drawn, np.log1p(np.where(missing, 0, numbers)))
            names = (drawn * 2654435761 % 2**32).tolist()
            whole = np.where(missing, "", numbers.astype("U11")).tolist()
            for label, some, categories in zip(labels.astype(int).tolist(), whole, names, strict=True):
                cells = [str(label), *some, *(f"{category:08x}" for category in categories)]
                stream.write("\t".join(cells).encode() + b"\n")

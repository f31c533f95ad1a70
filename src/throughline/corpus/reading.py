"""The half of this room that training reads with: a shard's arrays, whole, for an epoch.

It runs in a framework's own environment, on numpy and h5py alone; the isal package makes it faster where it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py

from throughline.corpus import unpacking
from throughline.corpus.shards import layout

if TYPE_CHECKING:
    import numpy as np

    Rows = dict[str, np.ndarray]

ARRAYS = tuple(layout.TYPES)
UNMASKED = tuple(layout.UNMASKED)
"""What a shard holds whose masks are drawn while it is read."""


class Reader:
    """Reads what a manifest (`content`) lists beside it, in `folder`."""

    def __init__(self, content: Mapping[str, Any], folder: Path) -> None:
        self.folder, self.masking = folder, None
        if content.get("parameters", {}).get("dynamic"):
            from throughline.corpus.shards.masks import Masking

            self.masking = Masking.of_manifest(content)
        self.how = "masks drawn anew each epoch" if self.masking else None
        """What reading adds to the data, in words; None where they are read as they are."""

    def read(self, file: str, epoch: int) -> Rows:
        """The six arrays of a shard; where masks are drawn while reading, with those of the epoch."""
        path = self.folder / file
        if self.masking is None:
            return read_shard(path)
        return self.masking.masked(read_shard(path, UNMASKED), self.masking.stream(path.stem, epoch))


def read_shard(path: Path, names: tuple[str, ...] = ARRAYS) -> Rows:
    """The arrays of a shard, whole; ValueError where one is missing or their lengths differ."""
    with h5py.File(path, "r") as file:
        missing = [name for name in names if name not in file]
        if missing:
            raise ValueError(f"{path.name} has no array {', '.join(missing)}")
        rows = {name: unpacking.rows(file[name]) for name in names}
    if len({len(array) for array in rows.values()}) != 1:
        raise ValueError(f"the arrays of {path.name} differ in length")
    return rows

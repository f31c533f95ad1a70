"""Read clicks of a shard for training: memory-mapped, with their hashes mapped to ids of the run's vocabulary.

This module runs in a framework's own environment and needs only numpy and h5py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from throughline.datasets import hdf5

SCHEMA = 1
"""The schema of parts and shards."""
NUMBERS, FIELDS = 13, 26
TYPES = {"labels": ("u1", ()), "numbers": ("<f4", (NUMBERS,)), "ids": ("<u4", (FIELDS,))}
"""The arrays of parts and shards: type, and shape of a row. `ids` are hashes, which a run maps to its vocabulary."""

Rows = dict[str, NDArray[Any]]


def reader(content: Mapping[str, Any], folder: Path, parameters: Any, seed: int) -> ClickReader:
    """Return a reader (`rank.data.Reader`) for the shards in `folder` that a manifest (`content`) lists.

    `parameters` are those of the run.
    """
    return ClickReader(folder, parameters.vocabulary if parameters else 1 << 31, content["source"])


class ClickReader:
    """Reads rows as they are stored. One manifest serves every size of vocabulary.

    A shard holds hashes of 32 bits. An id is the upper part of the product of hash and vocabulary size.
    """

    def __init__(self, folder: Path, vocabulary: int, source: str) -> None:
        self.folder, self.vocabulary = folder, vocabulary
        self.how = "synthetic clicks" if source == "synthetic" else None

    def rows(self, shard: Mapping[str, Any]) -> int:
        return int(shard["rows"])

    def read(self, shard: Mapping[str, Any], epoch: int) -> Rows:
        """Return `ids` i4[N, 26] in the vocabulary, `numbers` f4[N, 13] and `labels` u1[N]."""
        with opened(self.folder / shard["file"]) as stream:
            ids, numbers, labels = (hdf5.mapped(stream[name]) for name in ("ids", "numbers", "labels"))
        return {"ids": in_vocabulary(ids, self.vocabulary), "numbers": numbers, "labels": labels}


def in_vocabulary(hashes: Any, vocabulary: int) -> Any:
    """Map hashes of 32 bits to ids i4 below `vocabulary`."""
    return (hashes.astype(np.uint64) * np.uint64(vocabulary) >> np.uint64(32)).astype(np.int32)


def opened(path: Path) -> AbstractContextManager[h5py.File]:
    """Open a part or shard; UserError if it is not whole, or if a read inside the `with` block fails."""
    return hdf5.opened(path, partial(hdf5.defect, schema=SCHEMA, arrays=tuple(TYPES)), "file of clicks")

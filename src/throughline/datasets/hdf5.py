"""HDF5 files that are whole or absent: write a new one, open a finished one, map its arrays into memory.

This module runs in a framework's own environment too and needs only numpy and h5py.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from throughline import files
from throughline.datasets.shards import fault, remove_leftovers

INTERRUPTED = "its writing was interrupted"


@contextmanager
def new_file(path: str | os.PathLike[str], attributes: Mapping[str, Any]) -> Iterator[h5py.File]:
    """Open a new HDF5 file that gets its name when it is whole. The attribute `complete` is written last."""
    remove_leftovers(path)
    try:
        with files.atomic(path) as temporary, h5py.File(temporary, "w", locking=False) as stream:
            yield stream
            stream.attrs.update(attributes)
            stream.flush()
            stream.attrs["complete"] = True
    except RuntimeError as error:  # HDF5 raises this for a full disk that it notices while closing
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from None


@contextmanager
def opened(
    path: str | os.PathLike[str], defect: Callable[[h5py.File], str | None], what: str = "shard"
) -> Iterator[h5py.File]:
    """Open a finished file for reading; UserError if `defect` says what makes it no whole file of its kind.

    A failed read inside the `with` block is a UserError too, because damaged data only show there. `what` names the
    kind of file in the errors.
    """
    if not os.path.exists(path):
        raise fault(path, "does not exist")
    try:
        # without a lock: a finished file never changes, and network file systems may have no locks
        with h5py.File(path, "r", locking=False) as stream:
            if reason := defect(stream):
                raise fault(path, f"is no whole {what}", reason)
            yield stream
    except OSError as error:
        raise fault(path, f"is no whole {what}", str(error)) from None


def defect(stream: h5py.File, schema: int, arrays: Collection[str] = ()) -> str | None:
    """Return why an open file of our own is not whole, or of another schema; None if it is fine.

    It must have these arrays.
    """
    if not stream.attrs.get("complete"):
        return INTERRUPTED
    if stream.attrs.get("schema") != schema:
        return "another version of Throughline wrote it"
    missing = [name for name in arrays if name not in stream]
    return f"it lacks {', '.join(missing)}" if missing else None


def mapped(dataset: h5py.Dataset) -> Any:
    """Map a dataset that is not compressed into memory."""
    offset = dataset.id.get_offset()
    if offset is None:  # it has no rows
        return dataset[...]
    return np.memmap(dataset.file.filename, dataset.dtype, "r", offset, dataset.shape)

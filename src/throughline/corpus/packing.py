"""HDF5 files as we write them: whole or absent, packed by igzip, which may pack equal content in two ways."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from throughline import files
from throughline.corpus import kernel, leftovers


@contextmanager
def new_file(path: str | os.PathLike[str], attributes: Mapping[str, Any]) -> Iterator[h5py.File]:
    """An empty HDF5 file that gets its name when it is whole, and last of all the attribute `complete`."""
    leftovers.remove(path)
    try:
        with files.atomic(path) as temporary, h5py.File(temporary, "w", locking=False) as stream:
            yield stream
            stream.attrs.update(attributes)
            stream.flush()
            stream.attrs["complete"] = True
    except RuntimeError as error:  # so HDF5 hides that the disk is full, when it notices while closing
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from None


def packed(data: np.ndarray) -> bytes:
    """A chunk by HDF5's shuffle and gzip, little-endian."""
    from isal import isal_zlib

    return bytes(isal_zlib.compress(_planes(data), 1))


def _planes(data: np.ndarray) -> np.ndarray:
    """HDF5's shuffle: the first bytes of all elements, then the second ones ...; u1[bytes]."""
    flat = data.reshape(-1)
    compiled = kernel.load()
    if data.itemsize == 1:
        return flat.view(np.uint8)
    if compiled is None:
        return np.ascontiguousarray(flat.reshape(-1, 1).view(np.uint8).T).reshape(-1)
    out = np.empty(data.nbytes, np.uint8)
    compiled.planes(data.ctypes.data, data.size, data.itemsize, out)
    return out

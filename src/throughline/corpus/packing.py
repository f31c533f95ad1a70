"""Write HDF5 files that are whole or absent.

We compress with igzip. Two files with equal content may differ in their compressed bytes.
"""

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
    """Open a new HDF5 file that gets its name when it is whole. The attribute `complete` is written last."""
    leftovers.remove(path)
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


def packed(data: np.ndarray) -> bytes:
    """Return a chunk compressed with HDF5's shuffle and gzip, little-endian."""
    from isal import isal_zlib

    return bytes(isal_zlib.compress(_planes(data), 1))


def _planes(data: np.ndarray) -> np.ndarray:
    """Apply HDF5's shuffle: return the first bytes of all elements, then the second bytes, and so on; u1[bytes]."""
    flat = data.reshape(-1)
    compiled = kernel.load()
    if data.itemsize == 1:
        return flat.view(np.uint8)
    if compiled is None:
        return np.ascontiguousarray(flat.reshape(-1, 1).view(np.uint8).T).reshape(-1)
    out = np.empty(data.nbytes, np.uint8)
    compiled.planes(data.ctypes.data, data.size, data.itemsize, out)
    return out

"""Compress the chunks of an HDF5 file.

We compress with igzip. Two files with equal content may differ in their compressed bytes.
"""

import numpy as np

from throughline.corpus import kernel


def packed(data: np.ndarray) -> bytes:
    """Return a chunk compressed with HDF5's shuffle and gzip, little-endian."""
    from isal import isal_zlib

    return bytes(isal_zlib.compress(_planes(data), 1))


def _planes(data: np.ndarray) -> np.ndarray:
    """Apply HDF5's shuffle: return the first bytes of all elements, then the second bytes, and so on; u1[bytes]."""
    flat = data.reshape(-1)
    if data.itemsize == 1:
        return flat.view(np.uint8)
    out = np.empty(data.nbytes, np.uint8)
    kernel.load().planes(data.ctypes.data, data.size, data.itemsize, out)
    return out

"""Files in the system's page cache: drop them, and tell whether they are gone.

A file that was just written is read from memory, which says nothing about the disk. Standard library only.
"""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

COLD = 0.05
"""Files count as cold if at most this share of their pages is in the page cache."""
EVEN = bytes(range(0, 256, 2))


def drop(paths: Iterable[Path]) -> bool:
    """Drop files from the page cache of this machine. False if more of them stayed there than COLD says.

    A page that waits to be written cannot be dropped, so the caller has synced the files. A network file system may
    keep them in the memory of its servers.
    """
    here = pages = 0
    for path in paths:
        with path.open("rb") as file:
            with contextlib.suppress(OSError):  # a file system without it
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            marks = _pages(file.fileno())
        if marks is None:
            return False
        here, pages = here + len(marks.translate(None, EVEN)), pages + len(marks)
    return here <= COLD * pages


def _pages(descriptor: int) -> bytes | None:
    """Return a byte for each page of a file, odd if the page is in the page cache; None if the system does not say."""
    size = os.fstat(descriptor).st_size
    if not size:
        return b""
    library = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) as view:  # private: a write would not reach the file
        start = ctypes.c_char.from_buffer(view)
        marks = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        failed = library.mincore(ctypes.byref(start), ctypes.c_size_t(size), marks)
        del start  # the view cannot be closed while somebody holds its memory
    return None if failed else bytes(marks)

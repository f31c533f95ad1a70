"""How fast a disk writes and reads a file, and how files leave the system's page cache. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

COLD = 0.05
"""Files count as cold if at most this share of their pages is in the page cache."""
EVEN = bytes(range(0, 256, 2))
LEAST, MOST = 1 << 20, 1 << 24
"""Bytes that are written and synced, or read, at a time: as many as all before, within these bounds."""
LONG_S = 1.0
"""After so many seconds nothing more is written, or read, so both last at most twice as long."""
IN_MEMORY = ("tmpfs", "ramfs")
"""File systems without a disk."""


def rates(folder: Path, size: int, min_seconds: float) -> tuple[float | None, float | None]:
    """Return the median GB/s of writing and of reading a file of `size` bytes, again and again for `min_seconds`.

    Writing is None in a file system without a disk. Reading is None if the file stays in the page cache.
    """
    if file_system(folder) in IN_MEMORY:
        return None, None
    end, both = time.monotonic() + min_seconds, [write_and_read(folder, size)]
    while time.monotonic() < end:
        both.append(write_and_read(folder, size))
    written, read = ([rate for rate in rates if rate] for rates in zip(*both, strict=True))
    return statistics.median(written), statistics.median(read) if len(read) == len(both) else None


def write_and_read(folder: Path, size: int) -> tuple[float, float | None]:
    """Write a file, sync it, drop it from the page cache and read it. Return the GB/s of both; None for reading if the
    file stayed there.

    The file has no name, so it goes away however this process ends. It is synced piece by piece, because a single sync
    of a slow disk may last for minutes.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        piece = memoryview(bytearray(os.urandom(min(size, MOST))))  # a file system may compress what is no noise
        written, start, seconds = 0, time.monotonic(), 0.0
        while written < size and seconds < LONG_S:
            written += file.write(piece[: min(size - written, max(written, LEAST))])
            os.fdatasync(file.fileno())
            seconds = time.monotonic() - start
        write = written / 1e9 / seconds
        if not drop([Path(f"/proc/self/fd/{file.fileno()}")]):
            return write, None
        file.seek(0)
        read, start, seconds = 0, time.monotonic(), 0.0
        while read < written and seconds < LONG_S:
            read += file.readinto(piece[: max(read, LEAST)])
            seconds = time.monotonic() - start
        return write, read / 1e9 / seconds


def file_system(folder: Path) -> str | None:
    """Return the type of the file system that holds a folder, such as ext4, nfs4, lustre or tmpfs; None if unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    there = folder.resolve()
    kinds = {mount[1]: mount[2] for mount in mounts if there.is_relative_to(mount[1].replace("\\040", " "))}
    return kinds[max(kinds, key=len)] if kinds else None


def drop(paths: Iterable[Path]) -> bool:
    """Drop synced files from the page cache of this machine. False if more of them stayed there than COLD says."""
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

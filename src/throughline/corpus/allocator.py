"""Large arrays within a memory limit: arrays that do not fit lie in nameless, memory-mapped temporary files."""

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Allocator:
    """Gives out arrays: `memory_bytes` in memory, the rest in files in `folder`, which vanish with the process."""

    def __init__(self, folder: Path = Path(), memory_bytes: int = sys.maxsize) -> None:
        self._folder, self._left = folder, memory_bytes
        self._mapped: list[mmap.mmap] = []

    def empty(self, size: int, kind: DTypeLike) -> NDArray[Any]:
        """Return an uninitialized array of one dimension."""
        bytes_needed = size * np.dtype(kind).itemsize
        if bytes_needed <= self._left or not bytes_needed:
            self._left -= bytes_needed
            return np.empty(size, kind)
        import tempfile

        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.truncate(bytes_needed)
            self._mapped.append(mmap.mmap(file.fileno(), bytes_needed))
        return np.frombuffer(self._mapped[-1], kind)

    def release(self) -> None:
        """Release the memory pages of the files that this process has touched."""
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)

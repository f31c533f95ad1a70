"""Large arrays within a limit of memory: what does not fit lies in nameless temporary files that are mapped."""

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Allocator:
    """Gives arrays `memory_bytes` of memory, then files in `folder`, which go with the process."""

    def __init__(self, folder: Path = Path(), memory_bytes: int = sys.maxsize) -> None:
        self._folder, self._left = folder, memory_bytes
        self._mapped: list[mmap.mmap] = []

    def empty(self, size: int, kind: DTypeLike) -> NDArray[Any]:
        """An array of one dimension, whose values are whatever they are."""
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
        """Let go of the pages of the files that this process has touched."""
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)

"""Large arrays within a limit of memory: what does not fit lies in nameless temporary files that are mapped.

The system reads such an array when it is looked at, and writes it out when memory is short. The values are the same.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Rooms:
    """Room for arrays: `memory_bytes` of memory, then files in `folder`, which go with the process."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder, self._left = folder, memory_bytes
        self._mapped: list[mmap.mmap] = []

    def empty(self, size: int, kind: DTypeLike) -> NDArray[Any]:
        """An array of one dimension, whose values are whatever they are."""
        room = size * np.dtype(kind).itemsize
        if room <= self._left or not room:
            self._left -= room
            return np.empty(size, kind)
        import tempfile

        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.truncate(room)
            self._mapped.append(mmap.mmap(file.fileno(), room))
        return np.frombuffer(self._mapped[-1], kind)

    def leave(self) -> None:
        """Let go of what this process has looked at in the files."""
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)

"""Read windows of a shard of tokens for training. The file is memory-mapped; seed, epoch and shard decide the windows.

This module runs in a framework's own environment and needs only numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.randomness import Stream


class WindowReader:
    """Reads windows of `sequence_length` + 1 tokens. The model predicts every token of a window but the first.

    In each epoch, the first window begins at a random place below `sequence_length`. Each other window begins at the
    last token of the one before it. So every token is read about once per epoch, with another context in each epoch.
    """

    how = "windows at places drawn anew each epoch"

    def __init__(self, folder: Path, sequence_length: int, seed: int, end: int | None = None) -> None:
        """end: the id that ends a document, if every row shall state it; otherwise None."""
        self.folder, self.sequence_length, self.seed, self.end = folder, sequence_length, seed, end

    def rows(self, shard: Mapping[str, Any]) -> int:
        """Return how many windows fit wherever the first one begins; 1 if the file is too short for a second window."""
        tokens = int(shard["tokens"])
        return max(tokens // self.sequence_length - 1, int(tokens > self.sequence_length))

    def read(self, shard: Mapping[str, Any], epoch: int) -> dict[str, NDArray[Any]]:
        """Return `tokens` [rows, sequence_length + 1], a view of the file. (Neighbouring rows share a token.)

        With `end`, also `end_of_text` [rows], this id.
        """
        count, step = self.rows(shard), self.sequence_length
        windows = np.zeros((0, step + 1), shard["type"])
        if count:
            tokens = np.asarray(mapped(self.folder / shard["file"], shard))
            drawn = Stream(self.seed, "windows", Path(shard["file"]).stem, step, epoch).words(1)
            first = int(drawn[0]) % min(step, len(tokens) - count * step)
            windows = np.lib.stride_tricks.sliding_window_view(tokens[first:], step + 1)[::step][:count]
        ends = {} if self.end is None else {"end_of_text": np.full(count, self.end, windows.dtype)}
        return {"tokens": windows, **ends}


def mapped(path: Path, shard: Mapping[str, Any]) -> NDArray[Any]:
    """Map the tokens of a file into memory: as many as `tokens` says, of type `type`, from byte `offset` on."""
    return np.memmap(path, shard["type"], "r", shard["offset"], (shard["tokens"],))

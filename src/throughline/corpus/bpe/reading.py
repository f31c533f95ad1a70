"""Windows of a shard of tokens, as training reads them: mapped into memory, cut where seed, epoch and shard say.

It runs in a framework's own environment, on numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.randomness import Stream

KIND = "tokens"
"""What a manifest of such shards has under `kind`."""


class Windows:
    """Reads windows of `sequence` + 1 tokens, so that every token but the first of each window is predicted.

    An epoch's first window begins at a place drawn below `sequence`, and each of the others at the last token of the
    one before it. So every token is read about once an epoch, and in other company in each.
    """

    how = "windows at places drawn anew each epoch"

    def __init__(self, folder: Path, sequence: int, seed: int) -> None:
        self.folder, self.sequence, self.seed = folder, sequence, seed

    def rows(self, shard: Mapping[str, Any]) -> int:
        """As many as fit behind any of the places where the first may begin; one where no second one fits."""
        tokens = int(shard["tokens"])
        return max(tokens // self.sequence - 1, int(tokens > self.sequence))

    def read(self, shard: Mapping[str, Any], epoch: int) -> dict[str, NDArray[Any]]:
        """`tokens` [rows, sequence + 1]: a view of the file, which overlaps itself."""
        count, step = self.rows(shard), self.sequence
        if count == 0:
            return {"tokens": np.zeros((0, step + 1), shard["type"])}
        tokens = np.asarray(mapped(self.folder / shard["file"], shard))
        drawn = Stream(self.seed, "windows", Path(shard["file"]).stem, step, epoch).words(1)
        first = int(drawn[0]) % min(step, len(tokens) - count * step)
        windows = np.lib.stride_tricks.sliding_window_view(tokens[first:], step + 1)
        return {"tokens": windows[::step][:count]}


def mapped(path: Path, shard: Mapping[str, Any]) -> NDArray[Any]:
    """The tokens of a file, mapped: `tokens` of `type`, from the byte `offset` on."""
    return np.memmap(path, shard["type"], "r", shard["offset"], (shard["tokens"],))

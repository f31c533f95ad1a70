"""The two splits of all data, training and test, and the names of their shards."""

from __future__ import annotations

from collections.abc import Mapping

from throughline.files import UserError

SPLITS = ("training", "test")
WORDS = {"train": "training", "training": "training", "val": "test", "validation": "test", "test": "test"}
"""Map the words in names of other people's files and folders to the split."""


def shard_name(split: str, number: int) -> str:
    """Return the name of a shard, without its ending. `number`: counted from 0 within its split."""
    return f"{split}_{number:04d}"


def shard_names(counts: Mapping[str, int]) -> list[str]:
    """Return the names of all shards, from the number of shards of each split."""
    return [shard_name(split, number) for split, count in counts.items() for number in range(count)]


def split_of(name: str) -> str:
    """Return "training" or "test", whichever word is in the file's name. (In NVIDIA's names it can be anywhere.)"""
    for split in SPLITS:
        if split in name:
            return split
    raise UserError(
        f"the shard {name} belongs to no split",
        why="a shard's name has to hold the word `training` or `test`",
        next_step="rename the file",
    )

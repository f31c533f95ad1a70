"""From logs to shards: each log is parsed once into a part, then each shard is gathered from all parts.

A part (HDF5) holds a log's rows in blocks. Each block is ordered by shard, and `bounds` says where each shard's rows
begin in it. A hash of the numbers of file and row decides the shard of a row, so the shards do not depend on the number
of cores or the order of jobs. A shard (HDF5 without compression, so that training can map it into memory) holds the
arrays of `log_lines.TYPES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline.clicks import log_lines
from throughline.clicks.reading import SCHEMA, opened
from throughline.datasets import hdf5
from throughline.files import UserError
from throughline.randomness import splitmix64

NAMED = 5
"""How many malformed lines are named."""


def parse(source: Path, part: int, shards: int, at_most: float, path: Path) -> tuple[int, int]:
    """Write the part of one log. Return how many lines the log has, and how many of them are malformed.

    UserError if the share of malformed lines is greater than `at_most`.
    """
    begin, count, done = 0, 0, 0
    bounds: list[Any] = []
    malformed: list[int] = []
    with hdf5.new_file(path, {"schema": SCHEMA}) as stream:
        for name, (kind, shape) in log_lines.TYPES.items():
            chunk = (4096, *shape)
            stream.create_dataset(name, (0, *shape), kind, maxshape=(None, *shape), chunks=chunk, track_times=False)
        for rows, bad in log_lines.blocks(source):
            number = np.arange(begin, begin + len(rows["labels"]), dtype=np.uint64) + np.uint64(part << 40)
            owners = (splitmix64(number) % np.uint64(shards)).astype(np.int64)
            order = np.argsort(owners, kind="stable")
            bounds.append(begin + np.concatenate([[0], np.bincount(owners, minlength=shards).cumsum()]))
            for name, array in rows.items():
                stream[name].resize(begin + len(array), 0)
                stream[name][begin:] = array[order]
            begin, count = begin + len(order), count + len(order) + len(bad)
            done, malformed = done + len(bad), malformed + bad[: NAMED - len(malformed)]
        if done > at_most * count:
            raise UserError(
                f"{source} has {done:,} malformed lines among {count:,}, the first is line {malformed[0]}",
                why="a line has a label 0 or 1, 13 whole numbers and 26 categories of 8 hex digits (0-9, a-f), "
                f"between tabs; clicks.malformed_at_most allows a share of {at_most:g}",
                next_step="correct the file or clicks.source, or allow more in config.yaml",
            )
        stream.create_dataset("bounds", data=np.array(bounds, np.int64).reshape(-1, shards + 1), track_times=False)
        stream.attrs.update(source=source.name, lines=count, malformed=done, first_malformed=malformed)
    return count, done


def gather(parts: Sequence[Path], shard: int, path: Path) -> int:
    """Write a shard from all parts and return how many rows it has."""
    rows: int = sum(to.stop - to.start for _, _, to in blocks(parts, shard))
    with hdf5.new_file(path, {"schema": SCHEMA}) as out:
        for name, (kind, shape) in log_lines.TYPES.items():
            out.create_dataset(name, (rows, *shape), kind, track_times=False)
        for part, block, to in blocks(parts, shard):
            for name in log_lines.TYPES:
                out[name][to] = part[name][block]
    return rows


def blocks(parts: Sequence[Path], shard: int) -> Iterator[tuple[h5py.File, slice, slice]]:
    """Yield the blocks of a shard's rows: the part, which is open, their place in it, and their place in the shard."""
    begin = 0
    for path in parts:
        with opened(path) as part:
            for first, last in part["bounds"][:, shard : shard + 2].tolist():
                end = begin + last - first
                if last > first:
                    yield part, slice(first, last), slice(begin, end)
                begin = end

"""From logs to verified shards: parts, shards, verification, and the manifest.

A part (HDF5) holds a log's rows in blocks. Each block is ordered by shard, and `bounds` says where each shard's rows
begin in it. A hash of the numbers of file and row decides the shard of a row, so the shards do not depend on the number
of cores or the order of jobs. A shard (HDF5 without compression, so that training can map it into memory) holds the
arrays of `reading.TYPES`, with the rows of its blocks from all parts.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline.clicks import logs
from throughline.clicks.reading import SCHEMA, TYPES, opened
from throughline.datasets import hdf5, manifest
from throughline.datasets.shards import CHANGED, fault
from throughline.files import UserError
from throughline.randomness import splitmix64

MALFORMED_AT_MOST = 0.01
"""The largest share of a log's lines that may be malformed."""
NAMED = 5
"""How many malformed lines a manifest names."""


def write_part(log: Path, part: int, shards: int, path: Path) -> tuple[int, int]:
    """Write the part of a log. Return how many lines the log has, and how many of them are malformed.

    UserError if too many are malformed.
    """
    begin, lines, malformed = 0, 0, 0
    bounds: list[Any] = []
    named: list[int] = []
    with hdf5.new_file(path, {"schema": SCHEMA}) as stream:
        for name, (kind, shape) in TYPES.items():
            chunk = (4096, *shape)
            stream.create_dataset(name, (0, *shape), kind, maxshape=(None, *shape), chunks=chunk, track_times=False)
        for rows, bad in logs.blocks(log):
            number = np.arange(begin, begin + len(rows["labels"]), dtype=np.uint64) + np.uint64(part << 40)
            owners = (splitmix64(number) % np.uint64(shards)).astype(np.int64)
            order = np.argsort(owners, kind="stable")
            bounds.append(begin + np.concatenate([[0], np.bincount(owners, minlength=shards).cumsum()]))
            for name, array in rows.items():
                stream[name].resize(begin + len(array), 0)
                stream[name][begin:] = array[order]
            begin, lines = begin + len(order), lines + len(order) + len(bad)
            malformed, named = malformed + len(bad), named + bad[: NAMED - len(named)]
        if malformed > MALFORMED_AT_MOST * lines:
            raise UserError(
                f"{log} has {malformed:,} malformed lines among {lines:,}, the first is line {named[0]}",
                why="a line has a label 0 or 1, 13 whole numbers and 26 categories of 8 hex digits (0-9, a-f), "
                f"between tabs; {MALFORMED_AT_MOST:.0%} may be malformed",
                next_step="correct or leave out these lines, or name another file as clicks.source",
            )
        stream.create_dataset("bounds", data=np.array(bounds, np.int64).reshape(-1, shards + 1), track_times=False)
        stream.attrs.update(source=log.name, lines=lines, malformed=malformed, first_malformed=named)
    return lines, malformed


def write_shard(parts: Sequence[Path], position: int, path: Path) -> int:
    """Write a shard from all parts and return how many rows it has. position: of the shard among all shards."""
    rows: int = sum(to.stop - to.start for _, _, to in _blocks(parts, position))
    with hdf5.new_file(path, {"schema": SCHEMA}) as out:
        for name, (kind, shape) in TYPES.items():
            out.create_dataset(name, (rows, *shape), kind, track_times=False)
        for part, block, to in _blocks(parts, position):
            for name in TYPES:
                out[name][to] = part[name][block]
    return rows


def _blocks(parts: Sequence[Path], position: int) -> Iterator[tuple[h5py.File, slice, slice]]:
    """Yield the blocks of a shard's rows: the part, which is open, their place in it, and their place in the shard."""
    begin = 0
    for path in parts:
        with opened(path) as part:
            for first, last in part["bounds"][:, position : position + 2].tolist():
                end = begin + last - first
                if last > first:
                    yield part, slice(first, last), slice(begin, end)
                begin = end


def verify(path: Path, parts: Sequence[Path], position: int) -> dict[str, Any]:
    """Verify a shard and return its result for the manifest; UserError names the first fault.

    Every row must be the same as in its part, and have a label of 0 or 1 and finite numbers.
    """
    rows, content = 0, hashlib.sha256()
    with opened(path) as stream:
        arrays = {name: hdf5.mapped(stream[name]) for name in TYPES}
        for part, block, to in _blocks(parts, position):
            for name, array in arrays.items():
                if not np.array_equal(array[to], part[name][block]):
                    where = f"somewhere in rows {to.start} to {to.stop - 1}"
                    raise fault(path, f"has other {name} than {Path(part.filename).name}, {where}", CHANGED)
            rows = to.stop
        for name, (kind, shape) in TYPES.items():
            if arrays[name].dtype != kind or arrays[name].shape != (rows, *shape):
                raise fault(path, f"has {name} of another type or shape than its parts", CHANGED)
        if rows and (arrays["labels"].max() > 1 or not np.isfinite(arrays["numbers"]).all()):
            raise fault(path, "has a label that is not 0 or 1, or a number that is not finite", CHANGED)
        for name in sorted(arrays):
            content.update(np.ascontiguousarray(arrays[name]).data)
        clicks = int(arrays["labels"].sum(dtype=np.int64))
    return manifest.verified(path, {"rows": rows, "clicks": clicks}, content.hexdigest())


def write_manifest(
    name: str, source: str, verified: Sequence[Path], parts: Sequence[Path], parameters: dict[str, Any], path: Path
) -> dict[str, Any]:
    """Write the manifest from the results of all shards, and return what it says of the rows.

    It names the malformed lines of each log, and the share of clicks.
    """
    nothing = UserError(f"the clicks {name} have no row to train on", next_step="give logs with more lines")
    results = manifest.read_results(verified, "rows", nothing)
    described = []
    for part in parts:
        with opened(part) as stream:
            attributes = dict(stream.attrs)
        log = {"file": str(attributes["source"]), **{key: int(attributes[key]) for key in ("lines", "malformed")}}
        described.append({**log, "first_malformed": attributes["first_malformed"].tolist()})
    rows = sum(result["rows"] for result in results)
    facts = {
        "rows": rows,
        "malformed": sum(log["malformed"] for log in described),
        "share_of_clicks": sum(result["clicks"] for result in results) / rows,
        "logs": described,
    }
    head, kept = {"kind": "clicks", "clicks": name, "source": source}, ("rows", "clicks", "sha256", "content_digest")
    manifest.write(path, head, parameters, facts, results, kept)
    return facts

"""Shards of pre-training examples: HDF5 files in the layout of NVIDIA's create_pretraining_data.

| dataset | type and shape | |
|---|---|---|
| input_ids | i4[N,S] | token ids, 0 is padding |
| input_mask | i1[N,S] | 1 where a token stands |
| segment_ids | i1[N,S] | 1 for the second segment and its [SEP] |
| masked_lm_positions | i4[N,P] | ascending; 0 ends them |
| masked_lm_ids | i4[N,P] | the tokens that stood there; 0 ends them |
| next_sentence_labels | i1[N] | 1: the second segment comes from another document |

Where masks are drawn while reading (masks.py), the tokens stand as they are in the text, and instead of the four
datasets in the middle there are

| dataset | type and shape | |
|---|---|---|
| a_lengths, b_lengths | i4[N] | tokens of the first and the second segment, which are [CLS] A [SEP] B [SEP] |

input_ids are u2 where the vocabulary allows it.

Data are gzip with shuffle, which any h5py reads; they are written by igzip, chunk by chunk. On demand they are not
compressed, so that a reader can map them into its memory. The file's attributes are
`schema`, `parameters` (JSON) and, written last, `complete`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from throughline.corpus import unpacking
from throughline.files import UserError

SCHEMA = 1
ROWS_PER_CHUNK = 2048
ROWS_READ = 8192
"""Rows in memory at a time, where a shard is not needed whole."""
TYPES = {
    "input_ids": "i4",
    "input_mask": "i1",
    "segment_ids": "i1",
    "masked_lm_positions": "i4",
    "masked_lm_ids": "i4",
    "next_sentence_labels": "i1",
}
UNMASKED = {"input_ids": "i4", "a_lengths": "i4", "b_lengths": "i4", "next_sentence_labels": "i1"}

_KINDS = {**TYPES, **UNMASKED}


def is_unmasked(arrays: Mapping[str, Any]) -> bool:
    """True for a shard, open or read, whose masks are drawn while it is read."""
    return "a_lengths" in arrays


def unmasked_types(vocabulary: int) -> dict[str, str]:
    """The types of UNMASKED in a file, for a vocabulary of so many entries."""
    return {**UNMASKED, "input_ids": "u2" if vocabulary <= 1 << 16 else "i4"}


def types(arrays: Mapping[str, Any]) -> dict[str, str]:
    """The datasets of a shard, open or read, with their types in memory."""
    return UNMASKED if is_unmasked(arrays) else TYPES


def shapes(rows: int, sequence: int, predictions: int, kinds: Iterable[str] = TYPES) -> dict[str, tuple[int, ...]]:
    """The shape of each dataset."""
    every: dict[str, tuple[int, ...]] = {
        "input_ids": (rows, sequence),
        "input_mask": (rows, sequence),
        "segment_ids": (rows, sequence),
        "a_lengths": (rows,),
        "b_lengths": (rows,),
        "masked_lm_positions": (rows, predictions),
        "masked_lm_ids": (rows, predictions),
        "next_sentence_labels": (rows,),
    }
    return {name: every[name] for name in kinds}


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """All arrays of a shard, whole, in the layout's order and types. UserError where it is no whole shard."""
    with open_shard(path) as stream:
        return {name: np.asarray(unpacking.rows(stream[name]), dtype=kind) for name, kind in types(stream).items()}


def read_rows(shard: Mapping[str, Any], first: int, last: int, compiled: Any = None) -> dict[str, Any]:
    """The arrays' rows from `first` to before `last`, of an open shard or of arrays that were read."""
    kinds = types(shard).items()
    return {name: np.asarray(_rows(shard[name], first, last, compiled), dtype=kind) for name, kind in kinds}


def _rows(array: Any, first: int, last: int, compiled: Any = None) -> np.ndarray:
    if isinstance(array, h5py.Dataset):
        return unpacking.rows(array, first, last, compiled)
    return np.asarray(array[first:last])


class Content:
    """SHA-256 over names, shapes and values of a shard's arrays, one after the other: the same however a file packs
    them."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def begin(self, name: str, shape: tuple[int, ...]) -> None:
        """The array that comes next."""
        self._digest.update(f"{name} {_KINDS[name]} {shape}\n".encode())

    def add(self, name: str, rows: np.ndarray) -> None:
        """Its next rows."""
        self._digest.update(np.ascontiguousarray(rows, dtype="<" + _KINDS[name]).data)

    def add_all(self, arrays: Mapping[str, Any], names: Iterable[str], compiled: Any = None) -> str:
        """The arrays of these names, whole, of an open shard or read; the digest of all that was added."""
        for name in names:
            self.begin(name, arrays[name].shape)
            for first in range(0, len(arrays[name]), ROWS_READ):
                self.add(name, _rows(arrays[name], first, first + ROWS_READ, compiled))
        return self._digest.hexdigest()


def content_digest(arrays: Mapping[str, Any]) -> str:
    """The digest of a shard's content, read or open."""
    return Content().add_all(arrays, types(arrays))


def size(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Rows, sequence length and predictions of a shard, without reading its data."""
    with open_shard(path) as stream:
        return extent(stream)


def extent(stream: h5py.File) -> tuple[int, int, int]:
    """The same of an open one."""
    rows, sequence = stream["input_ids"].shape
    if is_unmasked(stream):
        return rows, sequence, json.loads(stream.attrs["parameters"])["predictions"]
    return rows, sequence, stream["masked_lm_ids"].shape[1]


@contextmanager
def open_shard(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """The open file, after its datasets, types and shapes were checked; those of other makers are welcome.

    What cannot be read inside the `with` is a UserError as well: damaged data show only then.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise UserError(f"the shard {path} does not exist", next_step=repair(path))
    try:
        # a finished shard never changes, and network file systems may have no locks
        with h5py.File(path, "r", locking=False) as stream:
            lacking = _lacks(stream)
            if lacking:
                raise _broken(path, lacking)
            yield stream
    except OSError as error:
        raise _broken(path, str(error)) from None


def is_ours(stream: h5py.File) -> bool:
    """True where Throughline wrote the file, and so the stricter promises hold."""
    return "schema" in stream.attrs


def _lacks(stream: h5py.File) -> str | None:
    """What keeps an open file from being a shard; None where nothing does."""
    missing = [name for name in types(stream) if name not in stream]
    if missing:
        return f"it lacks {', '.join(missing)}"
    if is_unmasked(stream) and not is_ours(stream):
        return "a_lengths are known from Throughline's own shards alone"
    if is_ours(stream) and not stream.attrs.get("complete"):
        return "its writing was interrupted"
    if not all(isinstance(stream[name], h5py.Dataset) for name in types(stream)):
        return "its names are not datasets"
    if any(stream[name].ndim != 2 for name in ("input_ids", "masked_lm_ids") if name in types(stream)):
        return "input_ids and masked_lm_ids have to be tables"
    for name, shape in shapes(*extent(stream), types(stream)).items():
        if stream[name].shape != shape:
            return f"{name} has the shape {stream[name].shape}, not {shape}"
        if stream[name].dtype.kind not in "iu":
            return f"{name} has the type {stream[name].dtype}, not {_KINDS[name]}"
    return None


def fault(path: str | os.PathLike[str], what: str, row: int | None = None) -> UserError:
    """The error for a shard that has `what` it should not have, first in `row`."""
    why = None if row is None else f"first in row {row} (counted from 0)"
    return UserError(f"{path} has {what}", why=why, next_step=repair(path))


def repair(path: str | os.PathLike[str]) -> str:
    """What to do about a faulty shard: make it again, or, where it is another maker's, bring it again."""
    path = os.fspath(path)
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)}: bring that file again from where it came, then run snakemake"
    return f"make it again: snakemake --force {shlex.quote(path)}"


def _broken(path: str, why: str) -> UserError:
    return UserError(f"{path} is no whole shard", why=why, next_step=repair(path))

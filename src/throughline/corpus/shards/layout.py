"""Shards of pre-training examples: HDF5 files in the layout of NVIDIA's create_pretraining_data.

Data are gzip with shuffle, which any h5py reads, or not compressed, so that a reader can map them into its memory. The
attributes of our files are `schema`, `parameters` (JSON) and, written last, `complete`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import h5py

from throughline.files import UserError, snakemake

SCHEMA = 1
ROWS_PER_CHUNK = 2048
ROWS_READ = 8192
"""Rows in memory at a time, where a shard is not needed whole."""
TYPES = {
    "input_ids": "i4",  # [N,S] token ids, 0 is padding
    "input_mask": "i1",  # [N,S] 1 where a token stands
    "segment_ids": "i1",  # [N,S] 1 for the second segment and its [SEP]
    "masked_lm_positions": "i4",  # [N,P] ascending; 0 ends them
    "masked_lm_ids": "i4",  # [N,P] the tokens that stood there; 0 ends them
    "next_sentence_labels": "i1",  # [N] 1: the second segment comes from another document
}
UNMASKED = {"input_ids": "i4", "a_lengths": "i4", "b_lengths": "i4", "next_sentence_labels": "i1"}
"""Where masks are drawn while reading (masks.py): the text's tokens as they are, and how many A and B have in
[CLS] A [SEP] B [SEP], [N] each. In a file input_ids are u2 where the vocabulary allows it."""


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
    widths = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), sequence)
    widths |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), predictions)
    return {name: (rows, widths[name]) if name in widths else (rows,) for name in kinds}


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
            if lacking := _lacks(stream):
                raise broken(path, lacking)
            yield stream
    except OSError as error:
        raise broken(path, str(error)) from None


def is_ours(stream: h5py.File) -> bool:
    """True where Throughline wrote the file, and so the stricter promises hold."""
    return "schema" in stream.attrs


def _lacks(stream: h5py.File) -> str | None:
    """What keeps an open file from being a shard; None where nothing does."""
    if missing := [name for name in types(stream) if name not in stream]:
        return f"it lacks {', '.join(missing)}"
    if is_unmasked(stream) and not is_ours(stream):
        return "a_lengths are known from Throughline's own shards alone"
    if is_ours(stream) and not stream.attrs.get("complete"):
        return "its writing was interrupted"
    if not all(isinstance(stream[name], h5py.Dataset) for name in types(stream)):
        return "its names are not datasets"
    if any(stream[name].ndim != 2 for name in ("input_ids", "masked_lm_ids") if name in types(stream)):
        return "input_ids and masked_lm_ids have to be tables"
    kinds = types(stream)
    for name, shape in shapes(*extent(stream), kinds).items():
        if stream[name].shape != shape:
            return f"{name} has the shape {stream[name].shape}, not {shape}"
        if stream[name].dtype.kind not in "iu":
            return f"{name} has the type {stream[name].dtype}, not {kinds[name]}"
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
    return f"make it again: {snakemake('--force', path)}"


def broken(path: str | os.PathLike[str], why: str) -> UserError:
    """The error for a file that is no whole shard."""
    return UserError(f"{path} is no whole shard", why=why, next_step=repair(path))

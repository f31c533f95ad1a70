"""Shards of pre-training examples: HDF5 files in the layout of NVIDIA's create_pretraining_data.

The data are compressed with shuffle and gzip, which every h5py can read. Our files have the attributes `schema`,
`parameters` (JSON) and, written last, `complete`.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import h5py

from throughline.datasets import hdf5

SCHEMA = 1
ROWS_PER_CHUNK = 2048
ROWS_READ = 8192
"""How many rows are in memory at a time, where the whole shard is not needed at once."""
TYPES = {
    "input_ids": "i4",  # [N,S] token ids, 0 is padding
    "input_mask": "i1",  # [N,S] 1 for tokens, 0 for padding
    "segment_ids": "i1",  # [N,S] 1 for the second segment and its [SEP]
    "masked_lm_positions": "i4",  # [N,P] positions of the masked tokens, ascending, then zeros
    "masked_lm_ids": "i4",  # [N,P] the original tokens at these positions, then zeros
    "next_sentence_labels": "i1",  # [N] 1: the second segment comes from another document
}
UNMASKED = {"input_ids": "i4", "a_lengths": "i4", "b_lengths": "i4", "next_sentence_labels": "i1"}
"""The arrays of a shard whose masks are drawn while reading (masks.py): input_ids are not masked, a_lengths and
b_lengths [N] count the tokens of A and B in [CLS] A [SEP] B [SEP]. In a file input_ids are u2 if all ids fit."""


def is_unmasked(arrays: Mapping[str, Any]) -> bool:
    """True if the masks of this shard are drawn while it is read. The shard may be open or read."""
    return "a_lengths" in arrays


def unmasked_types(vocabulary: int) -> dict[str, str]:
    """Return the types of UNMASKED in a file, for a vocabulary of `vocabulary` entries."""
    return {**UNMASKED, "input_ids": "u2" if vocabulary <= 1 << 16 else "i4"}


def types(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a shard's arrays with their types in memory. The shard may be open or read."""
    return UNMASKED if is_unmasked(arrays) else TYPES


def shapes(rows: int, length: int, predictions: int, kinds: Iterable[str] = TYPES) -> dict[str, tuple[int, ...]]:
    """Map each dataset to its shape."""
    widths = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), length)
    widths |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), predictions)
    return {name: (rows, widths[name]) if name in widths else (rows,) for name in kinds}


def size(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Return rows, sequence length and predictions of a shard without reading its data."""
    with open_shard(path) as stream:
        return extent(stream)


def extent(stream: h5py.File) -> tuple[int, int, int]:
    """Return rows, sequence length and predictions of an open shard."""
    rows, sequence_length = stream["input_ids"].shape
    if is_unmasked(stream):
        return rows, sequence_length, json.loads(stream.attrs["parameters"])["predictions"]
    return rows, sequence_length, stream["masked_lm_ids"].shape[1]


def open_shard(path: str | os.PathLike[str]) -> AbstractContextManager[h5py.File]:
    """Open a shard of any maker and check its datasets, types and shapes.

    A failed read inside the `with` block is a UserError too, because damaged data only show there.
    """
    return hdf5.opened(path, _defect)


def is_ours(stream: h5py.File) -> bool:
    """True if Throughline wrote the file, so that the stricter promises hold."""
    return "schema" in stream.attrs


def _defect(stream: h5py.File) -> str | None:
    """Return why an open file is no shard, or None if it is one."""
    kinds = types(stream)
    if missing := [name for name in kinds if not isinstance(stream.get(name), h5py.Dataset)]:
        return f"it lacks {', '.join(missing)}"
    if is_unmasked(stream) and not is_ours(stream):
        return "a_lengths are known from Throughline's own shards alone"
    if is_ours(stream) and not stream.attrs.get("complete"):
        return hdf5.INTERRUPTED
    if any(stream[name].ndim != 2 for name in ("input_ids", "masked_lm_ids") if name in kinds):
        return "input_ids and masked_lm_ids have to be tables"
    for name, shape in shapes(*extent(stream), kinds).items():
        if stream[name].shape != shape:
            return f"{name} has the shape {stream[name].shape}, not {shape}"
        if stream[name].dtype.kind not in "iu":
            return f"{name} has the type {stream[name].dtype}, not {kinds[name]}"
    return None

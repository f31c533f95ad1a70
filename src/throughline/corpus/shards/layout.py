"""Shards of pre-training examples: HDF5 files in the layout of NVIDIA's create_pretraining_data.

Training workers import this from environments that hold numpy and h5py and nothing else of the corpus's tools.

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
import mmap
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

import h5py
import numpy as np

from throughline import files
from throughline.corpus import leftovers
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
        return {name: np.asarray(whole(stream[name]), dtype=kind) for name, kind in types(stream).items()}


def whole(dataset: h5py.Dataset, first: int = 0, last: int | None = None, compiled: Any = None) -> np.ndarray:
    """A dataset's rows from `first` to before `last`: memory-mapped where they lie in the file as they are, else
    unpacked chunk by chunk.

    gzip with and without shuffle, little-endian, is unpacked here, several times faster than HDF5 does it; anything
    else, and what is damaged, is left to HDF5. `compiled`: kernel.c, where it is at hand.
    """
    kind, place = dataset.dtype, dataset.id.get_offset()
    if place is not None and dataset.size and dataset.external is None:
        return np.asarray(np.memmap(dataset.file.filename, kind, "r", place, dataset.shape)[first:last])
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    known = [h5py.h5z.FILTER_DEFLATE], [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]
    if dataset.chunks is None or filters not in known or kind.kind not in "iu" or kind.byteorder == ">":
        return np.asarray(dataset[first:last])
    try:
        last = len(dataset) if last is None else min(last, len(dataset))
        return _unpacked(dataset, len(filters) == 2, first, last, compiled)
    except Exception:  # a chunk that is missing, stored unfiltered, or damaged
        return np.asarray(dataset[first:last])


def _unpacked(dataset: h5py.Dataset, shuffled: bool, first: int, last: int, compiled: Any) -> np.ndarray:
    """Chunk by chunk out of the mapped file: asking HDF5 for each takes a third as long again."""
    try:
        from isal import isal_zlib as zlib
    except ImportError:
        import zlib  # type: ignore[no-redef]
    kind, height, width = dataset.dtype, dataset.chunks[0], int(np.prod(dataset.chunks[1:]))
    out = np.empty((last - first, *dataset.shape[1:]), kind)
    flat = out.reshape(len(out), int(np.prod(dataset.shape[1:])))
    across, size = -(-flat.shape[1] // width), height * width * kind.itemsize
    chunks = _chunks(dataset, first, last)
    if len(chunks) != across * -(-(last - first // height * height) // height) or any(c.filter_mask for c in chunks):
        raise ValueError("a chunk is missing, or without its filters")
    with open(dataset.file.filename, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    for begin in range(0, len(chunks), across):  # the chunks that hold the same rows
        row, beside = chunks[begin].chunk_offset[0], chunks[begin : begin + across]
        packed = [content[c.byte_offset : c.byte_offset + c.size] for c in beside]
        data = b"".join([zlib.decompress(chunk, bufsize=size) for chunk in packed])
        if shuffled and kind.itemsize == 4 and compiled is not None:
            values = np.empty((across, height * width), np.uint32)
            for planes, elements in zip(np.frombuffer(data, np.uint8).reshape(across, -1), values, strict=True):
                compiled.elements(planes.ctypes.data, len(elements), elements.ctypes.data)
        elif shuffled and kind.itemsize > 1:
            planes = np.frombuffer(data, np.uint8).reshape(across, kind.itemsize, height * width)
            values = planes[:, 0].astype(f"u{kind.itemsize}")
            for k in range(1, kind.itemsize):
                if planes[:, k].any():
                    values |= planes[:, k].astype(values.dtype) << values.dtype.type(8 * k)
        else:
            values = np.frombuffer(data, np.uint8)
        runs = values.view(f"V{width * kind.itemsize}").reshape(across, height)  # a row's part in one piece
        rows = np.ascontiguousarray(runs.T).view(kind)
        top, bottom = max(first, row), min(last, row + height)
        flat[top - first : bottom - first] = rows[top - row : bottom - row, : flat.shape[1]]
    return out


def _chunks(dataset: h5py.Dataset, first: int, last: int) -> list[Any]:
    """What HDF5 knows of the chunks that hold rows from `first` to before `last`, in their order."""
    height, width = dataset.chunks[0], dataset.chunks[1:]
    found: list[Any] = []
    if first == 0 and last == len(dataset):
        dataset.id.chunk_iter(found.append)
        return sorted(found)
    across = [range(0, size, step) for size, step in zip(dataset.shape[1:], width, strict=True)]
    for offset in product(range(first // height * height, last, height), *across):
        found.append(dataset.id.get_chunk_info_by_coord(offset))
    return found


def read_rows(shard: Mapping[str, Any], first: int, last: int, compiled: Any = None) -> dict[str, Any]:
    """The arrays' rows from `first` to before `last`, of an open shard or of arrays that were read."""
    kinds = types(shard).items()
    return {name: np.asarray(_rows(shard[name], first, last, compiled), dtype=kind) for name, kind in kinds}


def _rows(array: Any, first: int, last: int, compiled: Any = None) -> np.ndarray:
    return whole(array, first, last, compiled) if isinstance(array, h5py.Dataset) else np.asarray(array[first:last])


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
            fault = _fault(stream)
            if fault:
                raise _broken(path, fault)
            yield stream
    except OSError as error:
        raise _broken(path, str(error)) from None


def is_ours(stream: h5py.File) -> bool:
    """True where Throughline wrote the file, and so the stricter promises hold."""
    return "schema" in stream.attrs


def write(
    path: str | os.PathLike[str],
    blocks: Iterable[Mapping[str, Any]],
    rows: int,
    sequence: int,
    predictions: int,
    parameters: str,
    *,
    kinds: Mapping[str, str] = TYPES,
    unpacked: bool = False,
) -> None:
    """Write a shard, whole or not at all. `blocks`: the arrays, ROWS_PER_CHUNK rows at a time; `kinds`: their types.

    The same content gives the same bytes (on x86-64; igzip's output may differ elsewhere).
    """
    from isal import isal_zlib

    with new_file(path) as stream:
        height = min(rows, ROWS_PER_CHUNK)
        for name, shape in shapes(rows, sequence, predictions, kinds).items():
            kind = kinds[name]
            if rows == 0 or unpacked:
                stream.create_dataset(name, shape, kind, track_times=False)
                continue
            stream.create_dataset(
                name,
                shape,
                kind,
                chunks=(height, *shape[1:]),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
                track_times=False,
            )
        begin, datasets = 0, {name: stream[name] for name in kinds}
        for block in blocks:
            for name, dataset in datasets.items():
                if unpacked:
                    dataset[begin : begin + len(block[name])] = block[name]
                    continue
                data = np.ascontiguousarray(block[name], dtype="<" + kinds[name])
                if len(data) < height:
                    data = np.concatenate([data, np.zeros((height - len(data), *data.shape[1:]), data.dtype)])
                packed = isal_zlib.compress(_planes(data), 1)
                dataset.id.write_direct_chunk((begin,) + (0,) * (data.ndim - 1), packed)
            begin += len(block["input_ids"])
        if begin != rows:
            raise ValueError(f"{begin} rows were given, {rows} were announced")
        stream.attrs["schema"] = SCHEMA
        stream.attrs["parameters"] = parameters
        stream.flush()
        stream.attrs["complete"] = True


def unpack(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write a shard of any maker once more, uncompressed: a reader can map it into its memory."""
    with open_shard(source) as packed, new_file(path) as stream:
        for name, kind in types(packed).items():
            made = packed[name].dtype if is_unmasked(packed) else "<" + kind
            stream.create_dataset(name, data=np.asarray(packed[name][...], dtype=made), track_times=False)
        for name in ("schema", "parameters"):
            if name in packed.attrs:
                stream.attrs[name] = packed.attrs[name]
        stream.flush()
        stream.attrs["complete"] = True


def _planes(data: np.ndarray) -> np.ndarray:
    """HDF5's shuffle: the first bytes of all elements, then the second ones ...; u1[bytes]."""
    from throughline.corpus import kernel

    flat = data.reshape(-1)
    compiled = kernel.load()
    if data.itemsize == 1:
        return flat.view(np.uint8)
    if compiled is None:
        return np.ascontiguousarray(flat.reshape(-1, 1).view(np.uint8).T).reshape(-1)
    out = np.empty(data.nbytes, np.uint8)
    compiled.planes(data.ctypes.data, data.size, data.itemsize, out)
    return out


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """An empty HDF5 file that gets its name when it is whole. What killed writers of it left is removed first.

    OSError with its number where the disk is full; HDF5 hides it in a RuntimeError when it notices while closing.
    """
    leftovers.remove(path)
    try:
        with files.atomic(path) as temporary, h5py.File(temporary, "w", locking=False) as stream:
            yield stream
    except RuntimeError as error:
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from None


def _fault(stream: h5py.File) -> str | None:
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
            return f"{name} has the type {stream[name].dtype}, not {TYPES[name]}"
    return None


def repair(path: str | os.PathLike[str]) -> str:
    """What to do about a faulty shard: make it again, or, where it is another maker's, bring it again."""
    path = os.fspath(path)
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)}: bring that file again from where it came, then run snakemake"
    return f"make it again: snakemake --force {shlex.quote(path)}"


def _broken(path: str, why: str) -> UserError:
    return UserError(f"{path} is no whole shard", why=why, next_step=repair(path))

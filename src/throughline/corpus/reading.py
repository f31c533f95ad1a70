"""Read shards for training: pairs of segments, several times faster than HDF5 reads them, and windows of running text.

This module runs in a framework's own environment and needs only numpy and h5py. The isal package makes it faster.
"""

import mmap
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline.corpus.bpe import END_OF_TEXT, KIND
from throughline.corpus.shards import layout
from throughline.corpus.shards.masks import Masking
from throughline.randomness import Stream

Rows = dict[str, np.ndarray]


def reader(content: Mapping[str, Any], folder: Path, parameters: Any, seed: int) -> Any:
    """Return a reader (`rank.data.Reader`) for the shards in `folder` that a manifest (`content`) lists.

    `parameters` and `seed` are those of the run.
    """
    if content.get("kind") == KIND:
        apart = getattr(parameters, "attention", None) == "document"
        end = content["vocabulary"].get("end_of_text", END_OF_TEXT) if apart else None
        return WindowReader(folder, parameters.sequence_length, seed, end)
    return PairReader(content, folder)


class PairReader:
    """Reads pairs of segments. The manifest states the sequence length and the seed, so the run's are not needed."""

    def __init__(self, content: Mapping[str, Any], folder: Path) -> None:
        self.folder = folder
        self.masking = Masking.of_manifest(content) if content.get("parameters", {}).get("dynamic") else None
        self.how = "masks drawn anew each epoch" if self.masking else None

    def rows(self, shard: Mapping[str, Any]) -> int:
        return int(shard["rows"])

    def read(self, shard: Mapping[str, Any], epoch: int) -> Rows:
        """Return the six arrays of a shard. If masks are drawn while reading, they are those of the epoch."""
        path = self.folder / shard["file"]
        if self.masking is None:
            return read_shard(path)
        return self.masking.masked(read_shard(path, layout.UNMASKED), self.masking.stream(path.stem, epoch))


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

    def read(self, shard: Mapping[str, Any], epoch: int) -> dict[str, np.ndarray]:
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


def mapped(path: Path, shard: Mapping[str, Any]) -> np.ndarray:
    """Map the tokens of a file into memory: as many as `tokens` says, of type `type`, from byte `offset` on."""
    return np.memmap(path, shard["type"], "r", shard["offset"], (shard["tokens"],))


def read_shard(path: Path, names: Iterable[str] = layout.TYPES) -> Rows:
    """Return the whole arrays of a shard; ValueError if one is missing or their lengths differ."""
    with h5py.File(path, "r") as file:
        if missing := [name for name in names if name not in file]:
            raise ValueError(f"{path.name} has no array {', '.join(missing)}")
        arrays = {name: rows(file[name]) for name in names}
    if len({len(array) for array in arrays.values()}) != 1:
        raise ValueError(f"the arrays of {path.name} differ in length")
    return arrays


def rows(dataset: h5py.Dataset, first: int = 0, last: int | None = None) -> np.ndarray:
    """Return the rows [first, last) of a dataset.

    This function unpacks gzip several times faster than HDF5 does. We never let HDF5 unpack it, because HDF5 sets no
    limit to the unpacked size. OSError if a chunk does not unpack to its size.
    """
    kind = dataset.dtype
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    if h5py.h5z.FILTER_DEFLATE not in filters:
        return np.asarray(dataset[first:last])
    if filters[-1] == h5py.h5z.FILTER_FLETCHER32:  # not needed: gzip has a checksum of its own
        filters.pop()
    readable = [h5py.h5z.FILTER_DEFLATE], [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]
    if filters not in readable or kind.kind not in "iu" or dataset.ndim > 2:
        raise OSError(
            f"{dataset.name} is compressed in another way than integers by shuffle and gzip, or by gzip alone"
        )
    last = len(dataset) if last is None else min(last, len(dataset))
    return _unpacked(dataset, len(filters) - 1, first, last)


def _unpacked(dataset: h5py.Dataset, gzip: int, first: int, last: int) -> np.ndarray:
    """Unpack the rows chunk by chunk from the mapped file. (To ask HDF5 for each chunk takes a third longer.)

    `gzip` is the number of the gzip filter. If it is 1, filter 0 is the shuffle.
    """
    try:
        from isal import isal_zlib as zlib
    except ImportError:
        import zlib  # type: ignore[no-redef]
    kind, height, width = dataset.dtype, dataset.chunks[0], int(np.prod(dataset.chunks[1:]))
    columns, size = int(np.prod(dataset.shape[1:])), height * width * kind.itemsize
    out = np.empty((last - first, -(-columns // width) * width), kind)
    runs = out.view(f"V{width * kind.itemsize}")  # the part of a row within a chunk is one element
    chunks = _chunks(dataset, first, last)
    if len(chunks) != runs.shape[1] * -(-(last - first // height * height) // height):
        out[:] = dataset.fillvalue  # for chunks that were never written
    with open(dataset.file.filename, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    for chunk in chunks:
        packed = content[chunk.byte_offset : chunk.byte_offset + chunk.size]
        data = packed[:size] if chunk.filter_mask >> gzip & 1 else _inflated(packed, size, zlib)
        if len(data) != size:
            raise OSError(f"a chunk of {dataset.name} does not unpack to its {size} bytes")
        shuffled = gzip and not chunk.filter_mask & 1
        values = _elements(data, kind) if shuffled else np.frombuffer(data, kind)
        row, column = (*chunk.chunk_offset, 0)[:2]
        top, bottom = max(first, row), min(last, row + height)
        runs[top - first : bottom - first, column // width] = values.view(runs.dtype)[top - row : bottom - row]
    return np.ascontiguousarray(out[:, :columns]).reshape(last - first, *dataset.shape[1:])


def _inflated(packed: memoryview, size: int, zlib: Any) -> bytes:
    """Return the unpacked bytes, at most `size`; no bytes if there would be more, or if the data end too early."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed, size)
    except zlib.error as error:
        raise OSError(f"a chunk is damaged ({error})") from None
    return data if stream.eof else b""


def _elements(data: bytes | memoryview, kind: np.dtype) -> np.ndarray:
    """Undo HDF5's shuffle: `data` holds the first bytes of all elements, then the second bytes, and so on."""
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    lowest, *higher = planes[::-1] if kind.byteorder == ">" else planes
    values = lowest.astype(f"u{kind.itemsize}")
    for k, plane in enumerate(higher, 1):
        if plane.any():
            values |= plane.astype(values.dtype) << values.dtype.type(8 * k)
    return np.asarray(values.view(kind.newbyteorder("=")), kind)


def _chunks(dataset: h5py.Dataset, first: int, last: int) -> list[Any]:
    """Return HDF5's information about the chunks that hold the rows [first, last), in the faster of two ways."""
    if first == 0 and last == len(dataset):
        chunks: list[Any] = []
        dataset.id.chunk_iter(chunks.append)
        return chunks
    height = dataset.chunks[0]
    across = [range(0, size, step) for size, step in zip(dataset.shape[1:], dataset.chunks[1:], strict=True)]
    offsets = product(range(first // height * height, last, height), *across)
    return [chunk for chunk in map(dataset.id.get_chunk_info_by_coord, offsets) if chunk.byte_offset is not None]

"""Make a shard from its tokens: form pairs, turn them into examples with masks, and write the file.

In each example round(length x probability) tokens are masked, at least 1 and at most `predictions`. Of these, 80 %
become [MASK], 10 % become a random word and 10 % stay (Devlin et al. 2018, appendix A.2). A random word is never a
special token or an unused entry. Each row of the shuffled shard has random numbers of its own. kernel.c fills the
arrays. A plain version of the same rules is in tests/unit/corpus/shards/plain.py.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from throughline import randomness
from throughline.corpus import kernel
from throughline.corpus.shards import Parameters, layout, pairs
from throughline.corpus.shards.masks import masked_of
from throughline.corpus.shards.pairs import Shuffled
from throughline.corpus.text import tokens, vocabulary
from throughline.corpus.text.tokens import Allocator, Documents
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.datasets import hdf5
from throughline.files import UserError, snakemake

Arrays = dict[str, NDArray[Any]]


def make(tokens_file: Path, vocabulary_file: Path, parameters: Parameters, split: str, shard: int, path: Path) -> None:
    """Write a shard with all its copies, shuffled. Arrays beyond MEMORY_BYTES go to memory-mapped temporary files."""
    words = vocabulary.read(vocabulary_file)
    memory = Allocator(path.parent, tokens.MEMORY_BYTES)
    documents, facts = tokens.read(tokens_file, memory)
    if facts["vocabulary_sha256"] != words.sha256:
        raise UserError(
            f"{tokens_file} was made with another vocabulary than {vocabulary_file}",
            next_step=f"make it again: {snakemake('--force', str(tokens_file))}",
        )
    order = pairs.shuffled(documents, parameters, split, shard, memory)
    described = json.dumps(parameters.recorded(words.sha256), sort_keys=True, separators=(",", ":"))
    kinds = layout.unmasked_types(len(words)) if parameters.dynamic else layout.TYPES
    extent = len(order), parameters.sequence_length, parameters.predictions
    write(path, examples(documents, order, parameters, words, split, shard), *extent, described, kinds=kinds)


def examples(
    documents: Documents,
    order: Shuffled,
    parameters: Parameters,
    vocabulary: Vocabulary,
    split: str,
    shard: int,
    rows: int = layout.ROWS_PER_CHUNK,
) -> Iterator[Arrays]:
    """Yield the examples, `rows` at a time (fewer in the last block), in NVIDIA's layout or unmasked (layout.py)."""
    compiled: Any = kernel.load()
    length = parameters.sequence_length
    predictions = 0 if parameters.dynamic else parameters.predictions  # with 0 predictions, nothing is masked
    counts = masked_of(np.arange(length - 2), predictions, parameters.probability).astype(np.int32)
    stream = randomness.Stream(parameters.seed, split, shard, length, "masks")
    for begin in range(0, len(order), rows):
        block = order.cut(begin, begin + rows)
        shapes = layout.shapes(len(block), length, predictions)
        arrays = {name: np.empty(shape, layout.TYPES[name]) for name, shape in shapes.items()}
        compiled.filled(
            len(block), length, predictions, documents.tokens.ctypes.data, documents.tokens.itemsize,
            block.a, block.a_length, block.b, block.b_length, block.random_next.view(np.uint8),
            counts, stream.words(len(block), predictions, 2), vocabulary.words, len(vocabulary.words),
            vocabulary.cls, vocabulary.sep, vocabulary.mask, np.empty(2 * length, np.uint16),
            *(array if array.itemsize == 4 else array.view(np.uint8) for array in arrays.values()),
        )  # fmt: skip
        if parameters.dynamic:
            arrays |= {"a_lengths": block.a_length.astype(np.int32), "b_lengths": block.b_length.astype(np.int32)}
            arrays = {name: arrays[name] for name in layout.UNMASKED}
        yield arrays


def write(
    path: Path,
    blocks: Iterable[Mapping[str, Any]],
    rows: int,
    sequence_length: int,
    predictions: int,
    parameters: str,
    *,
    kinds: Mapping[str, str] = layout.TYPES,
) -> None:
    """Write a shard; the file is whole or absent.

    `blocks` yields the arrays, ROWS_PER_CHUNK rows at a time. `kinds`: their types.
    """
    with hdf5.new_file(path, {"schema": layout.SCHEMA, "parameters": parameters}) as stream:
        for name, shape in layout.shapes(rows, sequence_length, predictions, kinds).items():
            chunks = (min(rows, layout.ROWS_PER_CHUNK), *shape[1:])
            gzip = {"chunks": chunks, "compression": "gzip", "compression_opts": 1, "shuffle": True}
            stream.create_dataset(name, shape, kinds[name], track_times=False, **(gzip if rows else {}))
        begin, datasets = 0, {name: stream[name] for name in kinds}
        for block in blocks:
            for name, dataset in datasets.items():
                _write_chunk(dataset, begin, np.ascontiguousarray(block[name], dtype="<" + kinds[name]))
            begin += len(block["input_ids"])
        if begin != rows:
            raise ValueError(f"{begin} rows were given, {rows} were announced")


def _write_chunk(dataset: h5py.Dataset, begin: int, data: np.ndarray) -> None:
    """Write one chunk: the dataset's rows from `begin` on. A last, shorter chunk is filled up with zeros.

    igzip compresses the chunk. Two files with equal content may differ in their compressed bytes.
    """
    if lacking := dataset.chunks[0] - len(data):
        data = np.concatenate([data, np.zeros((lacking, *data.shape[1:]), data.dtype)])
    dataset.id.write_direct_chunk((begin,) + (0,) * (data.ndim - 1), isal_zlib.compress(_planes(data), 1))


def _planes(data: np.ndarray) -> np.ndarray:
    """Apply HDF5's shuffle: return the first bytes of all elements, then the second bytes, and so on; u1[bytes]."""
    flat = data.reshape(-1)
    if data.itemsize == 1:
        return flat.view(np.uint8)
    out = np.empty(data.nbytes, np.uint8)
    kernel.load().planes(data.ctypes.data, data.size, data.itemsize, out)
    return out

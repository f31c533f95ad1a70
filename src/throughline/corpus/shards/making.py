"""Make a shard from its tokens: form the examples, mask them and write the file. Or write a shard again, unpacked."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline.corpus import compression
from throughline.corpus.shards import Parameters, instances, layout, segment_pairs
from throughline.corpus.shards.instances import Arrays
from throughline.corpus.text import tokens, vocabulary
from throughline.corpus.text.tokens import Allocator
from throughline.datasets import hdf5
from throughline.files import UserError, snakemake


def make(
    tokens_file: Path,
    vocabulary_file: Path,
    parameters: Parameters,
    split: str,
    shard: int,
    path: Path,
    *,
    unpacked: bool = False,
    memory_bytes: int = tokens.MEMORY_BYTES,
) -> None:
    """Write a shard with all its copies, shuffled. Arrays beyond `memory_bytes` go to memory-mapped temporary files."""
    words = vocabulary.read(vocabulary_file)
    allocator = Allocator(path.parent, memory_bytes)
    documents, facts = tokens.read(tokens_file, allocator)
    if facts["vocabulary_sha256"] != words.sha256:
        raise UserError(
            f"{tokens_file} was made with another vocabulary than {vocabulary_file}",
            next_step=f"make it again: {snakemake('--force', str(tokens_file))}",
        )
    order = segment_pairs.examples(documents, parameters, split, shard, allocator)
    rows = layout.ROWS_PER_CHUNK
    blocks = _releasing(allocator, instances.blocks(documents, order, parameters, words, split, shard, rows))
    described = json.dumps(parameters.recorded(words.sha256), sort_keys=True, separators=(",", ":"))
    kinds = layout.unmasked_types(len(words)) if parameters.dynamic else layout.TYPES
    extent = len(order), parameters.sequence_length, parameters.predictions
    write(path, blocks, *extent, described, kinds=kinds, unpacked=unpacked)


def _releasing(allocator: Allocator, blocks: Iterator[Arrays]) -> Iterator[Arrays]:
    for block in blocks:
        yield block
        allocator.release()


def write(
    path: Path,
    blocks: Iterable[Mapping[str, Any]],
    rows: int,
    sequence_length: int,
    predictions: int,
    parameters: str,
    *,
    kinds: Mapping[str, str] = layout.TYPES,
    unpacked: bool = False,
) -> None:
    """Write a shard; the file is whole or absent.

    `blocks` yields the arrays, ROWS_PER_CHUNK rows at a time. `kinds`: their types.
    """
    plain = unpacked or rows == 0
    with hdf5.new_file(path, {"schema": layout.SCHEMA, "parameters": parameters}) as stream:
        for name, shape in layout.shapes(rows, sequence_length, predictions, kinds).items():
            chunks = (min(rows, layout.ROWS_PER_CHUNK), *shape[1:])
            gzip = {"chunks": chunks, "compression": "gzip", "compression_opts": 1, "shuffle": True}
            stream.create_dataset(name, shape, kinds[name], track_times=False, **({} if plain else gzip))
        begin, datasets = 0, {name: stream[name] for name in kinds}
        for block in blocks:
            for name, dataset in datasets.items():
                if plain:
                    dataset[begin : begin + len(block[name])] = block[name]
                else:
                    _write_chunk(dataset, begin, np.ascontiguousarray(block[name], dtype="<" + kinds[name]))
            begin += len(block["input_ids"])
        if begin != rows:
            raise ValueError(f"{begin} rows were given, {rows} were announced")


def _write_chunk(dataset: h5py.Dataset, begin: int, data: np.ndarray) -> None:
    """Write one chunk: the dataset's rows from `begin` on. A last, shorter chunk is filled up with zeros."""
    if lacking := dataset.chunks[0] - len(data):
        data = np.concatenate([data, np.zeros((lacking, *data.shape[1:]), data.dtype)])
    dataset.id.write_direct_chunk((begin,) + (0,) * (data.ndim - 1), compression.packed(data))


def unpack(source: Path, path: Path) -> None:
    """Write a shard of any maker again without compression, so that a reader can map it into its memory."""
    with layout.open_shard(source) as shard:
        attributes = {name: shard.attrs[name] for name in ("schema", "parameters") if name in shard.attrs}
        with hdf5.new_file(path, attributes) as stream:
            for name, kind in layout.types(shard).items():
                made = shard[name].dtype if layout.is_unmasked(shard) else "<" + kind
                stream.create_dataset(name, data=np.asarray(shard[name][...], dtype=made), track_times=False)

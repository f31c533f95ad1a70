"""The file of a shard: written from its rows, or written once more uncompressed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import h5py
import numpy as np

from throughline.corpus import packing
from throughline.corpus.shards import layout

Place = str | os.PathLike[str]


def write(
    path: Place,
    blocks: Iterable[Mapping[str, Any]],
    rows: int,
    sequence: int,
    predictions: int,
    parameters: str,
    *,
    kinds: Mapping[str, str] = layout.TYPES,
    unpacked: bool = False,
) -> None:
    """Write a shard, whole or not at all. `blocks`: the arrays, ROWS_PER_CHUNK rows at a time; `kinds`: their types.

    The same content gives the same bytes (on x86-64; igzip's output may differ elsewhere).
    """
    plain = unpacked or rows == 0
    with packing.new_file(path) as stream:
        for name, shape in layout.shapes(rows, sequence, predictions, kinds).items():
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
        _complete(stream, {"schema": layout.SCHEMA, "parameters": parameters})


def _write_chunk(dataset: h5py.Dataset, begin: int, data: np.ndarray) -> None:
    """The dataset's rows from `begin` on, at most a chunk of them; the last chunk is filled up with zeros."""
    lacking = dataset.chunks[0] - len(data)
    if lacking:
        data = np.concatenate([data, np.zeros((lacking, *data.shape[1:]), data.dtype)])
    dataset.id.write_direct_chunk((begin,) + (0,) * (data.ndim - 1), packing.packed(data))


def unpack(source: Place, path: Place) -> None:
    """Write a shard of any maker once more, uncompressed: a reader can map it into its memory."""
    with layout.open_shard(source) as shard, packing.new_file(path) as stream:
        for name, kind in layout.types(shard).items():
            made = shard[name].dtype if layout.is_unmasked(shard) else "<" + kind
            stream.create_dataset(name, data=np.asarray(shard[name][...], dtype=made), track_times=False)
        _complete(stream, {name: shard.attrs[name] for name in ("schema", "parameters") if name in shard.attrs})


def _complete(stream: h5py.File, attributes: Mapping[str, Any]) -> None:
    """Write the attributes, and last of all that the file is complete."""
    stream.attrs.update(attributes)
    stream.flush()
    stream.attrs["complete"] = True

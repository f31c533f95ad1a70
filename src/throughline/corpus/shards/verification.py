"""Verify a shard: read the whole file and check every promise of the layout, example by example.

If the tokens that the shard was made from are given, its second segments are looked up in them (text_lookup.py). If the
shard's masks are drawn while it is read, the masks of the first epoch are checked.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from throughline.corpus import kernel, reading
from throughline.corpus.shards import Parameters, layout, row_checks
from throughline.corpus.shards.masks import Masking, ranges
from throughline.corpus.shards.row_checks import Arrays
from throughline.corpus.shards.text_lookup import Text
from throughline.corpus.text import tokens
from throughline.corpus.text.tokens import Allocator
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.datasets import manifest
from throughline.datasets.shards import fault

_ROWS = 2048  # rows checked at a time, few enough for a processor's cache


def verify(
    path: Path,
    vocabulary: Vocabulary,
    parameters: Parameters | None = None,
    tokens_file: Path | None = None,
    size: tuple[int, int] | None = None,
    memory_bytes: int = tokens.MEMORY_BYTES,
) -> dict[str, Any]:
    """Return the shard's number of rows, digests and statistics; UserError names the first fault.

    `parameters`: how the shard should have been made. Without them, it is checked as a shard of an unknown maker, for
    which only the sequence length and predictions may be known (`size`). Tokens beyond `memory_bytes` lie in a
    memory-mapped file.
    """
    with layout.open_shard(path) as stream:
        _check_parameters(path, stream, vocabulary, parameters, size)
        rows, sequence_length, predictions = layout.extent(stream)
        promised = parameters if layout.is_ours(stream) else None
        text = masking = None
        if rows and tokens_file is not None:
            text = Text(tokens.read(tokens_file, Allocator(path.parent, memory_bytes))[0])
        if parameters is not None and parameters.dynamic:
            masking = masking_of(parameters, vocabulary)
            drawn = masking.stream(path.stem, 0)

        def check(block: Arrays, first: int) -> Counter[str]:
            """Check the rows from `first` on and return what was counted in them. Masks are drawn in rows' order."""
            if masking is not None:
                row_checks.check_lengths(path, block, first)
                block = masking.masked(block, drawn)
            counts = Counter(row_checks.check(path, block, vocabulary, promised, first))
            if text is not None:
                counts.update(text.look_up(path, block, rows, first))
            return counts

        counts, content_digest = _read(stream, check)
    if rows and promised is not None:
        row_checks.check_shares(path, counts, vocabulary)
    looked_up = {"pairs_looked_up": counts["pairs_looked_up"]} if text is not None else {}
    return manifest.verified(
        path,
        {"rows": rows, "sequence_length": sequence_length, "predictions": predictions},
        content_digest,
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(vocabulary),
        parameters=parameters.described() if parameters is not None else None,
        statistics={**row_checks.shares(counts), **looked_up} if rows else {},
    )


def _check_parameters(
    path: Path, stream: h5py.File, vocabulary: Vocabulary, parameters: Parameters | None, size: tuple[int, int] | None
) -> None:
    """Check that an open shard has the parameters, or the size, that it should have."""
    _, sequence_length, predictions = layout.extent(stream)
    written = json.loads(stream.attrs["parameters"]) if layout.is_ours(stream) else None
    wanted = size if parameters is None else (parameters.sequence_length, parameters.predictions)
    others = parameters is not None and written is not None and written != parameters.recorded(vocabulary.sha256)
    if others or (wanted is not None and wanted != (sequence_length, predictions)):
        has = written or (sequence_length, predictions)
        raise fault(path, f"has other parameters than asked for: {has}, not {parameters or wanted}")
    if layout.is_unmasked(stream) != (parameters is not None and parameters.dynamic):
        raise fault(path, f"has {'examples without masks' if layout.is_unmasked(stream) else 'masks of its own'}")


def masking_of(parameters: Parameters, vocabulary: Vocabulary) -> Masking:
    """Return how a reader masks the rows of an unmasked shard."""
    how = parameters.sequence_length, parameters.predictions, parameters.probability, parameters.seed
    return Masking(*how, vocabulary.mask, ranges(vocabulary.words))


def _read(stream: h5py.File, check: Callable[[Arrays, int], Counter[str]]) -> tuple[Counter[str], str]:
    """Read an open shard and check its rows.

    Returns what `check` counted, and the SHA-256 of the names, types, shapes and values of the arrays.
    """
    kinds, compiled = layout.types(stream), kernel.load()
    shard = {name: stream[name] for name in kinds}
    counts, digest = Counter[str](), hashlib.sha256()
    for name, kind in kinds.items():
        digest.update(f"{name} {kind} {shard[name].shape}\n".encode())
        wanted = kinds if name == "input_ids" else [name]  # `check` needs all arrays at once
        for first in range(0, len(shard[name]), layout.ROWS_READ):
            last = first + layout.ROWS_READ
            arrays = {key: np.asarray(reading.rows(shard[key], first, last, compiled), kinds[key]) for key in wanted}
            digest.update(np.ascontiguousarray(arrays[name], dtype="<" + kind).data)
            if name == "input_ids":
                for begin in range(0, len(arrays[name]), _ROWS):
                    block = {key: array[begin : begin + _ROWS] for key, array in arrays.items()}
                    counts.update(check(block, first + begin))
    return counts, digest.hexdigest()

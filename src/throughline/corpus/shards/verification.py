"""Is a shard what it should be? Reads it whole and checks every promise of the layout, example by example.

Shards of other makers are checked by the layout's rules; ours have to keep stricter ones as well (promises.py). With
the tokens a shard was made from, second segments are looked up in them (lookup.py). Of a shard whose masks are drawn
while it is read, the first epoch's are judged.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py

from throughline import files
from throughline.corpus import kernel
from throughline.corpus.allocator import Allocator
from throughline.corpus.shards import layout, promises
from throughline.corpus.shards.lookup import Text
from throughline.corpus.shards.masks import Masking, ranges
from throughline.corpus.shards.parameters import Parameters
from throughline.corpus.shards.promises import Arrays
from throughline.corpus.text import tokens
from throughline.corpus.text.vocabulary import Vocabulary

SCHEMA = 1
_ROWS = 2048  # checked at a time, within a processor's cache


def verify(
    path: Path,
    vocabulary: Vocabulary,
    parameters: Parameters | None = None,
    tokens_file: Path | None = None,
    size: tuple[int, int] | None = None,
    memory_bytes: int = tokens.MEMORY_BYTES,
) -> dict[str, Any]:
    """The shard's rows, digests and statistics; UserError naming the first fault found.

    `parameters`: what the shard was asked to be; absent, it is judged as a shard of an unknown maker, of which no more
    may be known than its sequence length and predictions (`size`). Tokens beyond `memory_bytes` lie in a mapped file.
    """
    with layout.open_shard(path) as stream:
        _check_parameters(path, stream, vocabulary, parameters, size)
        rows, sequence, predictions = layout.extent(stream)
        text = mask = None
        if rows and tokens_file is not None:
            text = Text(tokens.read(tokens_file, Allocator(path.parent, memory_bytes))[0])
        if parameters is not None and parameters.dynamic:  # judged as it is read in the first epoch
            masking = masking_of(parameters, vocabulary)
            mask = partial(masking.masked, stream=masking.stream(path.stem, 0))
        promised = parameters if layout.is_ours(stream) else None
        statistics, content_digest = _read(stream, _Rows(path, rows, vocabulary, promised, mask, text))
    return {
        "schema": SCHEMA,
        "file": path.name,
        **({"source": Path(os.readlink(path)).name} if path.is_symlink() else {}),
        "rows": rows,
        "sequence": sequence,
        "predictions": predictions,
        "sha256": files.sha256(path),
        "content_digest": content_digest,
        "vocabulary_sha256": vocabulary.sha256,
        "vocabulary_size": len(vocabulary),
        "parameters": parameters.described() if parameters is not None else None,
        "statistics": statistics,
    }


def _check_parameters(
    path: Path, stream: h5py.File, vocabulary: Vocabulary, parameters: Parameters | None, size: tuple[int, int] | None
) -> None:
    """Check that an open shard is of the parameters, or of the size, that it was asked to be."""
    _, sequence, predictions = layout.extent(stream)
    written = json.loads(stream.attrs["parameters"]) if layout.is_ours(stream) else None
    wanted = size if parameters is None else (parameters.sequence, parameters.predictions)
    others = parameters is not None and written is not None and written != parameters.recorded(vocabulary.sha256)
    if others or (wanted is not None and wanted != (sequence, predictions)):
        has = written or (sequence, predictions)
        raise layout.fault(path, f"other parameters than asked for: {has}, not {parameters or wanted}")
    if layout.is_unmasked(stream) != (parameters is not None and parameters.dynamic):
        raise layout.fault(path, "examples without masks" if layout.is_unmasked(stream) else "masks of its own")


def masking_of(parameters: Parameters, vocabulary: Vocabulary) -> Masking:
    """How a reader masks the rows of an unmasked shard."""
    how = parameters.sequence, parameters.predictions, parameters.probability, parameters.seed
    return Masking(*how, vocabulary.mask, ranges(vocabulary.words))


@dataclass(frozen=True)
class _Rows:
    """What is known of a shard's rows. `mask` draws the masks of unmasked ones, so blocks come in their order."""

    path: Path
    count: int
    vocabulary: Vocabulary
    promised: Parameters | None
    mask: Callable[[Arrays], Arrays] | None
    text: Text | None

    def check(self, block: Arrays, first: int) -> Counter[str]:
        """Check a block of rows, called `first` and so on; what was counted in them."""
        if self.mask is not None:
            promises.check_lengths(self.path, block, first)
            block = self.mask(block)
        counts = Counter(promises.check(self.path, block, self.vocabulary, self.promised, first))
        if self.text is not None:
            counts.update(self.text.look_up(self.path, block, self.count, first))
        return counts

    def statistics(self, counts: Counter[str]) -> dict[str, Any]:
        """Shares and means over all rows, checked against what chance allows; nothing of a shard without rows."""
        if not self.count:
            return {}
        if self.promised is not None:
            promises.check_shares(self.path, counts, self.vocabulary)
        looked_up = {"pairs_looked_up": counts["pairs_looked_up"]} if self.text is not None else {}
        return {**promises.shares(counts), **looked_up}


def _read(stream: h5py.File, rows: _Rows) -> tuple[dict[str, Any], str]:
    """Read an open shard and check its rows: their statistics, and the digest of the content."""
    shard = {name: stream[name] for name in layout.types(stream)}
    content, (ids, *others) = layout.Content(), shard
    content.begin(ids, shard[ids].shape)
    counts: Counter[str] = Counter()
    for first in range(0, rows.count, layout.ROWS_READ):
        arrays = layout.read_rows(shard, first, first + layout.ROWS_READ, kernel.load())
        content.add(ids, arrays[ids])  # most of the bytes; the others are read again
        for begin in range(0, len(arrays[ids]), _ROWS):
            block = {name: array[begin : begin + _ROWS] for name, array in arrays.items()}
            counts.update(rows.check(block, first + begin))
    return rows.statistics(counts), content.add_all(shard, others, kernel.load())

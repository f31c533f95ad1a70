"""Draw masks while a shard is read, anew in each epoch, by the same rules as for stored masks (making.py).

Seed, shard, sequence length and epoch name a stream of random words, and each row has a fixed place in it. So a row's
masks are the same for any batch size, number of ranks, framework and block of rows, and after a restart. Each masked
token takes one word of 64 bits: the upper half chooses the position, the lower half chooses what happens there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.shards import layout
from throughline.randomness import Stream, Words, below

Arrays = dict[str, Any]
_BLOCK = 2048  # rows at a time, few enough for a processor's cache
_NONE = 1 << 15  # stands for "no position": greater than any position
_KEEP, _REPLACE = round(0.8 * 2**32), round(0.9 * 2**32)


def masked_of(candidates: NDArray[np.int64], predictions: int, probability: float) -> NDArray[np.int64]:
    """Return how many tokens are masked in rows whose segments A and B have `candidates` tokens together."""
    count = np.rint((candidates + 3) * probability).astype(np.int64)
    return np.asarray(np.minimum(np.clip(count, 1, predictions), candidates))


def ranges(ids: NDArray[np.integer]) -> list[list[int]]:
    """Return ascending ids as a list of runs [first, last + 1]. For the words of a vocabulary this list is short."""
    borders = np.flatnonzero(np.diff(ids) != 1) + 1
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(ids, borders) if len(run)]


@dataclass(frozen=True)
class Masking:
    """How the rows of one length are masked. `mask` is the id of [MASK], `words` the `ranges` of random words' ids."""

    sequence_length: int
    predictions: int
    probability: float
    seed: int
    mask: int
    words: Iterable[Iterable[int]]

    @cached_property
    def _words(self) -> NDArray[np.int32]:
        return np.concatenate([np.arange(*run, dtype=np.int32) for run in self.words])

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        return masked_of(np.arange(self.sequence_length - 2), self.predictions, self.probability)

    @classmethod
    def of_manifest(cls, content: Mapping[str, Any]) -> Masking:
        """Return the masking that the manifest of a sequence length describes."""
        how = {name: content["parameters"][name] for name in ("sequence_length", "predictions", "probability", "seed")}
        return cls(**how, mask=content["vocabulary"]["mask"], words=content["vocabulary"]["words"])

    def stream(self, shard: str, epoch: int) -> Stream:
        """Return the random words of a shard's rows in an epoch, in the rows' order.

        `shard` is the shard's name without .hdf5.
        """
        return Stream(self.seed, "reading", shard, self.sequence_length, epoch)

    def masked(self, rows: Mapping[str, Any], stream: Stream) -> Arrays:
        """Mask the next rows of an unmasked shard (layout.py): return the six arrays of NVIDIA's layout."""
        count = len(rows["input_ids"])
        shapes = layout.shapes(count, self.sequence_length, self.predictions)
        made: Arrays = {name: np.empty(shape, layout.TYPES[name]) for name, shape in shapes.items()}
        made["next_sentence_labels"][:] = rows["next_sentence_labels"]
        for first in range(0, count, _BLOCK):
            block = {name: array[first : first + _BLOCK] for name, array in rows.items()}
            drawn = stream.words(len(block["input_ids"]), self.predictions)
            self._fill({name: array[first : first + _BLOCK] for name, array in made.items()}, block, drawn)
        return made

    def _fill(self, made: Arrays, block: Mapping[str, Any], drawn: Words) -> None:
        ids, mask, segments = made["input_ids"], made["input_mask"], made["segment_ids"]
        a_length = np.asarray(block["a_lengths"], np.int64)
        candidates = a_length + block["b_lengths"]
        column = np.arange(self.sequence_length, dtype=np.uint16)
        ids[:] = block["input_ids"]
        np.less(column, (candidates + 3).astype(np.uint16)[:, None], out=mask.view(np.bool_))
        np.greater_equal(column, (a_length + 2).astype(np.uint16)[:, None], out=segments.view(np.bool_))
        segments &= mask

        places = chosen(drawn, candidates, self._counts[candidates]).astype(np.int32)
        unused = places >= _NONE
        places += 1 + (places >= a_length[:, None].astype(np.int32))  # skip [CLS], and in B also A's [SEP]
        places[unused] = 0
        at = places + (np.arange(len(ids)) * self.sequence_length)[:, None]
        before = ids.reshape(-1)[at]
        what = drawn.astype(np.uint32)
        what[unused] = _KEEP
        after = before + (np.int32(self.mask) - before) * (what < _KEEP)
        other = np.flatnonzero(what >= _REPLACE)
        span = np.uint64((1 << 32) - _REPLACE)
        share = (what.reshape(-1)[other] - np.uint32(_REPLACE)).astype(np.uint64)
        after.reshape(-1)[other] = self._words[share * np.uint64(len(self._words)) // span]
        ids.reshape(-1)[at] = after
        made["masked_lm_positions"][:] = places
        made["masked_lm_ids"][:] = before
        made["masked_lm_ids"][unused] = 0


def chosen(drawn: Words, candidates: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Choose for each row `count` of its `candidates` places; every choice is equally likely.

    Returns u2[N,P] from `drawn` u8[N,P]: the chosen places in ascending order, then values of at least _NONE. Each word
    gives a place's number among the places that are left. These numbers are a Lehmer code. We decode it from its last
    digit: a place moves up by one for every earlier choice at or below it.
    """
    step = np.arange(drawn.shape[1])
    left = np.maximum(candidates[:, None] - step, 1)
    numbers = np.where(step < count[:, None], below(drawn, left), _NONE)
    places = np.ascontiguousarray(numbers.T, dtype=np.uint16)
    for k in range(len(places) - 2, -1, -1):
        later = places[k + 1 :]
        later += later >= places[k]
    places = np.ascontiguousarray(places.T)
    places.sort(axis=1)
    return places

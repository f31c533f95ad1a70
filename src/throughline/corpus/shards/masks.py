"""Masks that are drawn while a shard is read, anew for each epoch, by the rules of the finished ones (instances.py).

A row's random words are a place in a stream that seed, shard, length and epoch name, so its masks are the same for any
batch size, number of ranks, framework and block of rows, and after a restart. Each masked token takes one word of 64
bits: the upper half chooses the place, the lower half what happens there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.shards import layout
from throughline.randomness import Stream, Words, below

Arrays = dict[str, Any]
_BLOCK = 2048  # rows at a time, within a processor's cache
_NONE = 1 << 15  # no place: greater than any
_KEEP, _REPLACE = round(0.8 * 2**32), round(0.9 * 2**32)


def masked_of(candidates: NDArray[np.int64], predictions: int, probability: float) -> NDArray[np.int64]:
    """How many of so many tokens are masked."""
    count = np.rint((candidates + 3) * probability).astype(np.int64)
    return np.asarray(np.minimum(np.clip(count, 1, predictions), candidates))


def ranges(ids: NDArray[np.integer]) -> list[list[int]]:
    """Ascending ids as [first, last + 1] of each run, which is short for the words of a vocabulary."""
    borders = np.flatnonzero(np.diff(ids) != 1) + 1
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(ids, borders) if len(run)]


@dataclass(frozen=True)
class Masking:
    """How the rows of one length are masked. `mask`: [MASK]'s id; `words`: `ranges` of the ids of random words."""

    sequence: int
    predictions: int
    probability: float
    seed: int
    mask: int
    words: Iterable[Iterable[int]]
    _words: NDArray[np.int32] = field(init=False, repr=False, compare=False)
    _masked_of: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        words = np.concatenate([np.arange(*run, dtype=np.int32) for run in self.words])
        counts = masked_of(np.arange(self.sequence - 2), self.predictions, self.probability)
        object.__setattr__(self, "_words", words)
        object.__setattr__(self, "_masked_of", counts)

    @classmethod
    def of_manifest(cls, content: Mapping[str, Any]) -> Masking:
        """As a length's manifest says."""
        how = {name: content["parameters"][name] for name in ("sequence", "predictions", "probability", "seed")}
        return cls(**how, mask=content["vocabulary"]["mask"], words=content["vocabulary"]["words"])

    def stream(self, shard: str, epoch: int) -> Stream:
        """The random words of a shard's rows in an epoch, in the rows' order; `shard`: its name without .hdf5."""
        return Stream(self.seed, "reading", shard, self.sequence, epoch)

    def masked(self, rows: Mapping[str, Any], stream: Stream) -> Arrays:
        """The six arrays of NVIDIA's layout, from the next rows as an unmasked shard holds them (layout.py)."""
        count = len(rows["input_ids"])
        shapes = layout.shapes(count, self.sequence, self.predictions)
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
        column = np.arange(self.sequence, dtype=np.uint16)
        ids[:] = block["input_ids"]
        np.less(column, (candidates + 3).astype(np.uint16)[:, None], out=mask.view(np.bool_))
        np.greater_equal(column, (a_length + 2).astype(np.uint16)[:, None], out=segments.view(np.bool_))
        segments &= mask

        places = chosen(drawn, candidates, self._masked_of[candidates]).astype(np.int32)
        unused = places >= _NONE
        places += 1 + (places >= a_length[:, None].astype(np.int32))  # behind [CLS], and behind A's [SEP]
        places[unused] = 0
        at = places + (np.arange(len(ids)) * self.sequence)[:, None]
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
    """For each row `count` of its `candidates` places, ascending, every choice as likely; _NONE and more behind them.

    u2[N,P] from `drawn` u8[N,P]. The words give each place's number among those that are left, which is a Lehmer code:
    decoded from its last digit, a place moves up by one for every earlier choice at or below it.
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

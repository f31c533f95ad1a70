"""Second segments, looked up in the text that a shard was made from: a true continuation has to follow in the same
document, a random one must not come from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel
from throughline.corpus.shards import layout
from throughline.corpus.shards.promises import restored
from throughline.corpus.text.tokens import Documents

_LOOK_UP_BYTES = 1 << 30  # search at most so much text for second segments
_LOOKED_UP_AT_ONCE = 1024
_TOO_COMMON = 1000
Index = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


class Places(NamedTuple):
    """Where a segment stands: its first token in the text, that token's sentence, and its last token's."""

    token: Index
    first: Index
    last: Index


class Text:
    """The documents that examples were made from, to be searched."""

    def __init__(self, documents: Documents) -> None:
        self.tokens, self.sentences = np.ascontiguousarray(documents.tokens), documents.sentences
        self.of_sentence = np.repeat(np.arange(len(documents)), np.diff(documents.documents))
        self._waiting: list[tuple[dict[str, NDArray[Any]], Index]] = []

    @cached_property
    def haystack(self) -> bytes:
        return self.tokens.tobytes()

    def look_up(self, path: Path, block: Arrays, rows: int, first: int) -> dict[str, int]:
        """Look up all of a shard's `rows` rows, or evenly spaced ones where the text is long, that stand in the block,
        whose rows are called `first` and so on. Some at a time, for the text is searched once for all of them; the last
        row's block is the last.
        """
        many = max(64, _LOOK_UP_BYTES // (2 * self.tokens.nbytes + 1))
        chosen = np.unique(np.linspace(0, rows - 1, min(many, rows)).astype(np.int64))
        mine = chosen[(chosen >= first) & (chosen < first + len(block["input_ids"]))] - first
        self._waiting.append(({name: array[mine] for name, array in block.items()}, mine + first))
        last = first + len(block["input_ids"]) == rows
        if not last and sum(len(numbers) for _, numbers in self._waiting) < _LOOKED_UP_AT_ONCE:
            return {}
        some = {name: np.concatenate([arrays[name] for arrays, _ in self._waiting]) for name in block}
        numbers = np.concatenate([numbers for _, numbers in self._waiting])
        self._waiting = []
        return {"pairs_looked_up": self.check(path, some, numbers)}

    def places(self, needle: NDArray[np.int32]) -> Places | None:
        """Where these tokens stand in a document; None where that is in too many places to prove anything."""
        haystack, width = self.haystack, self.tokens.itemsize
        tokens = needle.astype(self.tokens.dtype).tobytes()
        starts: list[int] = []
        at = haystack.find(tokens)
        while at >= 0:
            if at % width == 0:
                starts.append(at // width)
            if len(starts) > _TOO_COMMON:
                return None
            at = haystack.find(tokens, at + 1)
        token = np.array(starts, dtype=np.int64)
        ends = token, token + len(needle) - 1
        first, last = (np.searchsorted(self.sentences, end, side="right") - 1 for end in ends)
        inside = self.of_sentence[first] == self.of_sentence[last]  # what runs over a document's end is a coincidence
        return Places(token[inside], first[inside], last[inside])

    def check(self, path: Path, arrays: Arrays, numbers: Index) -> int:
        """Look examples up, whose rows are called `numbers`; returns how many were judged.

        A segment so short that it stands in a thousand places proves nothing. UserError where a segment is in no
        document, where a second segment labelled as continuation does not follow the first within reach, and where one
        labelled as random can only come from the same document.
        """
        length = arrays["input_mask"].sum(axis=1, dtype=np.int64)
        b_length = arrays["segment_ids"].sum(axis=1, dtype=np.int64) - 1
        a_length, originals, labels = length - b_length - 3, restored(arrays), arrays["next_sentence_labels"]
        judged = self._compiled(originals, a_length, b_length, labels)
        if judged is not None:
            return judged
        judged = 0
        for row, (end_of_a, end_of_b) in enumerate(zip((a_length + 1).tolist(), (length - 1).tolist(), strict=True)):
            a, b = self.places(originals[row, 1:end_of_a]), self.places(originals[row, end_of_a + 1 : end_of_b])
            if a is None or b is None:
                continue
            if fault := self._fault_of(a, end_of_a - 1, b, bool(labels[row]), originals.shape[1] - 3):
                raise layout.fault(path, fault, int(numbers[row]))
            judged += 1
        return judged

    def _fault_of(self, a: Places, a_length: int, b: Places, random_next: bool, limit: int) -> str | None:
        """What is wrong with a pair of at most `limit` tokens by the places of its segments; None where nothing is."""
        if not len(a.token) or not len(b.token):
            return "a segment that is in no document"
        homes_of_a, homes_of_b = self.of_sentence[a.first], self.of_sentence[b.first]
        if random_next:
            homes = {*homes_of_a.tolist(), *homes_of_b.tolist()}
            return "a second segment labelled as random that is from the same document" if len(homes) == 1 else None
        after = b.token >= (a.token + a_length)[:, None]
        within = self.sentences[b.last] - a.token[:, None] < limit
        adjacent = b.first == (a.last + 1)[:, None]
        follows = ((homes_of_a[:, None] == homes_of_b) & after & (within | adjacent)).any()
        return None if follows else "a second segment labelled as continuation that does not follow the first"

    def _compiled(
        self, originals: NDArray[np.int32], a_length: Index, b_length: Index, labels: NDArray[Any]
    ) -> int | None:
        """How many rows are judged, by kernel.c; None where one is wrong, or without it: then `check` says which."""
        compiled = kernel.load()
        if compiled is None:
            return None
        judged = compiled.looked_up(
            *(*originals.shape, np.ascontiguousarray(originals), a_length, b_length, labels.astype(np.uint8)),
            *(self.tokens.ctypes.data, self.tokens.itemsize, len(self.tokens)),
            *(self.sentences, len(self.sentences), self.of_sentence, _TOO_COMMON),
        )
        if judged == -2:
            raise MemoryError("no memory to look segments up")
        return int(judged) if judged >= 0 else None

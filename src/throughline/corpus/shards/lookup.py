"""Second segments, looked up in the text that a shard was made from: a true continuation has to follow in the same
document, a random one must not come from it."""

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

_AT_LEAST, _AT_MOST = 1024, layout.ROWS_READ
_SHARE = 0.05  # of what a shard's own making costs
_MADE_NS, _MADE_TOKEN_NS = 700, 21  # a row, and each of its tokens (docs/method-corpus.md: how this was measured)
_SEARCHED_NS, _LOOKED_UP_NS = 6, 20_000  # a token of the text, once for all rows, and a row
_TOO_COMMON = 1000
Index = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


class Places(NamedTuple):
    """Where a segment stands: its first token in the text, that token's sentence, and its last token's."""

    token: Index
    first: Index
    last: Index


def chosen(rows: int, sequence: int, tokens: int) -> Index:
    """The rows of a shard to be looked up in a text of so many tokens: evenly spaced, and all where there are few.

    The text is searched once. They are as many as cost at most a twentieth of the shard's making.
    """
    made = rows * (_MADE_NS + _MADE_TOKEN_NS * sequence)
    most = _AT_MOST if kernel.load() is not None else _AT_LEAST  # without it, every row is a search of its own
    many = min(max(_AT_LEAST, int(_SHARE * made - _SEARCHED_NS * tokens) // _LOOKED_UP_NS), most, rows)
    return np.arange(many) * rows // max(many, 1)


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
        """Take the `chosen` of a shard's `rows` rows from the block, whose rows are called `first` and so on. With the
        last row's block, look up all that were taken.
        """
        count, sequence = block["input_ids"].shape
        numbers = chosen(rows, sequence, len(self.tokens))
        begin, end = np.searchsorted(numbers, (first, first + count))
        mine = numbers[begin:end] - first
        self._waiting.append(({name: array[mine] for name, array in block.items()}, mine + first))
        if first + count < rows:
            return {}
        some = {name: np.concatenate([arrays[name] for arrays, _ in self._waiting]) for name in block}
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
        if judged >= 0:
            return judged
        wrong, judged = -3 - judged, 0
        for row in range(max(wrong, 0), len(labels)):
            end_of_a, end_of_b = int(a_length[row]) + 1, int(length[row]) - 1
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

    def _compiled(self, originals: NDArray[np.int32], a_length: Index, b_length: Index, labels: NDArray[Any]) -> int:
        """How many rows are judged, by kernel.c; -1 without it, -3 - row where `check` has to say what is wrong."""
        compiled = kernel.load()
        if compiled is None:
            return -1
        judged = compiled.looked_up(
            *(*originals.shape, np.ascontiguousarray(originals), a_length, b_length, labels.astype(np.uint8)),
            *(self.tokens.ctypes.data, self.tokens.itemsize, len(self.tokens)),
            *(self.sentences, len(self.sentences), self.of_sentence, _TOO_COMMON),
        )
        if judged == -2:
            raise MemoryError("no memory to look segments up")
        return int(judged)

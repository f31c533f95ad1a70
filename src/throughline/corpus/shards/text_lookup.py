"""Look up second segments in the text that a shard was made from.

A true continuation must follow the first segment in the same document. A random one must not come from that document.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel
from throughline.corpus.shards import layout
from throughline.corpus.shards.row_checks import restored
from throughline.corpus.text.tokens import Documents
from throughline.datasets.shards import fault

_AT_LEAST, _AT_MOST = 1024, layout.ROWS_READ
_SHARE = 0.05  # the lookup may take this share of the time in which the shard was made
_MADE_NS, _MADE_TOKEN_NS = 700, 21  # to make a row, plus each of its tokens (measured: docs/method-corpus.md)
_SEARCHED_NS, _LOOKED_UP_NS = 6, 20_000  # to search one token of the text, once for all rows; to look up one row
_TOO_COMMON = 1000
Index = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


class Places(NamedTuple):
    """The places of a segment in the text: its first token, the sentence of that token, and that of its last token."""

    token: Index
    first: Index
    last: Index


def chosen(rows: int, sequence_length: int, tokens: int) -> Index:
    """Return the rows of a shard to look up in a text of `tokens` tokens, evenly spaced; all rows if there are few.

    The text is searched once for all rows. There are at least 1024 rows, and more only as long as the lookup takes at
    most a twentieth of the time in which the shard was made.
    """
    made = rows * (_MADE_NS + _MADE_TOKEN_NS * sequence_length)
    most = _AT_MOST if kernel.load() is not None else _AT_LEAST  # without kernel.c, each row searches the text again
    many = min(max(_AT_LEAST, int(_SHARE * made - _SEARCHED_NS * tokens) // _LOOKED_UP_NS), most, rows)
    return np.arange(many) * rows // max(many, 1)


class Text:
    """The documents that the examples were made from, in a form that can be searched."""

    def __init__(self, documents: Documents) -> None:
        self.tokens, self.sentences = np.ascontiguousarray(documents.tokens), documents.sentences
        self.of_sentence = np.repeat(np.arange(len(documents)), np.diff(documents.documents))
        self._waiting: list[dict[str, NDArray[Any]]] = []

    @cached_property
    def haystack(self) -> bytes:
        return self.tokens.tobytes()

    def look_up(self, path: Path, block: Arrays, rows: int, first: int) -> dict[str, int]:
        """Collect the `chosen` rows in this block of a shard of `rows` rows. After the last block, look them all up.

        `first`: the number of the block's first row. Returns the count of rows that could be judged, once it is known.
        """
        count, sequence_length = block["input_ids"].shape
        numbers = chosen(rows, sequence_length, len(self.tokens))
        begin, end = np.searchsorted(numbers, (first, first + count))
        rows_here = numbers[begin:end] - first
        self._waiting.append({name: array[rows_here] for name, array in block.items()})
        if first + count < rows:
            return {}
        arrays = {name: np.concatenate([chosen_rows[name] for chosen_rows in self._waiting]) for name in block}
        self._waiting = []
        return {"pairs_looked_up": self.check(path, arrays, numbers)}

    def places(self, needle: NDArray[np.int32]) -> Places | None:
        """Return the places of these tokens within documents; None if there are too many places to prove anything."""
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
        inside = self.of_sentence[first] == self.of_sentence[last]  # a match across a document's end is a coincidence
        return Places(token[inside], first[inside], last[inside])

    def check(self, path: Path, arrays: Arrays, numbers: Index) -> int:
        """Look up the examples in these rows and return how many could be judged. `numbers`: the rows' numbers.

        A segment with more than a thousand places proves nothing. UserError if a segment is in no document, if a second
        segment labelled as continuation does not follow the first within reach, or if one labelled as random can only
        come from the same document.
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
            if what := self._fault_of(a, end_of_a - 1, b, bool(labels[row]), originals.shape[1] - 3):
                raise fault(path, f"has {what}", f"first in row {numbers[row]} (counted from 0)")
            judged += 1
        return judged

    def _fault_of(self, a: Places, a_length: int, b: Places, random_next: bool, limit: int) -> str | None:
        """Return what is wrong with a pair of at most `limit` tokens, from the places of its segments, or None."""
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
        """Return how many rows kernel.c judged; -1 if it is not there; -3 - row if `check` must look at `row`."""
        compiled = kernel.load()
        if compiled is None:
            return -1
        judged = compiled.looked_up(
            *originals.shape, np.ascontiguousarray(originals), a_length, b_length, labels.astype(np.uint8),
            self.tokens.ctypes.data, self.tokens.itemsize, len(self.tokens),
            self.sentences, len(self.sentences), self.of_sentence, _TOO_COMMON,
        )  # fmt: skip
        if judged == -2:
            raise MemoryError("no memory to look segments up")
        return int(judged)

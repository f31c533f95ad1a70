"""Documents on a pile: put there in one order, taken out in another, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from throughline.corpus.text.tokens import Documents

Index = NDArray[np.int64]


class Pile:
    """Documents by number, in the order in which they were added; 40 bytes for each stay in memory.

    What they consist of goes into a temporary file in `folder` as soon as it takes more than `memory_bytes`. The file
    has no name, and goes with the process.
    """

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        import tempfile

        self._memory_bytes = memory_bytes
        self._file = tempfile.SpooledTemporaryFile(max(memory_bytes, 1), dir=folder)  # noqa: SIM115
        self._used = 0
        self._kind = np.dtype(np.uint16)
        self._added: list[tuple[Index, ...]] = [(np.zeros(0, np.int64),) * 5]

    def __enter__(self) -> Pile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, documents: Documents) -> None:
        """Put documents on the pile; all of them hold tokens of the same type."""
        bounds = documents.sentences[documents.documents]  # where each document begins in its tokens
        lengths = np.diff(documents.sentences).astype(np.int32)
        self._kind = documents.tokens.dtype
        at_tokens = self._used + bounds[:-1] * self._kind.itemsize
        at_lengths = self._used + documents.tokens.nbytes + documents.documents[:-1] * lengths.itemsize
        self._added.append((documents.ids, np.diff(documents.documents), np.diff(bounds), at_tokens, at_lengths))
        for array in (documents.tokens, lengths):
            self._file.write(np.ascontiguousarray(array).data if len(array) else b"")
            self._used += array.nbytes

    def facts(self) -> tuple[Index, Index, Index, Index, Index]:
        """Of each document: page id, sentences, tokens, where its tokens and its sentences' lengths stand."""
        ids, sentences, tokens, at_tokens, at_lengths = map(np.concatenate, zip(*self._added, strict=True))
        self._added = [(ids, sentences, tokens, at_tokens, at_lengths)]
        return ids, sentences, tokens, at_tokens, at_lengths

    def tokens(self, order: Index) -> Iterator[NDArray[Any]]:
        """The tokens of the documents numbered `order`, in that order, some at a time."""
        _, _, counts, at, _ = self.facts()
        return self._runs(at[order], counts[order], self._kind)

    def lengths(self, order: Index) -> Iterator[NDArray[Any]]:
        """How many tokens each of their sentences has, likewise."""
        _, counts, _, _, at = self.facts()
        return self._runs(at[order], counts[order], np.dtype(np.int32))

    def _runs(self, starts: Index, counts: Index, kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        after = np.cumsum(counts)
        most, first = max(self._memory_bytes // kind.itemsize, 1), 0
        while first < len(counts):
            begun = int(after[first - 1]) if first else 0
            last = max(int(np.searchsorted(after, begun + most, side="right")), first + 1)
            data = np.empty(int(after[last - 1]) - begun, kind)
            into, at = data.data.cast("B"), 0
            for start, count in zip(starts[first:last].tolist(), counts[first:last].tolist(), strict=True):
                self._file.seek(start)
                at += self._file.readinto(into[at : at + count * kind.itemsize])
            yield data
            first = last

"""Uncased BERT tokenization (basic tokenizer, then WordPiece) that tokenizes each distinct piece of text once.

BERT's tokenization never looks across a space: the ids of a text are the ids of its space-separated chunks, one after
the other. Natural text repeats its chunks, so a dictionary answers for nearly all of them, and the `tokenizers` package
sees only the new ones, in one batch. (Split at U+0020 alone: other blanks are BERT's own business, some of
them it drops and joins what stands around them.)

Text is never read as a special token: `[SEP]` in an article becomes `[`, `sep`, `]`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.vocabulary import Vocabulary

_REMEMBER_AT_MOST = 2_000_000  # chunks; some 500 MB. Forgetting costs time, and changes nothing else


class WordPiece:
    """Turns texts into token ids. Holds its dictionary between calls, so keep one for a whole part."""

    def __init__(self, vocabulary: Vocabulary, *, remember: int = _REMEMBER_AT_MOST) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one core per job; Snakemake deals out the cores
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        entries = {entry: i for i, entry in enumerate(vocabulary.entries)}
        self._tokenizer = Tokenizer(models.WordPiece(entries, unk_token="[UNK]", max_input_chars_per_word=100))
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._remember = remember
        self._forget()

    def _forget(self) -> None:
        self._known: dict[str, int] = {}  # chunk -> its number
        self._lengths = _Growing(np.int64)  # tokens of each chunk
        self._starts = _Growing(np.int64)  # where they begin in the pool
        self._pool = _Growing(np.int32)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Token ids of all texts in one array i4[T], and the number of tokens of each text i8[len(texts)]."""
        if len(self._known) > self._remember:
            self._forget()
        chunks: list[str] = []
        ends = np.zeros(len(texts) + 1, dtype=np.int64)
        for i, text in enumerate(texts):
            chunks.extend(text.split(" "))
            ends[i + 1] = len(chunks)
        self._learn(chunks)
        numbers = np.fromiter(map(self._known.__getitem__, chunks), dtype=np.int64, count=len(chunks))
        lengths = self._lengths.view()[numbers]
        after = np.concatenate([[0], np.cumsum(lengths)])
        shift = np.repeat(self._starts.view()[numbers] - after[:-1], lengths)
        return self._pool.view()[shift + np.arange(after[-1])], np.diff(after[ends])

    def _learn(self, chunks: list[str]) -> None:
        new = [chunk for chunk in dict.fromkeys(chunks) if chunk not in self._known]
        if not new:
            return
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(new, add_special_tokens=False)]
        for number, chunk in enumerate(new, start=len(self._known)):
            self._known[chunk] = number
        lengths = np.array([len(piece) for piece in ids], dtype=np.int64)
        self._starts.extend(len(self._pool) + np.cumsum(lengths) - lengths)
        self._lengths.extend(lengths)
        self._pool.extend(np.array([i for piece in ids for i in piece], dtype=np.int32))


class _Growing:
    """A one-dimensional array that can be added to at its end."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._array: NDArray[Any] = np.zeros(1024, dtype=kind)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def view(self) -> NDArray[Any]:
        return self._array[: self._used]

    def extend(self, more: NDArray[Any]) -> None:
        used = self._used + len(more)
        if used > len(self._array):
            self._array = np.resize(self._array, max(used, 2 * len(self._array)))
        self._array[self._used : used] = more
        self._used = used

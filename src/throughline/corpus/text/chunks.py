"""Tokenize text chunk by chunk and remember each chunk's ids, so that each distinct chunk is tokenized once.

This works for every tokenization that treats the chunks of a text independently. kernel.c tokenizes new chunks of
ASCII. The `tokenizers` package tokenizes all other chunks in one batch, and every chunk where there is no compiler.
"""

from __future__ import annotations

import ctypes
import functools
import os
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel
from throughline.corpus.text.sentences import Sentences

REMEMBERED_BYTES = 256 << 20
"""Memory for chunks and their ids. A full memory is emptied. That costs time; the tokens stay the same."""
_BYTES_OF_A_CHUNK = 250  # an estimate of what one chunk takes in `_Dictionary`


@dataclass(frozen=True)
class Tokenization:
    """How a text becomes ids."""

    number: int  # kernel.c's number for this tokenization
    entries: Sequence[bytes]  # the vocabulary, in the order of the ids
    unknown: int  # the id of a word without an entry
    split: Callable[[str], list[str]]  # split a text into chunks; the ids of a chunk depend on no other chunk
    tokenizer: Callable[[], Any]  # make a tokenizer of the `tokenizers` package


class Chunks:
    """Turns texts into token ids. It remembers chunks between calls, so use one instance for a whole part."""

    def __init__(self, how: Tokenization, remember_bytes: int = REMEMBERED_BYTES) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one core per job: Snakemake assigns the cores
        compiled = kernel.load()
        self._memory = _Dictionary(how) if compiled is None else _Compiled(how, compiled)
        self._remember_bytes = remember_bytes

    def encode(self, texts: Sentences) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the token ids of all texts in one array i4[T], and the number of tokens of each text, i8[texts]."""
        if self._memory.bytes() > self._remember_bytes:
            self._memory.forget()
        return self._memory.encode(texts)


class _Compiled:
    """The memory of chunks in kernel.c."""

    def __init__(self, how: Tokenization, compiled: Any) -> None:
        self._how, self._compiled = how, compiled
        self._state: int | None = None
        self.forget()

    def __del__(self) -> None:
        self._compiled.tokenizer_free(self._state)

    @functools.cached_property
    def _others(self) -> Any:
        return self._how.tokenizer()

    def forget(self) -> None:
        self._compiled.tokenizer_free(self._state)
        entries = self._how.entries
        ends = np.cumsum([len(entry) + 1 for entry in entries], dtype=np.int64) - 1
        lines = b"\n".join([*entries, b""])
        state = self._compiled.tokenizer_new(lines, ends, len(ends), self._how.unknown, self._how.number)
        self._state, self._taught = _allocated(state), 0

    def bytes(self) -> int:
        return int(self._compiled.tokenizer_bytes(self._state))

    def encode(self, texts: Sentences) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        compiled, count = self._compiled, len(texts.begins)
        most = int((texts.ends - texts.begins + 1).sum())  # chunks; memory beyond those in use is never touched
        numbers, after, lengths = np.empty(most, np.int32), np.empty(count, np.int64), np.empty(count, np.int64)
        spans = texts.text, texts.begins, texts.ends
        chunks = compiled.tokenizer_scan(self._state, *spans, count, numbers, after)
        _allocated(chunks >= 0)
        self._learn()
        ids = np.empty(compiled.tokenizer_lengths(self._state, numbers, after, count, lengths), np.int32)
        compiled.tokenizer_ids(self._state, numbers, chunks, ids)
        return ids, lengths

    def _learn(self) -> None:
        """Tell the kernel the ids of the new chunks that it cannot tokenize itself."""
        text, length = ctypes.c_void_p(), ctypes.c_int64()
        place, chunks = (ctypes.byref(text), ctypes.byref(length)), {}
        while (number := self._compiled.tokenizer_unknown(self._state, self._taught, *place)) >= 0:
            chunks[number] = ctypes.string_at(text.value or 0, length.value).decode()
            self._taught = number + 1
        if chunks:
            encodings = self._others.encode_batch_fast([*chunks.values()], add_special_tokens=False)
            for number, encoding in zip(chunks, encodings, strict=True):
                ids = np.array(encoding.ids, np.int32)
                _allocated(self._compiled.tokenizer_teach(self._state, number, ids, len(ids)))


def _allocated(state: Any) -> Any:
    if not state:
        raise MemoryError("no memory for the tokenizer")
    return state


class _Dictionary:
    """The same memory in Python, for machines without a compiler."""

    def __init__(self, how: Tokenization) -> None:
        self._split, self._tokenizer = how.split, how.tokenizer()
        self.forget()

    def forget(self) -> None:
        self._known: dict[str, int] = {}  # map each chunk to its number
        self._lengths, self._starts = array("q"), array("q")  # of each chunk: number of tokens, place in the pool
        self._pool = array("i")

    def bytes(self) -> int:
        return len(self._known) * _BYTES_OF_A_CHUNK

    def encode(self, texts: Sentences) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        text, spans = texts.text.tobytes(), zip(texts.begins.tolist(), texts.ends.tolist(), strict=True)
        chunks: list[str] = []
        ends = np.zeros(len(texts.begins) + 1, dtype=np.int64)
        for i, (begin, end) in enumerate(spans):
            chunks.extend(self._split(text[begin:end].decode()))
            ends[i + 1] = len(chunks)
        self._learn(chunks)
        numbers = np.fromiter(map(self._known.__getitem__, chunks), dtype=np.int64, count=len(chunks))
        lengths = np.frombuffer(self._lengths, np.int64)[numbers]
        after = np.concatenate([[0], np.cumsum(lengths)])
        shift = np.repeat(np.frombuffer(self._starts, np.int64)[numbers] - after[:-1], lengths)
        return np.frombuffer(self._pool, np.int32)[shift + np.arange(after[-1])], np.diff(after[ends])

    def _learn(self, chunks: list[str]) -> None:
        new = [chunk for chunk in dict.fromkeys(chunks) if chunk not in self._known]
        for chunk, encoding in zip(new, self._tokenizer.encode_batch_fast(new, add_special_tokens=False), strict=True):
            ids = encoding.ids
            self._known[chunk] = len(self._known)
            self._starts.append(len(self._pool))
            self._lengths.append(len(ids))
            self._pool.extend(ids)

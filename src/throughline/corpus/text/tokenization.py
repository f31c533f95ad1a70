"""Turn articles into sentences, and sentences into token ids: those of BERT's WordPiece or of the user's own tokenizer.

blingfire splits each paragraph for itself, so that each heading is its own sentence. Text never becomes a special
token: `[SEP]` in an article becomes `[`, `sep`, `]`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel
from throughline.corpus.text.vocabulary import Vocabulary, read_tokenizer
from throughline.files import UserError

CASED, LOWER_CASE, BYTE_PAIRS = range(3)  # kernel.c's numbers
Encoded = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The token ids of all sentences in one array i4[T], and the number of tokens of each sentence, i8[sentences]."""


@dataclass(frozen=True)
class Sentences:
    """Sentences of articles: sentence i is `text[begins[i]:ends[i]]`, UTF-8 in u1[...].

    `counts`, i8[articles], is the number of sentences of each article.
    """

    text: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Sentences:
        """Return texts as the sentences of one article. Lone surrogates are removed."""
        encoded = [text.encode("utf-8", "ignore") for text in texts]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends[:-1], ends[1:], np.array([len(texts)]))


def split_sentences(articles: Sequence[str], *, lines: bool = False) -> Sentences:
    """Return the sentences of all articles: as blingfire splits each paragraph, or with `lines` every line.

    Some may be blank. Lone surrogates are removed. So is NUL, which would end blingfire's string and which BERT drops.
    """
    encoded = [article.replace("\0", "").encode("utf-8", "ignore") for article in articles]
    joined, of_article = b"".join(encoded), np.cumsum([*map(len, encoded)], dtype=np.int64)
    out = np.empty(2 * len(joined) + 1, np.uint8)
    begins, ends = np.empty((2, len(joined) + 1), np.int64)  # memory beyond `count` is never touched
    counts = np.zeros(len(articles), np.int64)
    splitter = None
    if not lines:
        import blingfire

        splitter = ctypes.cast(blingfire.blingfire.TextToSentences, ctypes.c_void_p)
    spans = out, len(out), begins, ends, len(begins), counts
    count = kernel.load().split(splitter, joined, of_article, len(articles), *spans)
    if count < 0:
        raise RuntimeError("sentences took more room than their text")
    return Sentences(out, begins[:count], ends[:count], counts)


class ChunkTokenizer:
    """Tokenizes texts chunk by chunk, and remembers each chunk's ids, so that each distinct chunk is tokenized once.

    This works for every tokenization in which the ids of a chunk depend on no other chunk. kernel.c tokenizes new
    chunks of ASCII, and the `tokenizers` package all others, in one batch. Use one instance for a whole part.
    """

    def __init__(
        self,
        kind: int,
        entries: Sequence[bytes],
        unknown: int,
        tokenizer: Callable[[], Any],
        remember_bytes: int = sys.maxsize,
    ) -> None:
        """
        kind: CASED, LOWER_CASE or BYTE_PAIRS.
        entries: the vocabulary, in the order of the ids. unknown: the id of a word without an entry.
        tokenizer: makes the tokenizer of the package.
        remember_bytes: when chunks and their ids take more than this, all are forgotten. The ids stay the same.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one core per job: Snakemake assigns the cores
        ends = np.cumsum([len(entry) + 1 for entry in entries], dtype=np.int64) - 1
        self._vocabulary = b"\n".join([*entries, b""]), ends, len(ends), unknown, kind
        self._make_tokenizer, self._remember_bytes = tokenizer, remember_bytes
        self._kernel, self._state = kernel.load(), None
        self._forget()

    def __del__(self) -> None:
        self._kernel.tokenizer_free(self._state)

    def _forget(self) -> None:
        state, self._state, self._taught = self._state, None, 0
        self._kernel.tokenizer_free(state)
        self._state = _allocated(self._kernel.tokenizer_new(*self._vocabulary))

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return self._make_tokenizer()

    def encode(self, texts: Sentences) -> Encoded:
        """Return the token ids of all texts, and the number of tokens of each text."""
        if self._kernel.tokenizer_bytes(self._state) > self._remember_bytes:
            self._forget()
        count = len(texts.begins)
        most = int((texts.ends - texts.begins + 1).sum())  # chunks; memory beyond those in use is never touched
        numbers, after, lengths = np.empty(most, np.int32), np.empty(count, np.int64), np.empty(count, np.int64)
        spans = texts.text, texts.begins, texts.ends
        chunks = self._kernel.tokenizer_scan(self._state, *spans, count, numbers, after)
        _allocated(chunks >= 0)
        self._teach()
        ids = np.empty(self._kernel.tokenizer_lengths(self._state, numbers, after, count, lengths), np.int32)
        self._kernel.tokenizer_ids(self._state, numbers, chunks, ids)
        return ids, lengths

    def _teach(self) -> None:
        """Tell the kernel the ids of the new chunks that it cannot tokenize itself."""
        text, length = ctypes.c_void_p(), ctypes.c_int64()
        place, chunks = (ctypes.byref(text), ctypes.byref(length)), {}
        while (number := self._kernel.tokenizer_unknown(self._state, self._taught, *place)) >= 0:
            chunks[number] = ctypes.string_at(text.value or 0, length.value).decode()
            self._taught = number + 1
        if chunks:
            encodings = self._tokenizer.encode_batch_fast([*chunks.values()], add_special_tokens=False)
            for number, encoding in zip(chunks, encodings, strict=True):
                ids = np.array(encoding.ids, np.int32)
                _allocated(self._kernel.tokenizer_teach(self._state, number, ids, len(ids)))


def _allocated(state: Any) -> Any:
    if not state:
        raise MemoryError("no memory for the tokenizer")
    return state


class WordPiece(ChunkTokenizer):
    """BERT's tokenization: the basic tokenizer, then WordPiece. It treats the text on each side of a space for itself.

    With `lower_case`, text is lower-cased and loses its accents. (Chunks end at U+0020 alone: BERT drops some other
    blank characters and joins the text around them.)
    """

    def __init__(self, vocabulary: Vocabulary, *, lower_case: bool = True, remember_bytes: int = sys.maxsize) -> None:
        def tokenizer() -> Any:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

            ids = {entry: i for i, entry in enumerate(vocabulary.entries)}
            made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
            made.normalizer = normalizers.BertNormalizer(lowercase=lower_case)  # also decides whether accents stay
            made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            return made

        entries = [entry.encode() for entry in vocabulary.entries]
        super().__init__(LOWER_CASE if lower_case else CASED, entries, vocabulary.unk, tokenizer, remember_bytes)


class OwnTokenizer:
    """The user's own tokenizer (`corpus.tokenizer`), by Hugging Face's tokenizers. It adds no special tokens."""

    def __init__(self, path: Path) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer

        self.facts = read_tokenizer(path)
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
            size = self._tokenizer.get_vocab_size(with_added_tokens=True)
            if size != len(self.facts):
                raise ValueError(f"it has {size} entries and lists {len(self.facts)}: two have the same text")
        except Exception as error:  # the library raises plain exceptions
            raise UserError(
                f"{path} is no tokenizer that can be used",
                why=str(error),
                next_step="write the file again with tokenizers' Tokenizer.save, or correct corpus.tokenizer",
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def texts(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text. Lone surrogates are removed."""
        clean = [text.encode("utf-8", "ignore").decode() for text in texts]
        encodings = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode(self, sentences: Sentences) -> Encoded:
        """Return the token ids of all sentences, and the number of tokens of each sentence."""
        data = sentences.text.tobytes()
        spans = zip(sentences.begins.tolist(), sentences.ends.tolist(), strict=True)
        ids = self.texts([data[begin:end].decode("utf-8", "ignore") for begin, end in spans])
        return np.concatenate([np.zeros(0, np.int32), *ids]), np.array([*map(len, ids)], np.int64)

    def decoded(self, ids: NDArray[Any]) -> str:
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False))

"""Split the texts of articles into sentences, paragraph by paragraph, so that each heading is its own sentence."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel


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
    def of(cls, articles: Sequence[Sequence[str]]) -> Sentences:
        """Return the sentences of articles that are already split. Lone surrogates are removed."""
        encoded = [sentence.encode("utf-8", "ignore") for sentence in chain.from_iterable(articles)]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        counts = np.array([len(sentences) for sentences in articles], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends[:-1].copy(), ends[1:].copy(), counts)


def split_all(texts: Sequence[str], *, lines: bool = False) -> Sentences:
    """Return the sentences of all texts, as `split` finds them, or with `lines` every line. Some may be blank."""
    compiled = kernel.load()
    if compiled is None:
        return Sentences.of([_cleaned(text).decode().split("\n") if lines else split(text) for text in texts])
    encoded = [_cleaned(text) for text in texts]
    joined, of_article = b"".join(encoded), np.cumsum([*map(len, encoded)], dtype=np.int64)
    out = np.empty(2 * len(joined) + 1, np.uint8)
    begins, ends = (np.empty(len(joined) + 1, np.int64) for _ in range(2))  # memory beyond `count` is never touched
    counts = np.zeros(len(texts), np.int64)
    splitter = None
    if not lines:
        import blingfire

        splitter = ctypes.cast(blingfire.blingfire.TextToSentences, ctypes.c_void_p)
    count = compiled.split(splitter, joined, of_article, len(texts), out, len(out), begins, ends, len(begins), counts)
    if count < 0:
        raise RuntimeError("sentences took more room than their text")
    return Sentences(out, begins[:count], ends[:count], counts)


def split(text: str) -> list[str]:
    """Return the sentences of a text in their order, none of them empty."""
    import blingfire

    sentences: list[str] = []
    for paragraph in _cleaned(text).decode().split("\n"):
        if paragraph and not paragraph.isspace():
            lines = blingfire.text_to_sentences(paragraph) or paragraph
            sentences.extend(sentence for sentence in lines.split("\n") if sentence)
    return sentences


def _cleaned(text: str) -> bytes:
    """Return the text as UTF-8 without NUL and lone surrogates.

    NUL would end the splitter's C string, and BERT drops it anyway.
    """
    return text.replace("\0", "").encode("utf-8", "ignore")

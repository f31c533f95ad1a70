"""GPT-2's byte pair encoding, with a memory of chunks. It gives the same ids as tiktoken and `tokenizers`.

GPT-2's pattern cuts a text into pieces: a word, a number or signs, each with the space before it, or blanks. Merges
never join bytes of different pieces. No piece has a blank after another character, so text can be split before blanks.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe.vocabulary import Vocabulary
from throughline.corpus.text.tokenization import BYTE_PAIRS, ChunkTokenizer, Sentences


class Encoder:
    """Turns texts into token ids. It remembers chunks between calls, so use one instance for a whole part."""

    def __init__(self, vocabulary: Vocabulary, *, remember_bytes: int = sys.maxsize) -> None:
        # -1: no text is unknown, because every byte is a token
        self._chunks = ChunkTokenizer(BYTE_PAIRS, vocabulary.tokens, -1, lambda: _tokenizer(vocabulary), remember_bytes)

    def encode(self, texts: list[str]) -> list[NDArray[np.uint16]]:
        """Return the ids of each text, u2[tokens]. `<|endoftext|>` in a text is plain text.

        Lone surrogates are removed.
        """
        ids, lengths = self._chunks.encode(Sentences.from_texts(texts))
        return np.split(ids.astype(np.uint16), np.cumsum(lengths)[:-1]) if texts else []


def _tokenizer(vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocabulary.printed(), [*vocabulary.merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return tokenizer

"""GPT-2's byte pair encoding, with a memory of chunks. It gives the same ids as tiktoken and `tokenizers`.

GPT-2's pattern cuts a text into pieces: a word, a number or signs, each with the space before it, or blanks. Merges
never join bytes of different pieces. No piece has a blank after another character, so text can be split before blanks.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe.vocabulary import Vocabulary
from throughline.corpus.text.chunks import REMEMBERED_BYTES, Chunks, Tokenization
from throughline.corpus.text.sentences import Sentences

_BYTE_PAIRS = 2
_BLANKS = (
    "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode's White_Space, like the pattern's \s
)
_CHUNK = re.compile(f"[{_BLANKS}]*[^{_BLANKS}]+|[{_BLANKS}]+")


class Encoder:
    """Turns texts into token ids. It remembers chunks between calls, so use one instance for a whole part."""

    def __init__(self, vocabulary: Vocabulary, *, remember_bytes: int = REMEMBERED_BYTES) -> None:
        how = Tokenization(
            number=_BYTE_PAIRS,
            entries=vocabulary.tokens,
            unknown=-1,  # every byte is a token
            split=_CHUNK.findall,
            tokenizer=lambda: _tokenizer(vocabulary),
        )
        self._chunks = Chunks(how, remember_bytes)

    def encode(self, texts: list[str]) -> list[NDArray[np.uint16]]:
        """Return the ids of each text, u2[tokens]. `<|endoftext|>` in a text is plain text.

        Lone surrogates are removed.
        """
        ids, lengths = self._chunks.encode(Sentences.of([texts]))
        return np.split(ids.astype(np.uint16), np.cumsum(lengths)[:-1]) if texts else []


def _tokenizer(vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocabulary.printed(), [*vocabulary.merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return tokenizer

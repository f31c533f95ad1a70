"""BERT's tokenization (basic tokenizer, then WordPiece), with a memory of chunks.

BERT's tokenization never looks across a space, so text is split there. (At U+0020 alone: some other blanks BERT drops,
and joins what stands around them.) Text is never read as a special token: `[SEP]` in an article becomes `[`, `sep`,
`]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.text.chunks import REMEMBERED_BYTES, Chunks, Tokenization
from throughline.corpus.text.sentences import Sentences
from throughline.corpus.text.vocabulary import Vocabulary

_CASED, _LOWER_CASE = 0, 1


class WordPiece:
    """Turns sentences into token ids. Holds its memory between calls, so keep one for a whole part.

    `lower_case`: text is lower-cased and loses its accents; where it is false, capitals and accents stay.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, lower_case: bool = True, remember_bytes: int = REMEMBERED_BYTES
    ) -> None:
        how = Tokenization(
            number=_LOWER_CASE if lower_case else _CASED,
            entries=[entry.encode() for entry in vocabulary.entries],
            unknown=vocabulary.unk,
            split=lambda text: text.split(" "),
            tokenizer=lambda: _tokenizer(vocabulary, lower_case),
        )
        self._chunks = Chunks(how, remember_bytes)

    def encode(self, sentences: Sentences) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Token ids of all sentences in one array i4[T], and the number of tokens of each, i8[sentences]."""
        return self._chunks.encode(sentences)


def _tokenizer(vocabulary: Vocabulary, lower_case: bool) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    entries = {entry: i for i, entry in enumerate(vocabulary.entries)}
    tokenizer = Tokenizer(models.WordPiece(entries, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case)  # and with it, accents stay or go
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer

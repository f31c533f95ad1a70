"""BERT's tokenization (basic tokenizer, then WordPiece), with a memory of chunks.

BERT tokenizes the text on each side of a space independently, so we split text into chunks at spaces. (Only at
U+0020: BERT drops some other blank characters and joins the text around them.) Text never becomes a special token:
`[SEP]` in an article becomes `[`, `sep`, `]`.
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
    """Turns sentences into token ids. It remembers chunks between calls, so use one instance for a whole part.

    With `lower_case`, text is lower-cased and loses its accents. Without it, capitals and accents stay.
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
        """Return the token ids of all sentences in one array i4[T], and each sentence's token count, i8[sentences]."""
        return self._chunks.encode(sentences)


def _tokenizer(vocabulary: Vocabulary, lower_case: bool) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    entries = {entry: i for i, entry in enumerate(vocabulary.entries)}
    tokenizer = Tokenizer(models.WordPiece(entries, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case)  # also decides whether accents stay
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer

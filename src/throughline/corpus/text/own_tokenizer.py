"""Encode text with one's own tokenizer (`corpus.tokenizer`), by Hugging Face's tokenizers.

Text never becomes a special token: `[SEP]` in an article is encoded as any other text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import files
from throughline.corpus.text.sentences import Sentences
from throughline.files import UserError
from throughline.study import tokenizer_file
from throughline.study.tokenizer_file import TokenizerFile

NEXT = "correct corpus.tokenizer in config.yaml, or write the file again with tokenizers' Tokenizer.save"


class OwnTokenizer:
    """Turns sentences or texts into token ids, without the special tokens that the tokenizer would add."""

    def __init__(self, path: Path) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a job has one core
        from tokenizers import Tokenizer

        self.facts = facts(path)
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain exceptions
            raise UserError(f"{path} is no tokenizer that can be used", why=str(error), next_step=NEXT) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        if (size := self._tokenizer.get_vocab_size(with_added_tokens=True)) != len(self.facts):
            raise UserError(
                f"{path} states {len(self.facts)} entries, and the tokenizer has {size}",
                why="two of its entries have the same text",
                next_step=NEXT,
            )

    def texts(self, texts: list[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text. Lone surrogates are removed."""
        clean = [text.encode("utf-8", "ignore").decode() for text in texts]
        found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [np.array(encoded.ids, np.int32) for encoded in found]

    def encode(self, sentences: Sentences) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the token ids of all sentences in one array i4[T], and each sentence's token count, i8[sentences]."""
        data = sentences.text.tobytes()
        spans = zip(sentences.begins.tolist(), sentences.ends.tolist(), strict=True)
        ids = self.texts([data[begin:end].decode("utf-8", "ignore") for begin, end in spans])
        return np.concatenate([np.zeros(0, np.int32), *ids]), np.array([len(some) for some in ids], np.int64)

    def decoded(self, ids: NDArray[Any]) -> str:
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False))


def facts(path: Path) -> TokenizerFile:
    """Return the entries of a tokenizer; UserError if its file cannot be used."""
    try:
        return tokenizer_file.read(str(path))
    except ValueError as error:
        raise UserError(str(error), next_step=NEXT) from None


def copy_checked(source: Path, sha256: str, path: Path) -> None:
    """Copy a tokenizer to `path`; UserError if it has changed since the configuration was read."""
    if (found := facts(source).sha256) != sha256:
        raise UserError(
            f"{source} has changed", why=f"its sha256 is {found}, and was {sha256}", next_step="run snakemake again"
        )
    with files.atomic(path) as temporary:
        temporary.write_bytes(source.read_bytes())


def write_vocabulary(tokenizer: Path, path: Path) -> None:
    """Write the tokenizer's entries as a vocabulary, one entry a line."""
    files.write_text(path, "".join(f"{entry}\n" for entry in facts(tokenizer).entries))

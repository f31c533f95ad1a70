"""The user's own tokenizer: a `tokenizer.json` of Hugging Face's tokenizers. Its entries are read without that library.

So the configuration can be checked at the start, before any text is read. corpus/text/tokenization.py encodes with it.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PAIRS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special tokens that BERT's samples are built from."""
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
"""The names of a token that ends a document. The first one that a tokenizer has is used."""


@dataclass(frozen=True)
class TokenizerFile:
    """The entries of a tokenizer in the order of their ids, and the SHA-256 of its file."""

    path: str
    sha256: str
    entries: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def end(self) -> int:
        """The id of the token that ends a document. ValueError if there is none."""
        for name in ENDS:
            if name in self.entries:
                return self.entries.index(name)
        raise ValueError(f"{self.path} has no token that ends a document, which running text needs: {', '.join(ENDS)}")

    def check_pairs(self) -> None:
        """Raise ValueError if BERT's samples cannot be built with it."""
        if missing := [name for name in PAIRS if name not in self.entries]:
            raise ValueError(f"{self.path} lacks {', '.join(missing)}, which BERT's samples are built from")
        if self.entries[0] != "[PAD]":
            raise ValueError(f"in {self.path}, [PAD] has the id {self.entries.index('[PAD]')}; padding is written as 0")

    def check_model(self, model: str, rows: int) -> None:
        """Raise ValueError if a model's vocabulary is smaller than the tokenizer's."""
        if len(self) > rows:
            raise ValueError(
                f"{self.path} has {len(self):,} entries, and the vocabulary of {model} has {rows:,}: ids above it name "
                "no word. Train a smaller tokenizer, or choose a model with a larger vocabulary"
            )


@cache
def read(path: str) -> TokenizerFile:
    """Read a tokenizer's entries. ValueError if the file is not there, or is no usable tokenizer.json."""
    try:
        data = Path(path).read_bytes()
        content = json.loads(data)
        ids = _ids(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as a tokenizer.json of Hugging Face's tokenizers ({error})") from None
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path}: its {len(ids):,} entries do not have the ids 0 to {len(ids) - 1:,}, each once")
    entries = tuple(sorted(ids, key=ids.__getitem__))
    broken = next((entry for entry in entries if "\n" in entry or "\r" in entry), None)
    if broken is not None:
        raise ValueError(f"{path}: the entry {broken!r} has a line break; a byte-level tokenizer writes it otherwise")
    return TokenizerFile(path, hashlib.sha256(data).hexdigest(), entries)


def _ids(content: dict[str, Any]) -> dict[str, int]:
    """Return the id of each entry. A Unigram model has a list of entries with their scores."""
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {entry: number for number, (entry, _) in enumerate(vocabulary)}
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    return {str(entry): int(number) for entry, number in {**vocabulary, **added}.items()}

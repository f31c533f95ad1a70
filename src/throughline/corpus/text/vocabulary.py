"""The vocabulary of BERT's samples: a file with one entry per line. The line number, from 0, is the token id.

It is the published bert-base-uncased, a file or a download, or the entries of the user's own tokenizer.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from throughline import files
from throughline.files import UserError
from throughline.study import tokenizer_file
from throughline.study.tokenizer_file import TokenizerFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from throughline.corpus.source.fetch import Client

BERT_BASE_UNCASED_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class Vocabulary:
    """The entries in the order of their ids, the ids of the five special tokens, and the SHA-256 of the file."""

    entries: tuple[str, ...]
    sha256: str
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    def __len__(self) -> int:
        return len(self.entries)

    @functools.cached_property
    def words(self) -> NDArray[np.int32]:
        """The ids that may replace a masked token: all but the special tokens and the `[unused…]` entries."""
        import numpy as np

        special = [self.pad, self.unk, self.cls, self.sep, self.mask]
        unused = [i for i, text in enumerate(self.entries) if text[:1] == "[" and _UNUSED.fullmatch(text)]
        return np.delete(np.arange(len(self), dtype=np.int32), [*special, *unused])

    @functools.cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """The kind of each entry: 1 for [CLS], [SEP], [MASK] and [PAD], 2 for an id in `words`, else 0."""
        import numpy as np

        kinds = np.zeros(len(self), np.uint8)
        kinds[self.words] = 2
        kinds[[self.cls, self.sep, self.mask, self.pad]] = 1
        return kinds


def read(path: str | Path, lower_case: bool | None = None) -> Vocabulary:
    """Read a vocabulary from a file with one entry per line; UserError if BERT could not work with it.

    If `lower_case` is given, a vocabulary that is clearly for text of the other case is an error too.
    """
    try:
        data = Path(path).read_bytes()
        entries = tuple(entry.removesuffix("\r") for entry in data.decode().removesuffix("\n").split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, f"it cannot be read: {error}") from None
    ids = {entry: i for i, entry in enumerate(entries)}
    if len(ids) < len(entries):
        raise _unusable(path, f"the entry {next(e for i, e in enumerate(entries) if ids[e] != i)!r} stands there twice")
    if missing := [name for name in SPECIALS if name not in ids]:
        raise _unusable(path, f"it lacks {', '.join(missing)}, which samples are built from")
    if ids["[PAD]"] != 0:
        raise _unusable(path, f"[PAD] has the id {ids['[PAD]']}, and the shards' layout writes padding as 0")
    special = {name.strip("[]").lower(): ids[name] for name in SPECIALS}
    vocabulary = Vocabulary(entries, hashlib.sha256(data).hexdigest(), **special)
    if lower_case is not None:
        _check_case(path, vocabulary, lower_case)
    return vocabulary


def _unusable(path: str | Path, why: str) -> UserError:
    return UserError(
        f"BERT cannot use the vocabulary {path}",
        why=why,
        next_step="name a BERT vocabulary as it was published, one entry per line, in corpus.vocabulary",
    )


def _check_case(path: str | Path, vocabulary: Vocabulary, lower_case: bool) -> None:
    """Raise UserError if the vocabulary is clearly for text of the other case.

    A cased vocabulary has capitals in a third of its entries, an uncased one in none. For a script without capitals,
    we accept either setting.
    """
    words = [vocabulary.entries[i] for i in vocabulary.words.tolist()]
    letters = sum(word.lower() != word.upper() for word in words)
    capitals = sum(word != word.lower() for word in words)
    cased = capitals > letters / 100
    if cased if lower_case else not cased and letters > len(words) / 2:
        kind, wrong, right = ("cased", "true", "false") if cased else ("uncased", "false", "true")
        raise UserError(
            f"the vocabulary {path} is {kind}, and corpus.vocabulary.lower_case is {wrong}",
            why=f"{capitals} of its {len(words)} words have capitals",
            next_step=f"set corpus.vocabulary.lower_case: {right}, or name another vocabulary",
        )


def write_bert_base_uncased(path: str | Path) -> None:
    """Rebuild the published vocabulary from the installed blingfire's tables and write it to `path`.

    UserError if the result is not the published file.
    """
    text = "".join(f"{entry}\n" for entry in _from_blingfire())
    check_rebuilt("the vocabulary of bert-base-uncased", text, BERT_BASE_UNCASED_SHA256)
    files.write_text(path, text)


def check_rebuilt(name: str, text: str, sha256: str) -> None:
    """Raise UserError if a published file that was rebuilt from blingfire's tables has another SHA-256 (`sha256`)."""
    if (digest := hashlib.sha256(text.encode()).hexdigest()) != sha256:
        raise UserError(
            f"{name} could not be rebuilt: the installed blingfire has other tables than the pinned one",
            why=f"its sha256 is {digest}, the published file has {sha256}",
            next_step="install the blingfire pinned in envs/main.txt",
        )


def _from_blingfire() -> list[str]:
    """Return the entries. blingfire's tables lack the mark `##` of entries that continue a word.

    We put it back: an entry continues a word if blingfire maps its text to anything else than the entry's own id.
    """
    import blingfire
    import numpy as np

    folder = Path(blingfire.__file__).parent
    texts_model = blingfire.load_model(str(folder / "bert_base_tok.i2w"))
    words_model = blingfire.load_model(str(folder / "bert_base_tok.bin"))
    entries = []
    for i in range(30522):
        text = blingfire.ids_to_text(texts_model, np.array([i], dtype=np.int32), False, 256)
        if text.upper() in SPECIALS:
            entries.append(text.upper())
        elif _UNUSED.fullmatch(text) or text == "...":
            entries.append(text)
        else:
            ids = blingfire.text_to_ids(words_model, text, 8, 100, True)
            entries.append(text if ids.tolist() == [i] else f"##{text}")
    return entries


def copy(source: str | Path, sha256: str, path: str | Path) -> None:
    """Copy a file to `path`; UserError if it has another SHA-256."""
    data = Path(source).read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != sha256.lower():
        raise UserError(
            f"{source} is not the file that the configuration names",
            why=f"its sha256 is {digest}, and should be {sha256}",
            next_step="correct the path or the sha256 in config.yaml; if the file has changed, run snakemake again",
        )
    with files.atomic(path) as temporary:
        temporary.write_bytes(data)


def download(url: str, sha256: str, client: Client, path: str | Path, lower_case: bool = True) -> None:
    """Download a vocabulary to `path`; UserError if it has another SHA-256, or if BERT cannot use it."""
    path = Path(path)
    fetched = path.with_name(f".{path.name}.download")
    client.file([url], fetched, f"sha256:{sha256}")
    read(fetched, lower_case)
    os.replace(fetched, path)


def read_tokenizer(path: str | Path) -> TokenizerFile:
    """Return the entries of the user's own tokenizer; UserError if its file cannot be used."""
    try:
        return tokenizer_file.read(str(path))
    except ValueError as error:
        raise UserError(
            str(error),
            next_step="write the file again with tokenizers' Tokenizer.save, or correct corpus.tokenizer",
        ) from None


def write_entries(tokenizer: Path, path: Path) -> None:
    """Write the entries of the user's own tokenizer as a vocabulary, one entry per line."""
    files.write_text(path, "".join(f"{entry}\n" for entry in read_tokenizer(tokenizer).entries))

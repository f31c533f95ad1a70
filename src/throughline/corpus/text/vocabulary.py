"""The WordPiece vocabulary: a file with one entry per line. The line number, from 0, is the token id."""

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
    path = Path(path)
    try:
        data = path.read_bytes()
        entries = tuple(data.decode().removesuffix("\n").split("\n"))
    except FileNotFoundError:
        raise UserError(f"the vocabulary {path} does not exist", next_step="correct corpus.vocabulary") from None
    except UnicodeDecodeError as error:
        raise UserError(f"the vocabulary {path} is not UTF-8 text", why=str(error)) from None
    if b"\r" in data:
        entries = tuple(entry.removesuffix("\r") for entry in entries)
    index = dict(zip(entries, range(len(entries)), strict=True))
    if len(index) < len(entries):
        double = next(entry for i, entry in enumerate(entries) if index[entry] != i)
        raise UserError(
            f"the vocabulary {path} has an entry twice: {double!r}",
            why="the line number is the token's id, so every entry stands once",
            next_step="use the vocabulary as it was published",
        )
    if missing := [name for name in SPECIALS if name not in index]:
        raise UserError(
            f"the vocabulary {path} lacks {', '.join(missing)}",
            why="sequences are built from [CLS], [SEP], [MASK], [PAD] and [UNK]",
            next_step="use a BERT vocabulary, one entry per line",
        )
    if index["[PAD]"] != 0:
        raise UserError(
            f"in the vocabulary {path}, [PAD] has the id {index['[PAD]']}",
            why="padding is written as 0 in the shards' layout",
            next_step="use a vocabulary whose first line is [PAD]",
        )
    ids = {name.strip("[]").lower(): index[name] for name in SPECIALS}
    vocabulary = Vocabulary(entries=entries, sha256=hashlib.sha256(data).hexdigest(), **ids)
    if lower_case is not None:
        _check_case(path, vocabulary, lower_case)
    return vocabulary


def _check_case(path: Path, vocabulary: Vocabulary, lower_case: bool) -> None:
    """Raise UserError if the vocabulary is clearly for text of the other case.

    A cased vocabulary has capitals in a third of its entries, an uncased one in none. For a script without capitals,
    we accept either setting.
    """
    words = [vocabulary.entries[i] for i in vocabulary.words.tolist()]
    letters = sum(word.lower() != word.upper() for word in words)
    capitals = sum(word != word.lower() for word in words)
    cased = capitals > letters / 100
    if lower_case and cased:
        raise UserError(
            f"the vocabulary {path} is cased, and corpus.vocabulary.lower_case is true",
            why=f"{capitals} of its {len(words)} words have capitals, which no lower-cased text has",
            next_step="set corpus.vocabulary.lower_case: false in config.yaml, or name an uncased vocabulary",
        )
    if not lower_case and not cased and letters > len(words) / 2:
        raise UserError(
            f"the vocabulary {path} is uncased, and corpus.vocabulary.lower_case is false",
            why=f"{capitals} of its {len(words)} words have capitals: nearly every word with one would become [UNK]",
            next_step="leave corpus.vocabulary.lower_case out of config.yaml, or name a cased vocabulary",
        )


def write_bert_base_uncased(path: str | Path) -> None:
    """Rebuild the published vocabulary from the installed blingfire's tables and write it to `path`.

    UserError if the result is not the published file.
    """
    text = "".join(f"{entry}\n" for entry in _from_blingfire())
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != BERT_BASE_UNCASED_SHA256:
        raise UserError(
            "the bert-base-uncased vocabulary could not be rebuilt",
            why=f"sha256 is {digest}, the published file has {BERT_BASE_UNCASED_SHA256}; the installed blingfire"
            " carries other tables than the pinned version",
            next_step="install the blingfire pinned in envs/main.txt, or set corpus.vocabulary to {path, sha256}",
        )
    files.write_text(path, text)


def copy_checked(source: str | Path, sha256: str, path: str | Path, lower_case: bool = True) -> None:
    """Copy the vocabulary file `source` to `path`; UserError if it has another SHA-256, or if BERT cannot use it."""
    if (digest := read(source, lower_case).sha256) != sha256.lower():
        raise UserError(
            f"{source} is not the vocabulary that the configuration names",
            why=f"its sha256 is {digest}, corpus.vocabulary.sha256 says {sha256}",
            next_step="correct the path or the sha256 in config.yaml",
        )
    with files.atomic(path) as temporary:
        temporary.write_bytes(Path(source).read_bytes())


def download(url: str, sha256: str, client: Client, path: str | Path, lower_case: bool = True) -> None:
    """Download a vocabulary to `path`; UserError if it has another SHA-256, or if BERT cannot use it."""
    from throughline.corpus.source.fetch import Digest

    path = Path(path)
    fetched = path.with_name(f".{path.name}.download")
    client.file([url], fetched, Digest("sha256", sha256))
    read(fetched, lower_case)
    os.replace(fetched, path)


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

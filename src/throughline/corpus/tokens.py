"""Articles as token ids: tokenized once per part of the dump, then gathered into shards.

A tokens file (HDF5, checksummed blocks) holds documents one after the other:

* `tokens`  u2[T] (u4 for more than 65,536 entries): the ids of all documents
* `sentences`  i8[S+1]: where each sentence begins in `tokens`, and T
* `documents`  i8[D+1]: where each document begins, counted in sentences, and S
* `ids`  i8[D]: the documents' page ids
* attributes: `schema`, `vocabulary_sha256`, `vocabulary_size`, and `complete`, written last

Which shard an article goes to follows from its page id alone, not from the number of parts or the order of jobs.
In a part's file the documents stand in the order of that hash: the gathering of a shard, however many there are,
reads one contiguous run from each part.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from throughline.corpus import shards
from throughline.corpus.progress import Progress
from throughline.files import UserError

SCHEMA = 1
_BLOCK = 1 << 16
_BATCH_CHARACTERS = 1 << 21


@dataclass(frozen=True)
class Documents:
    """Tokenized documents; the arrays are as in the file. No sentence and no document is empty."""

    tokens: NDArray[Any]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, order: NDArray[np.int64]) -> Documents:
        """The documents numbered `order`, in that order."""
        sentence_counts = np.diff(self.documents)[order]
        sentences = _runs(self.documents[:-1][order], sentence_counts)
        token_counts = np.diff(self.sentences)[sentences]
        bounds = self.sentences[self.documents]  # where each document begins in `tokens`
        pieces = [self.tokens[bounds[i] : bounds[i + 1]] for i in order.tolist()]
        tokens = np.concatenate([self.tokens[:0], *pieces])
        return Documents(tokens, _offsets(token_counts), _offsets(sentence_counts), self.ids[order])


def concatenate(several: Sequence[Documents], kind: type[np.generic] | np.dtype[Any]) -> Documents:
    """All documents of several collections, one after the other, as token ids of type `kind`."""
    return Documents(
        np.concatenate([np.zeros(0, kind), *(d.tokens for d in several)]).astype(kind, copy=False),
        _offsets(np.concatenate([np.zeros(0, np.int64), *(np.diff(d.sentences) for d in several)])),
        _offsets(np.concatenate([np.zeros(0, np.int64), *(np.diff(d.documents) for d in several)])),
        np.concatenate([np.zeros(0, np.int64), *(d.ids for d in several)]),
    )


def place(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A page id's place among all 64-bit numbers: a fixed mixing function (the finalizer of splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def kind_for(vocabulary_size: int) -> type[np.generic]:
    """The smallest of u2 and u4 that holds every id."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def tokenize(articles: Path, vocabulary: Path, path: Path, *, lines: bool = False) -> None:
    """Tokenize the articles (JSON lines with `id` and `text`) of one part into a tokens file.

    `lines`: every line of a text is a sentence already.
    """
    from throughline.corpus import vocabulary as vocabularies
    from throughline.corpus.wordpiece import WordPiece

    words = vocabularies.read(vocabulary)
    kind = kind_for(len(words))
    wordpiece = WordPiece(words)
    batches = [_tokenized(batch, wordpiece, kind, lines) for batch in _batches(articles)]
    documents = concatenate(batches, kind)
    order = np.argsort(place(documents.ids), kind="stable")
    write(path, documents.take(order), words.sha256, len(words))


def gather(parts: Sequence[Path], shard: int, shards: int, path: Path) -> None:
    """Write the documents of shard number `shard` of `shards` (training and test together), sorted by page id.

    A page that several parts hold is taken once, from the first of them.
    """
    low = -(-(shard << 64) // shards)
    high = -(-((shard + 1) << 64) // shards)
    found, facts = [], set()
    for part in parts:
        with _open(part) as stream:
            facts.add((str(stream.attrs["vocabulary_sha256"]), int(stream.attrs["vocabulary_size"])))
            places = place(stream["ids"][:])
            found.append(_read_run(stream, *(_count_below(places, bound) for bound in (low, high))))
    if len(facts) != 1:
        raise UserError(
            f"the token files of {path} were made with different vocabularies",
            why="the vocabulary was changed in between",
            next_step=f"make them again: snakemake --force {shlex.join(map(str, parts))}",
        )
    (sha256, size), *_ = facts
    documents = concatenate(found, kind_for(size))
    _, first = np.unique(documents.ids, return_index=True)
    write(path, documents.take(first), sha256, size)


def write(path: Path, documents: Documents, vocabulary_sha256: str, vocabulary_size: int) -> None:
    """Write a tokens file, whole or not at all."""
    with shards.new_file(path) as stream:
        for name in ("tokens", "sentences", "documents", "ids"):
            data = getattr(documents, name)
            checked = {"chunks": (min(len(data), _BLOCK),), "fletcher32": True} if len(data) else {}
            stream.create_dataset(name, data=data, track_times=False, **checked)
        stream.attrs["schema"] = SCHEMA
        stream.attrs["vocabulary_sha256"] = vocabulary_sha256
        stream.attrs["vocabulary_size"] = vocabulary_size
        stream.attrs["complete"] = True


def read(path: Path) -> tuple[Documents, dict[str, Any]]:
    """The documents of a tokens file and its attributes."""
    with _open(path) as stream:
        return _read_run(stream, 0, len(stream["ids"])), dict(stream.attrs)


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    """The open file; what cannot be read inside the `with` is a UserError as well."""
    try:
        # a finished file never changes, and network file systems may have no locks
        with h5py.File(path, "r", locking=False) as stream:
            if stream.attrs.get("schema") != SCHEMA or not stream.attrs.get("complete"):
                raise UserError(
                    f"{path} is no whole tokens file of schema {SCHEMA}",
                    why="another version of Throughline wrote it, or its writing was interrupted",
                    next_step=f"make it again: snakemake --force {shlex.quote(str(path))}",
                )
            yield stream
    except OSError as error:
        raise UserError(
            f"{path} cannot be read",
            why=str(error),
            next_step=f"make it again: snakemake --force {shlex.quote(str(path))}",
        ) from None


def _read_run(stream: h5py.File, first: int, last: int) -> Documents:
    documents = stream["documents"][first : last + 1]
    sentences = stream["sentences"][documents[0] : documents[-1] + 1]
    tokens = stream["tokens"][sentences[0] : sentences[-1]]
    return Documents(tokens, sentences - sentences[0], documents - documents[0], stream["ids"][first:last])


def _count_below(places: NDArray[np.uint64], bound: int) -> int:
    return len(places) if bound >= 1 << 64 else int(np.searchsorted(places, np.uint64(bound)))


def _batches(articles: Path) -> Iterator[list[tuple[int, str]]]:
    size = articles.stat().st_size
    progress = Progress(f"tokenizing {articles.name}", size)
    batch: list[tuple[int, str]] = []
    characters = 0
    with articles.open("rb") as stream:
        for line in stream:
            article = json.loads(line)
            batch.append((int(article["id"]), article["text"]))
            characters += len(article["text"])
            if characters >= _BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
                progress.to(stream.tell())
    if batch:
        yield batch


def _tokenized(batch: list[tuple[int, str]], wordpiece: Any, kind: type[np.generic], lines: bool) -> Documents:
    from throughline.corpus import sentences

    split = sentences.split_all([text for _, text in batch], lines=lines)
    tokens, lengths = wordpiece.encode_sentences(split)
    ends = _offsets(split.counts)
    kept = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences without a token are left out
    counts = np.diff(kept[ends])
    ids = np.array([number for number, _ in batch], dtype=np.int64)
    return Documents(tokens.astype(kind), _offsets(lengths[lengths > 0]), _offsets(counts[counts > 0]), ids[counts > 0])


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _runs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers starts[0], starts[0]+1, ... (lengths[0] of them), starts[1], ... in one array."""
    after = _offsets(lengths)
    return np.repeat(starts - after[:-1], lengths) + np.arange(after[-1])

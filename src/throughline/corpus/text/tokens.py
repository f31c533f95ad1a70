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
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from throughline.corpus import packing
from throughline.corpus.allocator import Allocator
from throughline.corpus.progress import Progress
from throughline.corpus.text.pile import Pile
from throughline.files import UserError

SCHEMA = 1
_BLOCK = 1 << 16
_BATCH_CHARACTERS = 1 << 21
MEMORY_BYTES = 256 << 20
"""What a job holds at a time, beside what any process takes; more goes through temporary files beside the result."""


@dataclass(frozen=True)
class Documents:
    """Tokenized documents; the arrays are as in the file. No sentence and no document is empty."""

    tokens: NDArray[Any]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


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


def tokenize(
    articles: Path, vocabulary: Path, path: Path, *, lines: bool = False, memory_bytes: int = MEMORY_BYTES
) -> None:
    """Tokenize the articles (JSON lines with `id` and `text`) of one part into a tokens file.

    `lines`: every line of a text is a sentence already. Three quarters of `memory_bytes` remember chunks of text.
    """
    from throughline.corpus.text import vocabulary as vocabularies
    from throughline.corpus.text.wordpiece import WordPiece

    words = vocabularies.read(vocabulary)
    kind = kind_for(len(words))
    wordpiece = WordPiece(words, remember_bytes=memory_bytes // 4 * 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Pile(path.parent, memory_bytes // 8) as pile:
        pile.add(concatenate([], kind))
        for batch in _batches(articles):
            pile.add(_tokenized(batch, wordpiece, kind, lines))
        order = np.argsort(place(pile.facts()[0]), kind="stable")
        _write(path, pile, order, words.sha256, len(words))


def gather(parts: Sequence[Path], shard: int, shards: int, path: Path, *, memory_bytes: int = MEMORY_BYTES) -> None:
    """Write the documents of shard number `shard` of `shards` (training and test together), sorted by page id.

    A page that several parts hold is taken once, from the first of them.
    """
    low = -(-(shard << 64) // shards)
    high = -(-((shard + 1) << 64) // shards)
    facts: set[tuple[str, int]] = set()
    path.parent.mkdir(parents=True, exist_ok=True)
    with Pile(path.parent, memory_bytes // 4) as pile:
        for part in parts:
            with _open(part) as stream:
                facts.add((str(stream.attrs["vocabulary_sha256"]), int(stream.attrs["vocabulary_size"])))
                _same_vocabulary(facts, parts, path)
                places = place(stream["ids"][:])
                first, last = (_count_below(places, bound) for bound in (low, high))
                for begin, end in _pieces(stream["documents"][first : last + 1]):
                    pile.add(_read_run(stream, first + begin, first + end))
        (sha256, size), *_ = facts
        _, order = np.unique(pile.facts()[0], return_index=True)
        _write(path, pile, order, sha256, size)


def _pieces(bounds: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Documents in runs of so many sentences that they are read at a time; one run at least. `bounds`: where each
    document begins, counted in sentences."""
    first, count = 0, len(bounds) - 1
    while True:
        last = max(int(np.searchsorted(bounds, bounds[first] + _BLOCK, side="right")) - 1, first + 1)
        yield first, min(last, count)
        first = last
        if first >= count:
            return


def _same_vocabulary(facts: set[tuple[str, int]], parts: Sequence[Path], path: Path) -> None:
    if len(facts) != 1:
        raise UserError(
            f"the token files of {path} were made with different vocabularies",
            why="the vocabulary was changed in between",
            next_step=f"make them again: snakemake --force {shlex.join(map(str, parts))}",
        )


def write(path: Path, documents: Documents, vocabulary_sha256: str, vocabulary_size: int) -> None:
    """Write a tokens file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Pile(path.parent, MEMORY_BYTES) as pile:
        pile.add(documents)
        _write(path, pile, np.arange(len(documents)), vocabulary_sha256, vocabulary_size)


def _write(path: Path, pile: Pile, order: NDArray[np.int64], vocabulary_sha256: str, vocabulary_size: int) -> None:
    """Write the documents numbered `order` of a pile, in that order."""
    ids, sentences, tokens, _, _ = (fact[order] for fact in pile.facts())
    with packing.new_file(path) as stream:
        kind = np.dtype(kind_for(vocabulary_size))
        _fill(stream, "tokens", kind, int(tokens.sum()), pile.tokens(order))
        ends = _offsets_of(pile.lengths(order))
        _fill(stream, "sentences", np.dtype(np.int64), int(sentences.sum()) + 1, ends)
        _fill(stream, "documents", np.dtype(np.int64), len(ids) + 1, iter([_offsets(sentences)]))
        _fill(stream, "ids", np.dtype(np.int64), len(ids), iter([ids]))
        stream.attrs["schema"] = SCHEMA
        stream.attrs["vocabulary_sha256"] = vocabulary_sha256
        stream.attrs["vocabulary_size"] = vocabulary_size
        stream.attrs["complete"] = True


def _fill(stream: h5py.File, name: str, kind: np.dtype[Any], size: int, data: Iterator[NDArray[Any]]) -> None:
    checked = {"chunks": (min(size, _BLOCK),), "fletcher32": True} if size else {}
    dataset = stream.create_dataset(name, (size,), kind, track_times=False, **checked)
    begin = 0
    for part in data:
        dataset[begin : begin + len(part)] = part
        begin += len(part)


def _offsets_of(several: Iterator[NDArray[Any]]) -> Iterator[NDArray[np.int64]]:
    """Offsets of lengths that come some at a time."""
    yield np.zeros(1, np.int64)
    before = 0
    for lengths in several:
        yield before + np.cumsum(lengths, dtype=np.int64)
        before += int(lengths.sum(dtype=np.int64))


def read(path: Path, allocator: Allocator | None = None) -> tuple[Documents, dict[str, Any]]:
    """The documents of a tokens file and its attributes. `allocator`: gives the arrays they are put into."""
    allocator = Allocator(path.parent, sys.maxsize) if allocator is None else allocator
    with _open(path) as stream:
        arrays = (_read_into(allocator, stream[name]) for name in ("tokens", "sentences", "documents", "ids"))
        return Documents(*arrays), dict(stream.attrs)


def _read_into(allocator: Allocator, dataset: h5py.Dataset) -> NDArray[Any]:
    out = allocator.empty(len(dataset), dataset.dtype)
    for begin in range(0, len(out), 16 * _BLOCK):
        out[begin : begin + 16 * _BLOCK] = dataset[begin : begin + 16 * _BLOCK]
        allocator.release()
    return out


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
    from throughline.corpus.text import sentences

    split = sentences.split_all([text for _, text in batch], lines=lines)
    tokens, lengths = wordpiece.encode_sentences(split)
    ends = _offsets(split.counts)
    kept = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences without a token are left out
    counts = np.diff(kept[ends])
    ids = np.array([number for number, _ in batch], dtype=np.int64)
    return Documents(tokens.astype(kind), _offsets(lengths[lengths > 0]), _offsets(counts[counts > 0]), ids[counts > 0])


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

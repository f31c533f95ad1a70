"""Articles as token ids: each part of the dump is tokenized once, then its articles are gathered into shards.

A tokens file (HDF5 with checksummed blocks) holds `Documents`. The page id alone decides the shard of an article: each
shard takes the articles in one range of `place`. A part's file holds its documents in the order of `place`. So however
many shards there are, gathering one shard reads one contiguous run from each part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from throughline.corpus.allocator import Allocator
from throughline.corpus.text import sentences, vocabulary
from throughline.corpus.text.own_tokenizer import OwnTokenizer
from throughline.corpus.text.wordpiece import WordPiece
from throughline.datasets import hdf5
from throughline.files import UserError, snakemake
from throughline.progress import Progress
from throughline.randomness import splitmix64

Index = NDArray[np.int64]
Encoder = WordPiece | OwnTokenizer
Article = tuple[int, str]
"""A page id and its text."""
SCHEMA = 1
_BLOCK = 1 << 16  # values in a checksummed block
_BATCH_CHARACTERS = 1 << 21
_RUN = 1 << 21  # about how many tokens of a part are read at a time
MEMORY_BYTES = 256 << 20
"""How much data a job holds in memory at a time. What exceeds this goes into temporary files beside the result."""


@dataclass(frozen=True)
class Documents:
    """Tokenized documents, in the same arrays as in the file. No sentence and no document is empty."""

    tokens: NDArray[Any]  # u2[T], or u4 for a vocabulary of more than 65,536 entries: the token ids of all documents
    sentences: Index  # i8[S+1]: where each sentence begins in `tokens`, then T
    documents: Index  # i8[D+1]: the first sentence of each document, then S
    ids: Index  # i8[D]: the documents' page ids
    texts: NDArray[np.uint8] | None = None  # u1[D,32]: the SHA-256 of each document's text; None where it is not kept

    def __len__(self) -> int:
        return len(self.ids)


def place(ids: Index) -> NDArray[np.uint64]:
    """Map each page id to a place among all 64-bit numbers with a fixed mixing function (splitmix64)."""
    return splitmix64(ids.astype(np.uint64))


def kind_for(vocabulary_size: int) -> type[np.generic]:
    """Return the smaller of u2 and u4 that can hold every id."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def tokenize(
    articles: Path,
    vocabulary_file: Path,
    path: Path,
    *,
    lower_case: bool = True,
    lines: bool = False,
    tokenizer: Path | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Tokenize the articles (JSON lines with `id` and `text`) of one part into a tokens file.

    `lines`: every line of a text is already a sentence. `tokenizer`: the user's own, whose entries are the vocabulary.
    Three quarters of `memory_bytes` hold remembered chunks.
    """
    words = vocabulary.read(vocabulary_file, None if tokenizer else lower_case)
    encoder: Encoder
    if tokenizer:
        encoder = OwnTokenizer(tokenizer)
    else:
        encoder = WordPiece(words, lower_case=lower_case, remember_bytes=memory_bytes // 4 * 3)

    def tokenized(batch: list[Article]) -> Documents:
        return _tokenized(batch, encoder, kind_for(len(words)), lines)

    write_part(articles, tokenized, path, words.sha256, len(words), memory_bytes=memory_bytes)


def write_part(
    articles: Path,
    tokenized: Callable[[list[Article]], Documents],
    path: Path,
    vocabulary_sha256: str,
    vocabulary_size: int,
    *,
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Write the tokens file of one part. `tokenized` turns one batch of its articles at a time into documents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Pile(path.parent, memory_bytes // 8) as pile:
        for batch in _batches(articles):
            pile.add(tokenized(batch))
        order = np.argsort(place(pile.facts()[0]), kind="stable")
        _write(path, pile, order, vocabulary_sha256, vocabulary_size)


def gather(
    parts: Sequence[Path],
    shard: int,
    shards: int,
    path: Path,
    *,
    memory_bytes: int = MEMORY_BYTES,
    write: Callable[[Path, Pile, Index, str, int], None] | None = None,
) -> None:
    """Write the documents of one of `shards` shards (training and test), in the order of their page ids.

    A page that several parts hold is written once. `write` replaces the function that writes a tokens file.
    """
    low, high = (-(-(number << 64) // shards) for number in (shard, shard + 1))
    facts: set[tuple[str, int]] = set()
    path.parent.mkdir(parents=True, exist_ok=True)
    with Pile(path.parent, memory_bytes // 4) as pile:
        for part in parts:
            with _open(part) as stream:
                facts.add((str(stream.attrs["vocabulary_sha256"]), int(stream.attrs["vocabulary_size"])))
                if len(facts) != 1:
                    raise UserError(
                        f"the token files of {path} were made with different vocabularies",
                        why="the vocabulary was changed in between",
                        next_step=f"make them again: {snakemake('--force', *map(str, parts))}",
                    )
                places = place(stream["ids"][:])
                first = int(np.searchsorted(places, np.uint64(low)))
                last = int(np.searchsorted(places, np.uint64(high - 1), side="right"))
                most = _RUN * len(stream["sentences"]) // max(len(stream["tokens"]), 1)
                for begin, end in document_runs(stream["documents"][first : last + 1], most):
                    pile.add(_read_run(stream, first + begin, first + end))
        (sha256, size), *_ = facts
        _, order = np.unique(pile.facts()[0], return_index=True)
        (write or _write)(path, pile, order, sha256, size)


def document_runs(bounds: Index, most: int) -> Iterator[tuple[int, int]]:
    """Yield documents (first, last) in runs of about `most` sentences, at least one run.

    `bounds`: the first sentence of each document, then the end.
    """
    first, count = 0, len(bounds) - 1
    while first < max(count, 1):
        last = max(int(np.searchsorted(bounds, bounds[first] + most, side="right")) - 1, first + 1)
        yield first, min(last, count)
        first = last


def _write(path: Path, pile: Pile, order: Index, vocabulary_sha256: str, vocabulary_size: int) -> None:
    """Write the documents of a pile whose numbers are in `order`, in that order. The file is whole or absent."""
    ids, sentences, tokens, _, _ = (fact[order] for fact in pile.facts())
    attributes = {"schema": SCHEMA, "vocabulary_sha256": vocabulary_sha256, "vocabulary_size": vocabulary_size}
    with hdf5.new_file(path, attributes) as stream:
        _fill(stream, "tokens", kind_for(vocabulary_size), int(tokens.sum()), pile.tokens(order))
        _fill(stream, "sentences", np.int64, int(sentences.sum()) + 1, _offsets_of(pile.lengths(order)))
        _fill(stream, "documents", np.int64, len(ids) + 1, [offsets(sentences)])
        _fill(stream, "ids", np.int64, len(ids), [ids])
        if pile.proven:
            stream.create_dataset("texts", data=pile.texts(order), fletcher32=len(ids) > 0, track_times=False)


def _fill(stream: h5py.File, name: str, kind: type[np.generic], size: int, data: Iterable[NDArray[Any]]) -> None:
    checked = {"chunks": (min(size, _BLOCK),), "fletcher32": True} if size else {}
    dataset = stream.create_dataset(name, (size,), kind, track_times=False, **checked)
    begin = 0
    for part in data:
        dataset[begin : begin + len(part)] = part
        begin += len(part)


def _offsets_of(several: Iterator[NDArray[Any]]) -> Iterator[Index]:
    """Yield the offsets of lengths that come in several arrays."""
    yield np.zeros(1, np.int64)
    before = 0
    for lengths in several:
        yield before + np.cumsum(lengths, dtype=np.int64)
        before += int(lengths.sum(dtype=np.int64))


def read(path: Path, allocator: Allocator | None = None) -> tuple[Documents, dict[str, Any]]:
    """Return the documents of a tokens file and its attributes. `allocator` supplies the memory of the arrays."""
    with _open(path) as stream:
        arrays = (
            _read_into(allocator or Allocator(), stream[name]) for name in ("tokens", "sentences", "documents", "ids")
        )
        return Documents(*arrays), dict(stream.attrs)


def _read_into(allocator: Allocator, dataset: h5py.Dataset) -> NDArray[Any]:
    out = allocator.empty(len(dataset), dataset.dtype)
    for begin in range(0, len(out), 16 * _BLOCK):
        out[begin : begin + 16 * _BLOCK] = dataset[begin : begin + 16 * _BLOCK]
        allocator.release()
    return out


def _open(path: Path) -> AbstractContextManager[h5py.File]:
    """Open a tokens file for reading. A failed read inside the `with` block is a UserError too."""
    return hdf5.opened(path, partial(hdf5.defect, schema=SCHEMA), "tokens file")


def _read_run(stream: h5py.File, first: int, last: int) -> Documents:
    documents = stream["documents"][first : last + 1]
    sentences = stream["sentences"][documents[0] : documents[-1] + 1]
    tokens = stream["tokens"][sentences[0] : sentences[-1]]
    texts = stream["texts"][first:last] if "texts" in stream else None
    return Documents(tokens, sentences - sentences[0], documents - documents[0], stream["ids"][first:last], texts)


def _batches(articles: Path) -> Iterator[list[Article]]:
    progress = Progress(f"tokenizing {articles.name}", articles.stat().st_size)
    batch: list[Article] = []
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


def _tokenized(batch: list[Article], encoder: Encoder, kind: type[np.generic], lines: bool) -> Documents:
    split = sentences.split_all([text for _, text in batch], lines=lines)
    tokens, lengths = encoder.encode(split)
    ends = offsets(split.counts)
    kept = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences without a token are left out
    counts = np.diff(kept[ends])
    ids = np.array([number for number, _ in batch], dtype=np.int64)
    return Documents(tokens.astype(kind), offsets(lengths[lengths > 0]), offsets(counts[counts > 0]), ids[counts > 0])


def offsets(counts: Index) -> Index:
    """Return where each of several consecutive items begins, and where the last one ends, from their lengths."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


class Pile:
    """Documents, numbered in the order in which they were added.

    40 bytes of each document stay in memory, or 72 with `texts`. The tokens and the sentences' lengths go into a
    nameless temporary file in `folder` when they take more than `memory_bytes`.
    """

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        import tempfile

        self._memory_bytes = memory_bytes
        self._file = tempfile.SpooledTemporaryFile(max(memory_bytes, 1), dir=str(folder))  # noqa: SIM115
        self._used = 0
        self._kind = np.dtype(np.uint16)
        self._added: list[tuple[Index, ...]] = [(np.zeros(0, np.int64),) * 5]
        self._texts: list[NDArray[np.uint8]] = [np.zeros((0, 32), np.uint8)]

    def __enter__(self) -> Pile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, documents: Documents) -> None:
        """Add documents to the pile. The tokens of all added documents must have the same type."""
        bounds = documents.sentences[documents.documents]  # where each document begins in `tokens`
        lengths = np.diff(documents.sentences).astype(np.int32)
        self._kind = documents.tokens.dtype
        at_tokens = self._used + bounds[:-1] * self._kind.itemsize
        at_lengths = self._used + documents.tokens.nbytes + documents.documents[:-1] * lengths.itemsize
        self._added.append((documents.ids, np.diff(documents.documents), np.diff(bounds), at_tokens, at_lengths))
        if documents.texts is not None:
            self._texts.append(documents.texts)
        for array in (documents.tokens, lengths):
            self._file.write(np.ascontiguousarray(array).data if len(array) else b"")
            self._used += array.nbytes

    def facts(self) -> tuple[Index, Index, Index, Index, Index]:
        """Return for each document: page id, number of sentences, number of tokens, and two places in the file.

        At the first place are its tokens, at the second the lengths of its sentences.
        """
        ids, sentences, tokens, at_tokens, at_lengths = map(np.concatenate, zip(*self._added, strict=True))
        self._added = [(ids, sentences, tokens, at_tokens, at_lengths)]
        return ids, sentences, tokens, at_tokens, at_lengths

    @property
    def proven(self) -> bool:
        """True if the documents came with the SHA-256 of their texts."""
        return len(self._texts) > 1

    def texts(self, order: Index) -> NDArray[np.uint8]:
        """Return the SHA-256 of the texts of the documents numbered `order`, u1[D,32]."""
        return np.concatenate(self._texts)[order]

    def tokens(self, order: Index) -> Iterator[NDArray[Any]]:
        """Yield the tokens of the documents numbered `order`, in that order, in several arrays."""
        _, _, counts, at, _ = self.facts()
        return self._runs(at[order], counts[order], self._kind)

    def lengths(self, order: Index) -> Iterator[NDArray[Any]]:
        """Yield how many tokens each sentence of these documents has, in several arrays."""
        _, counts, _, _, at = self.facts()
        return self._runs(at[order], counts[order], np.dtype(np.int32))

    def _runs(self, starts: Index, counts: Index, kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        after = np.cumsum(counts)
        most, first = max(self._memory_bytes // kind.itemsize, 1), 0
        while first < len(counts):
            begun = int(after[first - 1]) if first else 0
            last = max(int(np.searchsorted(after, begun + most, side="right")), first + 1)
            data = np.empty(int(after[last - 1]) - begun, kind)
            into, at = data.data.cast("B"), 0
            for start, count in zip(starts[first:last].tolist(), counts[first:last].tolist(), strict=True):
                self._file.seek(start)
                at += self._file.readinto(into[at : at + count * kind.itemsize])
            yield data
            first = last

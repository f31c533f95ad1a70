"""Articles as token ids: each part of the dump is tokenized once, then its articles are gathered into shards.

A tokens file (HDF5 with checksummed blocks) holds `Documents`. The page id alone decides the shard of an article: each
shard takes the articles in one range of `place`. A part's file holds its documents in the order of `place`. So however
many shards there are, gathering one shard reads one contiguous run from each part. What does not fit into a job's
memory lies in nameless temporary files beside the result, which vanish with the process (`Pile`, `Allocator`).
"""

from __future__ import annotations

import json
import mmap
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray

from throughline.corpus.text import vocabulary
from throughline.corpus.text.tokenization import OwnTokenizer, WordPiece, split_sentences
from throughline.datasets import hdf5
from throughline.files import UserError, snakemake
from throughline.progress import Progress
from throughline.randomness import splitmix64

Index = NDArray[np.int64]
Article = tuple[int, str]
"""A page id and its text."""
Table = NDArray[np.void]
"""Rows of `Pile.table`."""
MEMORY_BYTES = 256 << 20
"""How much data a job of the corpus holds in memory at a time. What exceeds this goes into temporary files."""
SCHEMA = 1
_open = partial(hdf5.opened, defect=partial(hdf5.defect, schema=SCHEMA), what="tokens file")
_BLOCK = 1 << 16  # values in a checksummed block
_BATCH_CHARACTERS = 1 << 21
_RUN = 1 << 21  # about how many tokens of a part are read at a time


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


def offsets(counts: Index) -> Index:
    """Return where each of several consecutive items begins, and where the last one ends, from their lengths."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def tokenize(
    articles: Path,
    vocabulary_file: Path,
    path: Path,
    *,
    lower_case: bool = True,
    lines: bool = False,
    tokenizer: Path | None = None,
) -> None:
    """Tokenize the articles (JSON lines with `id` and `text`) of one part into a tokens file.

    `lines`: every line of a text is already a sentence. `tokenizer`: the user's own, whose entries are the vocabulary.
    Three quarters of MEMORY_BYTES hold remembered chunks.
    """
    words = vocabulary.read(vocabulary_file, None if tokenizer else lower_case)
    remembered = MEMORY_BYTES // 4 * 3
    encoder: WordPiece | OwnTokenizer = (
        OwnTokenizer(tokenizer) if tokenizer else WordPiece(words, lower_case=lower_case, remember_bytes=remembered)
    )

    def tokenized(batch: list[Article]) -> Documents:
        split = split_sentences([text for _, text in batch], lines=lines)
        tokens, lengths = encoder.encode(split)
        kept = offsets((lengths > 0).astype(np.int64))  # sentences without a token are left out, and so are documents
        counts = np.diff(kept[offsets(split.counts)])
        ids = np.array([number for number, _ in batch], np.int64)[counts > 0]
        bounds = offsets(lengths[lengths > 0]), offsets(counts[counts > 0])
        return Documents(tokens.astype(kind_for(len(words))), *bounds, ids)

    write_part(articles, tokenized, path, words.sha256, len(words))


def write_part(
    articles: Path,
    tokenized: Callable[[list[Article]], Documents],
    path: Path,
    vocabulary_sha256: str,
    vocabulary_size: int,
) -> None:
    """Write the tokens file of one part. `tokenized` turns one batch of its articles at a time into documents."""
    with Pile(path.parent, MEMORY_BYTES // 8) as pile:
        for batch in _batches(articles):
            pile.add(tokenized(batch))
        table = pile.table()
        _write(path, pile, table[np.argsort(place(table["id"]), kind="stable")], vocabulary_sha256, vocabulary_size)


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


def gather(
    parts: Sequence[Path],
    shard: int,
    shards: int,
    path: Path,
    write: Callable[[Path, Pile, Table, str, int], None] | None = None,
) -> None:
    """Write the documents of one of `shards` shards (training and test), in the order of their page ids.

    A page that several parts hold is written once. `write` replaces the function that writes a tokens file.
    """
    low, high = (-(-(number << 64) // shards) for number in (shard, shard + 1))
    vocabularies: set[tuple[str, int]] = set()
    with Pile(path.parent, MEMORY_BYTES // 4) as pile:
        for part in parts:
            with _open(part) as stream:
                vocabularies.add((str(stream.attrs["vocabulary_sha256"]), int(stream.attrs["vocabulary_size"])))
                if len(vocabularies) > 1:
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
        table = pile.table()
        _, order = np.unique(table["id"], return_index=True)
        (write or _write)(path, pile, table[order], *vocabularies.pop())


def document_runs(bounds: Index, most: int) -> Iterator[tuple[int, int]]:
    """Yield documents (first, last) in runs of about `most` sentences, at least one run.

    `bounds`: the first sentence of each document, then the end.
    """
    first, count = 0, len(bounds) - 1
    while first < max(count, 1):
        last = max(int(np.searchsorted(bounds, bounds[first] + most, side="right")) - 1, first + 1)
        yield first, min(last, count)
        first = last


def _write(path: Path, pile: Pile, table: Table, vocabulary_sha256: str, vocabulary_size: int) -> None:
    """Write these documents of a pile, in the table's order. The file is whole or absent."""
    attributes = {"schema": SCHEMA, "vocabulary_sha256": vocabulary_sha256, "vocabulary_size": vocabulary_size}
    zero = np.zeros(1, np.int64)
    bounds = accumulate(pile.lengths(table), lambda last, some: last[-1] + offsets(some)[1:], initial=zero)
    with hdf5.new_file(path, attributes) as stream:
        fill = partial(_fill, stream)
        fill("tokens", kind_for(vocabulary_size), int(table["tokens"].sum()), pile.tokens(table))
        fill("sentences", np.int64, int(table["sentences"].sum()) + 1, bounds)
        fill("documents", np.int64, len(table) + 1, [offsets(table["sentences"])])
        fill("ids", np.int64, len(table), [table["id"]])
        if pile.has_texts:
            stream.create_dataset("texts", data=table["sha256"], fletcher32=len(table) > 0, track_times=False)


def _fill(stream: h5py.File, name: str, kind: type[np.generic], size: int, data: Iterable[NDArray[Any]]) -> None:
    checked = {"chunks": (min(size, _BLOCK),), "fletcher32": True} if size else {}
    dataset = stream.create_dataset(name, (size,), kind, track_times=False, **checked)
    begin = 0
    for part in data:
        dataset[begin : begin + len(part)] = part
        begin += len(part)


def read(path: Path, allocator: Allocator | None = None) -> tuple[Documents, dict[str, Any]]:
    """Return the documents of a tokens file and its attributes. `allocator` supplies the memory of the arrays."""
    allocator = allocator or Allocator()
    with _open(path) as stream:
        arrays = []
        for name in ("tokens", "sentences", "documents", "ids"):
            arrays.append(allocator.empty(len(stream[name]), stream[name].dtype))
            for begin in range(0, len(arrays[-1]), 16 * _BLOCK):
                arrays[-1][begin : begin + 16 * _BLOCK] = stream[name][begin : begin + 16 * _BLOCK]
                allocator.release()
        return Documents(*arrays), dict(stream.attrs)


def _read_run(stream: h5py.File, first: int, last: int) -> Documents:
    documents = stream["documents"][first : last + 1]
    sentences = stream["sentences"][documents[0] : documents[-1] + 1]
    tokens = stream["tokens"][sentences[0] : sentences[-1]]
    texts = stream["texts"][first:last] if "texts" in stream else None
    return Documents(tokens, sentences - sentences[0], documents - documents[0], stream["ids"][first:last], texts)


_ROW = np.dtype([
    ("id", "i8"),  # the page id
    ("sentences", "i8"), ("tokens", "i8"),  # how many there are
    ("lengths_at", "i8"), ("tokens_at", "i8"),  # where the pile's file has the lengths of the sentences, and the tokens
    ("sha256", "u1", 32),  # of the text, where that is kept
])  # fmt: skip


class Pile:
    """Documents in the order in which they were added, and a table with a row of 72 bytes for each.

    The tokens and the sentences' lengths go into a nameless temporary file in `folder` when they take more than
    `memory_bytes`. All documents must have the same type of tokens.
    """

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._memory_bytes = memory_bytes
        self._file = tempfile.SpooledTemporaryFile(max(memory_bytes, 1), dir=str(folder))  # noqa: SIM115
        self._used = 0
        self._kind: np.dtype[Any] = np.dtype(np.uint16)
        self._rows = [np.zeros(0, _ROW)]
        self.has_texts = False  # whether the documents came with the SHA-256 of their texts

    def __enter__(self) -> Pile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, documents: Documents) -> None:
        """Add documents to the pile."""
        rows = np.zeros(len(documents), _ROW)
        bounds = documents.sentences[documents.documents]  # where each document begins in `tokens`
        lengths = np.diff(documents.sentences).astype(np.int32)
        self._kind = documents.tokens.dtype
        rows["id"], rows["sentences"], rows["tokens"] = documents.ids, np.diff(documents.documents), np.diff(bounds)
        rows["tokens_at"] = self._used + bounds[:-1] * self._kind.itemsize
        rows["lengths_at"] = self._used + documents.tokens.nbytes + documents.documents[:-1] * lengths.itemsize
        if documents.texts is not None:
            rows["sha256"], self.has_texts = documents.texts, True
        self._rows.append(rows)
        for array in (documents.tokens, lengths):
            self._file.write(np.ascontiguousarray(array).data if len(array) else b"")
            self._used += array.nbytes

    def table(self) -> Table:
        """Return the table of all documents. `tokens` and `lengths` take some of its rows, in any order."""
        self._rows = [np.concatenate(self._rows)]
        return self._rows[0]

    def tokens(self, table: Table) -> Iterator[NDArray[Any]]:
        """Yield the tokens of these documents, in several arrays."""
        return self._runs(table["tokens_at"], table["tokens"], self._kind)

    def lengths(self, table: Table) -> Iterator[NDArray[Any]]:
        """Yield how many tokens each sentence of these documents has, in several arrays."""
        return self._runs(table["lengths_at"], table["sentences"], np.dtype(np.int32))

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


class Allocator:
    """Gives out arrays: `memory_bytes` in memory, the rest mapped from nameless temporary files in `folder`."""

    def __init__(self, folder: Path = Path(), memory_bytes: int = sys.maxsize) -> None:
        self._folder, self._left = folder, memory_bytes
        self._mapped: list[mmap.mmap] = []

    def empty(self, size: int, kind: DTypeLike) -> NDArray[Any]:
        """Return an uninitialized array of one dimension."""
        bytes_needed = size * np.dtype(kind).itemsize
        if bytes_needed <= self._left or not bytes_needed:
            self._left -= bytes_needed
            return np.empty(size, kind)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.truncate(bytes_needed)
            self._mapped.append(mmap.mmap(file.fileno(), bytes_needed))
        return np.frombuffer(self._mapped[-1], kind)

    def release(self) -> None:
        """Release the memory pages of the files that this process has touched."""
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)

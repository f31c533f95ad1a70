"""From articles to shards of tokens: each part is encoded once, then its documents are gathered (see text/tokens.py).

A shard is an HDF5 file without compression, so that training can map it into memory. It holds:
* `tokens` u2[T]: the ids of all documents, with `<|endoftext|>` after each document.
* `documents` i8[D+1]: where each document begins, then T.
* `ids` i8[D]: the page ids.
* `texts` u1[D,32]: the SHA-256 of each text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe import vocabulary
from throughline.corpus.bpe.encoding import Encoder
from throughline.corpus.text import tokens
from throughline.corpus.text.tokenization import OwnTokenizer
from throughline.corpus.text.tokens import Article, Documents, Pile, Table
from throughline.datasets import hdf5

SCHEMA = 1
Encoded = Callable[[list[Article]], Documents]


def tokenize(articles: Path, vocabulary_folder: Path, path: Path, *, memory_bytes: int = tokens.MEMORY_BYTES) -> None:
    """Write the tokens file of one part's articles. An article without text is left out.

    `vocabulary_folder` may be the user's own tokenizer, a file.
    """
    if vocabulary_folder.is_file():
        own = OwnTokenizer(vocabulary_folder)
        facts = own.facts
        how: Encoded = partial(_encoded, own.texts, facts.end, tokens.kind_for(len(facts)))
        tokens.write_part(articles, how, path, facts.sha256, len(facts), memory_bytes=memory_bytes)
        return
    encoder = Encoder(vocabulary.read(vocabulary_folder), remember_bytes=memory_bytes // 4 * 3)
    known = vocabulary.SHA256, vocabulary.SIZE
    how = partial(_encoded, encoder.encode, vocabulary.END_OF_TEXT, np.uint16)
    tokens.write_part(articles, how, path, *known, memory_bytes=memory_bytes)


def _encoded(
    encode: Callable[[list[str]], list[NDArray[Any]]], last: int, kind: type[np.generic], batch: list[Article]
) -> Documents:
    """Encode a batch: each document is one sentence that ends with `<|endoftext|>`, whose id is `last`."""
    batch = [(number, text) for number, text in batch if text]
    texts = [text for _, text in batch]
    end = np.array([last], kind)
    encoded = [array.astype(kind, copy=False) for ids in encode(texts) for array in (ids, end)]
    lengths = np.array([len(array) for array in encoded], np.int64).reshape(-1, 2).sum(1)
    return Documents(
        np.concatenate([*encoded, end[:0]]),
        tokens.offsets(lengths),
        np.arange(len(batch) + 1),
        np.array([number for number, _ in batch], np.int64),
        np.frombuffer(b"".join(map(digest, texts)), np.uint8).reshape(-1, 32),
    )


def digest(text: str) -> bytes:
    """Return the SHA-256 of a text as UTF-8, without lone surrogates."""
    return hashlib.sha256(text.encode("utf-8", "ignore")).digest()


def gather(
    parts: Sequence[Path],
    shard: int,
    shards: int,
    parameters_digest: str,
    path: Path,
    *,
    memory_bytes: int = tokens.MEMORY_BYTES,
) -> None:
    """Write one of `shards` shards (training and test) from the tokens files of all parts."""
    write = partial(_write, parameters_digest)
    tokens.gather(parts, shard, shards, path, memory_bytes=memory_bytes, write=write)


def _write(parameters_digest: str, path: Path, pile: Pile, table: Table, sha256: str, size: int) -> None:
    lengths = table["tokens"]
    attributes = {"schema": SCHEMA, "vocabulary_sha256": sha256, "parameters_digest": parameters_digest}
    with hdf5.new_file(path, attributes) as stream:
        dataset = stream.create_dataset("tokens", (int(lengths.sum()),), tokens.kind_for(size), track_times=False)
        begin = 0
        for some in pile.tokens(table):
            dataset[begin : begin + len(some)] = some
            begin += len(some)
        for name, data in (("documents", tokens.offsets(lengths)), ("ids", table["id"]), ("texts", table["sha256"])):
            stream.create_dataset(name, data=data, track_times=False)

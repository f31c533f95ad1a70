"""From articles to verified shards of running text: each part is encoded once, then its documents are gathered
(text/tokens.py).

A shard is an HDF5 file without compression, so that training can map it into memory. It holds:
* `tokens` u2[T] (u4 for more than 65,536 entries): the ids of all documents, each followed by its end of text.
* `documents` i8[D+1]: where each document begins, then T.
* `ids` i8[D]: the page ids.
* `texts` u1[D,32]: the SHA-256 of each text.

GPT-2's pattern cuts a text into pieces: a word, a number or signs, each with the space before it, or blanks. Merges
never join bytes of different pieces. No piece has a blank after another character, so text can be split before blanks.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe import END_OF_TEXT, SHA256, SIZE, vocabulary
from throughline.corpus.bpe.vocabulary import Vocabulary
from throughline.corpus.reading import mapped
from throughline.corpus.text import tokens
from throughline.corpus.text.tokenization import BYTE_PAIRS, ChunkTokenizer, OwnTokenizer, Sentences
from throughline.corpus.text.tokens import Article, Documents, Pile, Table
from throughline.datasets import hdf5, manifest
from throughline.datasets.shards import fault
from throughline.progress import Progress

SCHEMA = 1
_ENCODED_AGAIN = 1 << 18  # about how many bytes of text are encoded again
_BLOCK = 1 << 22  # tokens at a time


class Encoder:
    """Turns texts into the ids of GPT-2's tokens, the same as tiktoken and `tokenizers`.

    It remembers chunks between calls, so use one instance for a whole part.
    """

    def __init__(self, vocabulary: Vocabulary, *, remember_bytes: int = sys.maxsize) -> None:
        # -1: no text is unknown, because every byte is a token
        self._chunks = ChunkTokenizer(BYTE_PAIRS, vocabulary.tokens, -1, lambda: _tokenizer(vocabulary), remember_bytes)

    def encode(self, texts: list[str]) -> list[NDArray[np.uint16]]:
        """Return the ids of each text, u2[tokens]. `<|endoftext|>` in a text is plain text.

        Lone surrogates are removed.
        """
        ids, lengths = self._chunks.encode(Sentences.from_texts(texts))
        return np.split(ids.astype(np.uint16), np.cumsum(lengths)[:-1]) if texts else []


def _tokenizer(vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocabulary.printed(), [*vocabulary.merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return tokenizer


def tokenize(articles: Path, vocabulary_path: Path, path: Path) -> None:
    """Write the tokens file of one part's articles. An article without text is left out.

    `vocabulary_path`: the folder of GPT-2's vocabulary, or the user's own tokenizer, a file.
    """
    encode: Callable[[list[str]], list[NDArray[Any]]]
    if vocabulary_path.is_file():
        tokenizer = OwnTokenizer(vocabulary_path)
        encode, end, sha256, size = tokenizer.texts, tokenizer.facts.end, tokenizer.facts.sha256, len(tokenizer.facts)
    else:
        encode = Encoder(vocabulary.read(vocabulary_path), remember_bytes=tokens.MEMORY_BYTES // 4 * 3).encode
        end, sha256, size = END_OF_TEXT, SHA256, SIZE
    encoded = partial(_encoded, encode, end, tokens.kind_for(size))
    tokens.write_part(articles, encoded, path, sha256, size)


def _encoded(
    encode: Callable[[list[str]], list[NDArray[Any]]], end: int, kind: type[np.generic], batch: list[Article]
) -> Documents:
    """Encode a batch: each document is one sentence that ends with the id `end`."""
    batch = [(number, text) for number, text in batch if text]
    texts = [text for _, text in batch]
    last = np.array([end], kind)
    encoded = [np.concatenate([ids.astype(kind, copy=False), last]) for ids in encode(texts)]
    return Documents(
        np.concatenate([*encoded, last[:0]]),
        tokens.offsets(np.array([len(ids) for ids in encoded], np.int64)),
        np.arange(len(batch) + 1),
        np.array([number for number, _ in batch], np.int64),
        np.frombuffer(b"".join(map(digest, texts)), np.uint8).reshape(-1, 32),
    )


def digest(text: str) -> bytes:
    """Return the SHA-256 of a text as UTF-8, without lone surrogates."""
    return hashlib.sha256(text.encode("utf-8", "ignore")).digest()


def gather(parts: Sequence[Path], shard: int, shards: int, parameters_digest: str, path: Path) -> None:
    """Write one of `shards` shards (training and test) from the tokens files of all parts."""
    tokens.gather(parts, shard, shards, path, partial(_write, parameters_digest))


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


def verify(path: Path, vocabulary_path: Path, parameters_digest: str) -> dict[str, Any]:
    """Verify a shard and return its entry for the manifest; UserError names the first fault.

    With GPT-2's vocabulary, the decoded text of every document must have the SHA-256 of its article, and some documents
    are encoded again and must give the same ids. Not every tokenizer of a user gives a text back as it was. So up to 64
    documents are decoded, and those whose text has the SHA-256 of its article are counted as proven.
    """
    if vocabulary_path.is_file():
        tokenizer = OwnTokenizer(vocabulary_path)
        sha256, size, end = tokenizer.facts.sha256, len(tokenizer.facts), tokenizer.facts.end
        shard = _Shard(path, sha256, size, end, parameters_digest)
        decoded = range(0, len(shard.texts), -(-len(shard.texts) // 64) or 1)
        proven = sum(digest(tokenizer.decoded(shard.document(at))) == shard.texts[at].tobytes() for at in decoded)
        words = {"size": size, "sha256": sha256, "tokenizer": sha256, "end_of_text": end}
        further = {"vocabulary": words, "texts_proven": proven, "texts_decoded": len(decoded)}
    else:
        shard, further = _Shard(path, SHA256, SIZE, END_OF_TEXT, parameters_digest), {}
        _check_texts(path, shard, vocabulary.read(vocabulary_path))
    return manifest.verified(path, {**shard.facts, **further}, shard.content_digest)


def _check_texts(path: Path, shard: _Shard, words: Vocabulary) -> None:
    encoder, budget, step = Encoder(words), _ENCODED_AGAIN, -(-len(shard.numbers) // 64)
    progress = Progress(f"verifying {path.name}", shard.tokens.nbytes)
    for document, number in enumerate(shard.numbers.tolist()):
        ids = shard.document(document)
        text = b"".join(map(words.tokens.__getitem__, ids.tolist()))
        if hashlib.sha256(text).digest() != shard.texts[document].tobytes():
            raise fault(path, f"has another text than the article {number}")
        if document % step == 0 and budget > 0:
            budget -= len(text)
            if not np.array_equal(encoder.encode([text.decode()])[0], ids):
                raise fault(path, f"has other ids than the article {number} is encoded to")
        progress.to(int(shard.bounds[document + 1]) * shard.tokens.itemsize)


class _Shard:
    """An open shard whose ids are in the vocabulary, and whose every document ends with its only end of text."""

    def __init__(self, path: Path, vocabulary_sha256: str, size: int, end: int, parameters_digest: str) -> None:
        """size, end: the vocabulary's number of entries, and the id that ends a document. UserError names a fault."""
        defect = partial(hdf5.defect, schema=SCHEMA, arrays=("tokens", "documents", "ids", "texts"))
        with hdf5.opened(path, defect) as stream:
            has = [stream.attrs.get(name) for name in ("vocabulary_sha256", "parameters_digest")]
            if has != [vocabulary_sha256, parameters_digest]:
                raise fault(path, "has another vocabulary or other parameters than asked for")
            kind = "<u2" if size <= 1 << 16 else "<i4"
            place = {"tokens": len(stream["tokens"]), "type": kind, "offset": stream["tokens"].id.get_offset() or 0}
            self.bounds, self.numbers, self.texts = (stream[name][...] for name in ("documents", "ids", "texts"))
        self.facts = {**place, "documents": len(self.numbers)}
        self.tokens = mapped(path, place) if place["tokens"] else np.zeros(0, kind)
        content, ends = hashlib.sha256(), [np.zeros(0, np.int64)]
        for first in range(0, len(self.tokens), _BLOCK):
            block = np.asarray(self.tokens[first : first + _BLOCK])
            if (outside := (block >= size) | (block < 0)).any():
                at = int(np.argmax(outside))
                beyond = f"the id {block[at]} at token {first + at} (counted from 0)"
                raise fault(path, f"has {beyond}: the vocabulary ends at {size - 1}")
            content.update(np.ascontiguousarray(block, kind).data)
            ends.append(first + 1 + np.flatnonzero(block == end))
        self.content_digest = content.hexdigest()
        bounds, documents = self.bounds, len(self.numbers)
        if not (
            len(bounds) == documents + 1 == len(self.texts) + 1
            and bounds[0] == 0
            and bounds[-1] == len(self.tokens)
            and np.array_equal(np.concatenate(ends), bounds[1:])
        ):
            raise fault(path, "has documents that do not end with the end of text, or have it inside")

    def document(self, number: int) -> NDArray[Any]:
        """Return the ids of a document without its end of text."""
        return np.asarray(self.tokens[self.bounds[number] : self.bounds[number + 1] - 1])

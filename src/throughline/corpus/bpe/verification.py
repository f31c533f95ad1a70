"""Verify a shard of tokens: read the whole file and, in our own shards, compare every document with its article.

A file of another maker (foreign_files.py) comes without its text, so we can only check its form and its ids.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe import foreign_files, making, vocabulary
from throughline.corpus.bpe.encoding import Encoder
from throughline.corpus.bpe.reading import mapped
from throughline.corpus.bpe.vocabulary import END_OF_TEXT, Vocabulary
from throughline.corpus.text.tokenization import OwnTokenizer
from throughline.corpus.text.tokens import Index
from throughline.datasets import hdf5, manifest
from throughline.datasets.shards import fault
from throughline.progress import Progress

_ENCODED_AGAIN = 1 << 18  # about how many bytes of text are encoded again
_BLOCK = 1 << 22  # tokens at a time


def verify(path: Path, words: Vocabulary, parameters_digest: str) -> dict[str, Any]:
    """Verify a shard of ours and return its entry for the manifest; UserError names the first fault.

    Every document must end with its only `<|endoftext|>`, and its decoded text must have the SHA-256 of its article.
    Some documents are encoded again and must give the same ids.
    """
    defect = partial(hdf5.defect, schema=making.SCHEMA, arrays=("tokens", "documents", "ids", "texts"))
    with hdf5.opened(path, defect) as stream:
        has = [stream.attrs.get(name) for name in ("vocabulary_sha256", "parameters_digest")]
        if has != [vocabulary.SHA256, parameters_digest]:
            raise fault(path, "has another vocabulary or other parameters than asked for")
        place = {"tokens": len(stream["tokens"]), "type": "<u2", "offset": stream["tokens"].id.get_offset() or 0}
        bounds, numbers, texts = (stream[name][...] for name in ("documents", "ids", "texts"))
    tokens = mapped(path, place) if place["tokens"] else np.zeros(0, np.uint16)
    content_digest, ends = _scanned(path, tokens)
    whole = len(bounds) == len(numbers) + 1 == len(texts) + 1 and bounds[0] == 0 and bounds[-1] == len(tokens)
    if not whole or not np.array_equal(ends, bounds[1:]):
        raise fault(path, "has documents that do not end with <|endoftext|>, or have it inside")
    encoder, left, every = Encoder(words), _ENCODED_AGAIN, -(-len(numbers) // 64)
    progress = Progress(f"verifying {path.name}", tokens.nbytes)
    for document, number in enumerate(numbers.tolist()):
        ids = np.asarray(tokens[bounds[document] : bounds[document + 1] - 1])
        text = b"".join(map(words.tokens.__getitem__, ids.tolist()))
        if hashlib.sha256(text).digest() != texts[document].tobytes():
            raise fault(path, f"has another text than the article {number}")
        if document % every == 0 and left > 0:
            left -= len(text)
            if not np.array_equal(encoder.encode([text.decode()])[0], ids):
                raise fault(path, f"has other ids than the article {number} is encoded to")
        progress.to(int(bounds[document + 1]) * tokens.itemsize)
    return manifest.verified(path, {**place, "documents": len(numbers)}, content_digest)


def verify_own(path: Path, own: OwnTokenizer, parameters_digest: str) -> dict[str, Any]:
    """Verify a shard that was made with the user's own tokenizer, and return its entry for the manifest.

    Every document must end with its only end of text, and all ids must be in the vocabulary. Not every tokenizer gives
    a text back as it was. So a document whose decoded text has the SHA-256 of its article is counted as proven.
    """
    facts, end = own.facts, own.facts.end
    defect = partial(hdf5.defect, schema=making.SCHEMA, arrays=("tokens", "documents", "ids", "texts"))
    with hdf5.opened(path, defect) as stream:
        has = [stream.attrs.get(name) for name in ("vocabulary_sha256", "parameters_digest")]
        if has != [facts.sha256, parameters_digest]:
            raise fault(path, "has another tokenizer or other parameters than asked for")
        kind = "<u2" if len(facts) <= 1 << 16 else "<i4"
        place = {"tokens": len(stream["tokens"]), "type": kind, "offset": stream["tokens"].id.get_offset() or 0}
        bounds, texts = (stream[name][...] for name in ("documents", "texts"))
    tokens = mapped(path, place) if place["tokens"] else np.zeros(0, kind)
    content_digest, ends = _scanned(path, tokens, Known(f"the tokenizer {facts.sha256[:12]}", len(facts), end, kind))
    if not (len(bounds) == len(texts) + 1 and bounds[0] == 0 and np.array_equal(ends, bounds[1:])):
        raise fault(path, f"has documents that do not end with {facts.entries[end]}, or have it inside")
    every = -(-len(texts) // 64) or 1
    looked = range(0, len(texts), every)
    same = [making.digest(own.decoded(tokens[bounds[at] : bounds[at + 1] - 1])) == texts[at].tobytes() for at in looked]
    words = {"size": len(facts), "sha256": facts.sha256, "tokenizer": facts.sha256, "end_of_text": end}
    told = {"documents": len(texts), "vocabulary": words, "texts_proven": sum(same), "texts_decoded": len(same)}
    return manifest.verified(path, {**place, **told}, content_digest)


def verify_foreign(path: Path) -> dict[str, Any]:
    """Verify a file of another maker, behind our link to it, and return its entry for the manifest."""
    opened = foreign_files.open_tokens(path)
    content_digest, ends = _scanned(path, opened.tokens)
    place = {"tokens": len(opened.tokens), "type": opened.tokens.dtype.str, "offset": opened.offset}
    documents = len(ends) if opened.documents is None else len(opened.documents) - 1
    return manifest.verified(path, {**place, "documents": documents}, content_digest)


@dataclass(frozen=True)
class Known:
    """A vocabulary: its name, its number of entries, the id that ends a document, and the type of the ids' digest."""

    name: str = "GPT-2's vocabulary"
    size: int = END_OF_TEXT + 1
    end: int = END_OF_TEXT
    kind: str = "<u2"


GPT2 = Known()


def _scanned(path: Path, tokens: NDArray[Any], known: Known = GPT2) -> tuple[str, Index]:
    """Return the SHA-256 of the ids as one type, whatever the file has, and the place after each `<|endoftext|>`.

    UserError if an id is not in the vocabulary.
    """
    content, ends = hashlib.sha256(), [np.zeros(0, np.int64)]
    for first in range(0, len(tokens), _BLOCK):
        block = np.asarray(tokens[first : first + _BLOCK])
        if block.max() >= known.size or block.min() < 0:
            at = int(np.argmax((block >= known.size) | (block < 0)))
            beyond = f"the id {block[at]} at token {first + at} (counted from 0)"
            raise fault(path, f"has {beyond}: {known.name} ends at {known.size - 1}")
        content.update(np.ascontiguousarray(block, known.kind).data)
        ends.append(first + 1 + np.flatnonzero(block == known.end))
    return content.hexdigest(), np.concatenate(ends)

"""Verify a shard of tokens: read the whole file and, in our own shards, compare every document with its article.

A file of another maker (foreign_files.py) comes without its text, so we can only check its form and its ids.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe import foreign_files, making, vocabulary
from throughline.corpus.bpe.encoding import Encoder
from throughline.corpus.bpe.reading import mapped
from throughline.corpus.bpe.vocabulary import END_OF_TEXT, Vocabulary
from throughline.corpus.text.tokens import Index
from throughline.datasets import hdf5, manifest
from throughline.datasets.faults import fault
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


def verify_foreign(path: Path) -> dict[str, Any]:
    """Verify a file of another maker, behind our link to it, and return its entry for the manifest."""
    opened = foreign_files.open_tokens(path)
    content_digest, ends = _scanned(path, opened.tokens)
    place = {"tokens": len(opened.tokens), "type": opened.tokens.dtype.str, "offset": opened.offset}
    documents = len(ends) if opened.documents is None else len(opened.documents) - 1
    return manifest.verified(path, {**place, "documents": documents}, content_digest)


def _scanned(path: Path, tokens: NDArray[Any]) -> tuple[str, Index]:
    """Return the SHA-256 of the ids as u2, whatever type the file has, and the place after each `<|endoftext|>`.

    UserError if an id is not in the vocabulary.
    """
    content, ends = hashlib.sha256(), [np.zeros(0, np.int64)]
    for first in range(0, len(tokens), _BLOCK):
        block = np.asarray(tokens[first : first + _BLOCK])
        if block.max() > END_OF_TEXT or block.min() < 0:
            at = int(np.argmax((block > END_OF_TEXT) | (block < 0)))
            beyond = f"the id {block[at]} at token {first + at} (counted from 0)"
            raise fault(path, f"has {beyond}: GPT-2's vocabulary ends at {END_OF_TEXT}")
        content.update(np.ascontiguousarray(block, "<u2").data)
        ends.append(first + 1 + np.flatnonzero(block == END_OF_TEXT))
    return content.hexdigest(), np.concatenate(ends)

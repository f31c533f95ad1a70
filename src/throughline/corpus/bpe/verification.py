"""Verify a shard of running text: read the whole file and compare its documents with their articles."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus.bpe import END_OF_TEXT, SHA256, SIZE, making
from throughline.corpus.bpe.reading import mapped
from throughline.corpus.bpe.vocabulary import Vocabulary
from throughline.corpus.text.tokenization import OwnTokenizer
from throughline.datasets import hdf5, manifest
from throughline.datasets.shards import fault
from throughline.progress import Progress

_ENCODED_AGAIN = 1 << 18  # about how many bytes of text are encoded again
_BLOCK = 1 << 22  # tokens at a time


def verify(path: Path, words: Vocabulary, parameters_digest: str) -> dict[str, Any]:
    """Verify a shard of GPT-2's tokens and return its entry for the manifest; UserError names the first fault.

    The decoded text of every document must have the SHA-256 of its article. Some documents are encoded again and must
    give the same ids.
    """
    shard = _Shard(path, SHA256, SIZE, END_OF_TEXT, parameters_digest)
    encoder, left, every = making.Encoder(words), _ENCODED_AGAIN, -(-len(shard.numbers) // 64)
    progress = Progress(f"verifying {path.name}", shard.tokens.nbytes)
    for document, number in enumerate(shard.numbers.tolist()):
        ids = shard.document(document)
        text = b"".join(map(words.tokens.__getitem__, ids.tolist()))
        if hashlib.sha256(text).digest() != shard.texts[document].tobytes():
            raise fault(path, f"has another text than the article {number}")
        if document % every == 0 and left > 0:
            left -= len(text)
            if not np.array_equal(encoder.encode([text.decode()])[0], ids):
                raise fault(path, f"has other ids than the article {number} is encoded to")
        progress.to(int(shard.bounds[document + 1]) * shard.tokens.itemsize)
    return manifest.verified(path, shard.facts, shard.content_digest)


def verify_own(path: Path, own: OwnTokenizer, parameters_digest: str) -> dict[str, Any]:
    """Verify a shard that was made with the user's own tokenizer, and return its entry for the manifest.

    Not every tokenizer gives a text back as it was. So up to 64 documents are decoded, and those whose text has the
    SHA-256 of its article are counted as proven.
    """
    sha256, size, end = own.facts.sha256, len(own.facts), own.facts.end
    shard = _Shard(path, sha256, size, end, parameters_digest)
    decoded = range(0, len(shard.texts), -(-len(shard.texts) // 64) or 1)
    proven = [making.digest(own.decoded(shard.document(at))) == shard.texts[at].tobytes() for at in decoded]
    words = {"size": size, "sha256": sha256, "tokenizer": sha256, "end_of_text": end}
    further = {"vocabulary": words, "texts_proven": sum(proven), "texts_decoded": len(proven)}
    return manifest.verified(path, {**shard.facts, **further}, shard.content_digest)


class _Shard:
    """An open shard whose ids are in the vocabulary, and whose every document ends with its only end of text."""

    def __init__(self, path: Path, vocabulary_sha256: str, size: int, end: int, parameters_digest: str) -> None:
        """size, end: the vocabulary's number of entries, and the id that ends a document. UserError names a fault."""
        defect = partial(hdf5.defect, schema=making.SCHEMA, arrays=("tokens", "documents", "ids", "texts"))
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

"""Form pairs of segments from tokenized documents, as the program of Devlin et al. 2018 (appendix A.2) does.

* A document is read in chunks of whole sentences. A chunk ends when it reaches a target length. The target is
  sequence - 3; for a share `short_sequences` of the documents it is a random length of at least 2.
* Segment A is a random number of the chunk's first sentences.
* Segment B is, half of the time, the rest of the chunk: the true continuation, label 0. Otherwise it is a run of
  sentences from another document, label 1, and the rest of the chunk is read again. If the chunk is one sentence, B
  always comes from another document.
* In a shard with one document, no label may be 1. There a chunk of one sentence takes the following sentence as B, or
  is left out if there is none.
* A pair that is too long loses tokens one by one from its longer segment, at the front or the back at random.

Each copy has a table of random numbers with a row per sentence, and a chunk uses the row of its first sentence.
kernel.c reads the documents. A plain version of the same rules is in tests/unit/corpus/shards/plain.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import randomness
from throughline.corpus import kernel
from throughline.corpus.shards import Parameters
from throughline.corpus.text.tokens import Allocator, Documents, document_runs

Index = NDArray[np.int64]
_SENTENCES = 1 << 16
"""For how many sentences random numbers are in memory at a time."""
_SORTED = 1 << 20
"""About how many pairs are sorted at a time."""


@dataclass(frozen=True)
class Pairs:
    """Pairs as runs of the documents' tokens: A is [a, a + a_length), B is [b, b + b_length); all are i8[N]."""

    a: Index
    a_length: Index
    b: Index
    b_length: Index
    random_next: NDArray[np.bool_]  # [N]: B comes from another document

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class Shuffled:
    """All pairs of a shard: as they were made, in narrow types, and their final order. `memory` holds them."""

    pairs: Pairs
    order: NDArray[np.integer]
    memory: Allocator

    def __len__(self) -> int:
        return len(self.order)

    def cut(self, begin: int, end: int) -> Pairs:
        """Return the pairs [begin, end) of the shard. The pages of memory that earlier calls touched are released."""
        self.memory.release()
        rows, pairs = self.order[begin:end], self.pairs
        places = (pairs.a, pairs.a_length, pairs.b, pairs.b_length)
        a, a_length, b, b_length = (column[rows].astype(np.int64) for column in places)
        return Pairs(a, a_length, b, b_length, pairs.random_next[rows])


def shuffled(
    documents: Documents, parameters: Parameters, split: str, shard: int, memory: Allocator | None = None
) -> Shuffled:
    """Return the pairs of all copies of a shard in their final order. `memory` supplies the memory of the arrays."""
    memory = memory or Allocator()
    names = (parameters.seed, split, shard, parameters.sequence_length)
    most = parameters.dupe_factor * (len(documents.sentences) - 1)
    token = np.uint32 if len(documents.tokens) < 1 << 32 else np.int64
    columns = [memory.empty(most, kind) for kind in (token, np.uint16, token, np.uint16, np.bool_)]
    count = 0
    for copy in range(parameters.dupe_factor):
        for block in pairs(documents, parameters, randomness.Stream(*names, copy, "pairs")):
            for column, field in zip(columns, fields(Pairs), strict=True):
                column[count : count + len(block)] = getattr(block, field.name)
            count += len(block)
        memory.release()
    whole = Pairs(*(column[:count] for column in columns))
    return Shuffled(whole, _order(randomness.Stream(*names, "order"), count, memory), memory)


def _order(stream: randomness.Stream, count: int, memory: Allocator) -> NDArray[np.integer]:
    """Return the numbers below `count` in random order: sorted by as many words of the stream, some at a time."""
    keys = memory.empty(count, np.uint64)
    order = memory.empty(count, np.uint32 if count < 1 << 32 else np.int64)
    for begin in range(0, count, _SORTED):
        keys[begin : begin + _SORTED] = stream.words(min(_SORTED, count - begin))
    begin, shares = 0, -(-count // _SORTED)
    for share in range(shares):
        low, high = ((number << 64) // shares for number in (share, share + 1))
        numbers = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high - 1)))
        order[begin : begin + len(numbers)] = numbers[np.argsort(keys[numbers], kind="stable")]
        begin += len(numbers)
    memory.release()
    return order


def pairs(documents: Documents, parameters: Parameters, stream: randomness.Stream) -> Iterator[Pairs]:
    """Yield the pairs of one copy in the documents' order, those of several documents at a time."""
    compiled: Any = kernel.load()
    aims = parameters.sequence_length - 3, parameters.short_sequences
    of_document = stream.words(len(documents), 2)
    for first, last in document_runs(documents.documents, _SENTENCES):
        of_sentence = stream.words(int(documents.documents[last] - documents.documents[first]), 5)
        a, a_length, b, b_length = (np.empty(len(of_sentence), np.int64) for _ in range(4))
        random_next = np.empty(len(of_sentence), np.uint8)
        count = compiled.pairs(
            first, last, len(documents), documents.sentences, documents.documents, *aims,
            of_document[first:last], of_sentence, a, a_length, b, b_length, random_next,
        )  # fmt: skip
        yield Pairs(a[:count], a_length[:count], b[:count], b_length[:count], random_next[:count].view(np.bool_))

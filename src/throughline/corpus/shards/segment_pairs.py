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

All functions are pure. Each copy has a table of random numbers with a row per sentence, and a chunk uses the row of its
first sentence. So kernel.c makes the same pairs as numpy does here.
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
from throughline.randomness import Words

Index = NDArray[np.int64]
_SENTENCES = 1 << 16
"""For how many sentences random numbers are in memory at a time."""
_SORTED = 1 << 20
"""About how many examples are sorted at a time."""


@dataclass(frozen=True)
class Pairs:
    """Examples as runs of the documents' tokens: A is [a, a + a_length), B is [b, b + b_length); all are i8[N]."""

    a: Index
    a_length: Index
    b: Index
    b_length: Index
    random_next: NDArray[np.bool_]  # [N]: B comes from another document

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class Shuffled:
    """All examples of a shard. `pairs` holds them as they were made, in narrow types; `order` is the final order."""

    pairs: Pairs
    order: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.order)

    def cut(self, begin: int, end: int) -> Pairs:
        """Return the examples [begin, end) of the shard."""
        rows, pairs = self.order[begin:end], self.pairs
        places = (pairs.a, pairs.a_length, pairs.b, pairs.b_length)
        a, a_length, b, b_length = (column[rows].astype(np.int64) for column in places)
        return Pairs(a, a_length, b, b_length, pairs.random_next[rows])


def examples(
    documents: Documents, parameters: Parameters, split: str, shard: int, allocator: Allocator | None = None
) -> Shuffled:
    """Return the examples of all copies of a shard in their final, shuffled order, not yet masked."""
    allocator = allocator or Allocator()
    names = (parameters.seed, split, shard, parameters.sequence_length)
    most = parameters.dupe_factor * (len(documents.sentences) - 1)
    token = np.uint32 if len(documents.tokens) < 1 << 32 else np.int64
    columns = [allocator.empty(most, kind) for kind in (token, np.uint16, token, np.uint16, np.bool_)]
    count = 0
    for copy in range(parameters.dupe_factor):
        for block in pairs(documents, parameters, randomness.Stream(*names, copy, "pairs")):
            for column, field in zip(columns, fields(Pairs), strict=True):
                column[count : count + len(block)] = getattr(block, field.name)
            count += len(block)
        allocator.release()
    whole = Pairs(*(column[:count] for column in columns))
    return Shuffled(whole, _order(randomness.Stream(*names, "order"), count, allocator))


def _order(stream: randomness.Stream, count: int, allocator: Allocator) -> NDArray[np.integer]:
    """Return the numbers below `count` in random order: sorted by as many words of the stream, some at a time."""
    keys = allocator.empty(count, np.uint64)
    order = allocator.empty(count, np.uint32 if count < 1 << 32 else np.int64)
    for begin in range(0, count, _SORTED):
        keys[begin : begin + _SORTED] = stream.words(min(_SORTED, count - begin))
    begin, shares = 0, -(-count // _SORTED)
    for share in range(shares):
        low, high = ((number << 64) // shares for number in (share, share + 1))
        numbers = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high - 1)))
        order[begin : begin + len(numbers)] = numbers[np.argsort(keys[numbers], kind="stable")]
        begin += len(numbers)
    allocator.release()
    return order


def pairs(documents: Documents, parameters: Parameters, stream: randomness.Stream) -> Iterator[Pairs]:
    """Yield the examples of one copy in the documents' order, those of several documents at a time."""
    of_document = stream.words(len(documents), 2)
    form = _pairs_by_numpy if kernel.load() is None else _pairs_by_kernel
    for first, last in document_runs(documents.documents, _SENTENCES):
        of_sentence = stream.words(int(documents.documents[last] - documents.documents[first]), 5)
        yield form(documents, parameters, range(first, last), of_document[first:last], of_sentence)


def _pairs_by_kernel(
    documents: Documents, parameters: Parameters, some: range, of_document: Words, of_sentence: Words
) -> Pairs:
    compiled: Any = kernel.load()
    columns = [np.empty(len(of_sentence), np.int64) for _ in range(4)]
    random_next = np.empty(len(of_sentence), np.uint8)
    bounds = some.start, some.stop, len(documents), documents.sentences, documents.documents
    aims = parameters.sequence_length - 3, parameters.short_sequences
    made = compiled.pairs(*bounds, *aims, of_document, of_sentence, *columns, random_next)
    a, a_length, b, b_length = (column[:made] for column in columns)
    return Pairs(a, a_length, b, b_length, random_next[:made].view(np.bool_))


def _pairs_by_numpy(
    documents: Documents, parameters: Parameters, some: range, of_document: Words, of_sentence: Words
) -> Pairs:
    """Form the pairs of these documents. All documents advance together: each step reads one chunk of each."""
    limit = parameters.sequence_length - 3
    count = len(documents)
    begins, bounds = documents.sentences, documents.documents
    short = randomness.uniform(of_document[:, 0]) < parameters.short_sequences
    targets = np.where(short, 2 + randomness.below(of_document[:, 1], np.full(len(short), limit - 1)), limit)
    made: list[tuple[Index, ...]] = [(np.zeros(0, np.int64),) * 6]
    lane = np.array(some, np.int64)  # the documents that are not yet read to their end
    at = bounds[lane]  # the sentence at which each document's next chunk begins
    sentence = int(bounds[some.start])
    while len(lane):
        first, end, target = at[lane - some.start], bounds[lane + 1], targets[lane - some.start]
        last = np.minimum(np.searchsorted(begins, begins[first] + target), end)
        if count == 1:
            last = np.where(last - first == 1, np.minimum(last + 1, end), last)
        words, size = of_sentence[first - sentence], last - first
        random = ((size == 1) | (words[:, 1] >> np.uint64(63) == 0)) & (count > 1)
        middle = first + 1 + np.where(size > 1, randomness.below(words[:, 0], np.maximum(size - 1, 1)), 0)
        a, a_length = begins[first], begins[middle] - begins[first]
        # a run from another document: as long as the target has room for, but at least one sentence
        other = randomness.below(words[:, 2], np.full(len(lane), max(count - 1, 1)))
        other = np.where((other >= lane) & (count > 1), other + 1, other)
        start = bounds[other] + randomness.below(words[:, 3], bounds[other + 1] - bounds[other])
        wanted = np.maximum(target - a_length, 1)
        stop = np.minimum(np.searchsorted(begins, begins[start] + wanted), bounds[other + 1])
        b_first, b_last = np.where(random, start, middle), np.where(random, stop, last)
        b, b_length = begins[b_first], begins[b_last] - begins[b_first]
        kept = b_length > 0
        columns = (first, a, a_length, b, b_length, random.astype(np.int64))
        made.append(tuple(column[kept] for column in columns))
        at[lane - some.start] = np.where(random, middle, last)
        lane = lane[at[lane - some.start] < end]
    first, a, a_length, b, b_length, is_random = map(np.concatenate, zip(*made, strict=True))
    order = np.argsort(first, kind="stable")
    whole = Pairs(a[order], a_length[order], b[order], b_length[order], is_random[order].astype(bool))
    return truncated(whole, limit, of_sentence[first[order] - sentence, 4])


def truncated(whole: Pairs, limit: int, words: Words) -> Pairs:
    """Return the pairs cut to `limit` tokens, as if the longer segment (B if equal) lost one token after another."""
    a_length, b_length = whole.a_length, whole.b_length
    excess = np.maximum(a_length + b_length - limit, 0)
    to_equal = np.minimum(excess, np.abs(a_length - b_length))
    rest = excess - to_equal
    from_a = np.where(a_length > b_length, to_equal, 0) + rest // 2
    from_b = excess - from_a
    a_front = randomness.heads(words, from_a)
    b_front = randomness.heads(~words * np.uint64(0xD6E8FEB86659FD93), from_b)
    return Pairs(whole.a + a_front, a_length - from_a, whole.b + b_front, b_length - from_b, whole.random_next)

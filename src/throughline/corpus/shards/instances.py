"""BERT's pre-training examples from tokenized documents: pairs of segments and masked tokens, as pure functions.

What the paper's program does, sentence by sentence (Devlin et al. 2018, appendix A.2):

* A document is read in chunks of whole sentences that reach a target length, which is sequence - 3; in
  `short_sequences` of the documents it is a random length from 2 on.
* Segment A is a random number of the chunk's first sentences. Segment B is, half of the time, the rest of the
  chunk (the true continuation, label 0); else, and always when the chunk is one sentence, a run of sentences
  from another document (label 1), and the rest of the chunk is read again.
* A pair that is too long loses tokens one by one from its longer segment, at its front or its back by the toss
  of a coin.
* Of the tokens, round(length x probability) are masked, at least 1 and at most `predictions`: 80 % become
  [MASK], 10 % a random word, 10 % stay.

Where that program is wrong this one is not: a shard with one document gets no false "random" label (a chunk of
one sentence takes the following sentence as B, or is left out), random words are never specials or unused
entries, and each shard and copy has random numbers of its own.

Every random number has a fixed place: chunks draw from row `first sentence` of a table per copy, masks from the
row of the finished, shuffled example. So kernel.c gives the same shards as what stands here in numpy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel, randomness
from throughline.corpus.rooms import Rooms
from throughline.corpus.shards.masks import masked_of
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

Index = NDArray[np.int64]
_SENTENCES = 1 << 16
"""Sentences whose random numbers are held at a time."""
_SORTED = 1 << 20
Arrays = dict[str, NDArray[np.int32] | NDArray[np.int8]]


@dataclass(frozen=True)
class Parameters:
    """How examples are made: `sequence` and `predictions` count tokens, the next two are shares.

    `dynamic`: the examples are not masked; masks.py does that while they are read.
    """

    sequence: int
    predictions: int
    probability: float = 0.15
    short_sequences: float = 0.1
    copies: int = 5
    seed: int = 12345
    dynamic: bool = False

    def __post_init__(self) -> None:
        for fine, what in (
            (5 <= self.sequence <= 1 << 15, f"sequence {self.sequence} is not between 5 and 32768"),
            (
                1 <= self.predictions <= self.sequence - 3,
                f"predictions {self.predictions} is not between 1 and sequence - 3",
            ),
            (0 < self.probability < 1, f"masking probability {self.probability} is not between 0 and 1"),
            (
                0 <= self.short_sequences <= 1,
                f"short_sequences {self.short_sequences} is not between 0 and 1",
            ),
            (self.copies >= 1, f"copies {self.copies} is less than 1"),
        ):
            if not fine:
                raise UserError(what, next_step="correct corpus.sequences or corpus.masking in config.yaml")

    def described(self) -> dict[str, Any]:
        """The parameters by name; what was added later and is off is left out, and changes no file."""
        return {name: value for name, value in asdict(self).items() if name != "dynamic" or value}

    @classmethod
    def from_json(cls, text: str) -> Parameters:
        """Parameters from a JSON object; UserError for a name that is unknown or missing."""
        try:
            values = json.loads(text)
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise UserError(
                f"not the parameters of a shard: {text}",
                why=str(error).replace("Parameters.__init__() ", ""),
                next_step=f"give a JSON object of {', '.join(field.name for field in fields(cls))}",
            ) from None


@dataclass(frozen=True)
class Pairs:
    """Examples as runs of tokens: A is [a, a + a_length) of the documents' tokens, B likewise; all i8[N].

    `random_next` (bool[N]): B comes from another document.
    """

    a: Index
    a_length: Index
    b: Index
    b_length: Index
    random_next: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class Shuffled:
    """All examples of a shard: `pairs` as they were made, in narrow types; `order`: which of them comes first, second
    and so on."""

    pairs: Pairs
    order: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.order)

    def cut(self, begin: int, end: int) -> Pairs:
        """The examples from `begin` to before `end` of the shard."""
        rows, pairs = self.order[begin:end], self.pairs
        places = (pairs.a, pairs.a_length, pairs.b, pairs.b_length)
        a, a_length, b, b_length = (column[rows].astype(np.int64) for column in places)
        return Pairs(a, a_length, b, b_length, pairs.random_next[rows])


def examples(
    documents: Documents, parameters: Parameters, split: str, shard: int, rooms: Rooms | None = None
) -> Shuffled:
    """All copies' examples of a shard in their final, shuffled order, not yet masked."""
    rooms = Rooms(Path(), sys.maxsize) if rooms is None else rooms
    names = (parameters.seed, split, shard, parameters.sequence)
    most = parameters.copies * (len(documents.sentences) - 1)
    place = np.uint32 if len(documents.tokens) < 1 << 32 else np.int64
    columns = [rooms.empty(most, kind) for kind in (place, np.uint16, place, np.uint16, np.bool_)]
    made = 0
    for copy in range(parameters.copies):
        for some in pairs(documents, parameters, randomness.Stream(*names, copy, "pairs")):
            for column, field in zip(columns, fields(Pairs), strict=True):
                column[made : made + len(some)] = getattr(some, field.name)
            made += len(some)
        rooms.leave()
    every = Pairs(*(column[:made] for column in columns))
    return Shuffled(every, _order(randomness.Stream(*names, "order"), made, rooms))


def _order(stream: randomness.Stream, count: int, rooms: Rooms) -> NDArray[np.integer]:
    """The numbers below `count` in the order of as many words of the stream, sorted some at a time."""
    keys = rooms.empty(count, np.uint64)
    order = rooms.empty(count, np.uint32 if count < 1 << 32 else np.int64)
    for begin in range(0, count, _SORTED):
        keys[begin : begin + _SORTED] = stream.words(min(_SORTED, count - begin))
    begin, shares = 0, -(-count // _SORTED)
    for share in range(shares):
        low, high = ((number << 64) // shares for number in (share, share + 1))
        mine = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high - 1)))
        order[begin : begin + len(mine)] = mine[np.argsort(keys[mine], kind="stable")]
        begin += len(mine)
    rooms.leave()
    return order


def pairs(documents: Documents, parameters: Parameters, stream: randomness.Stream) -> Iterator[Pairs]:
    """One copy's examples in the documents' order, those of some documents at a time."""
    of_document = stream.words(len(documents), 2)
    compiled = kernel.load()
    first = 0
    while first < len(documents):
        begin = int(documents.documents[first])
        last = max(int(np.searchsorted(documents.documents, begin + _SENTENCES, side="right")) - 1, first + 1)
        of_sentence = stream.words(int(documents.documents[last]) - begin, 5)
        some = first, last, of_document[first:last], of_sentence
        yield (
            _pairs_by_numpy(documents, parameters, *some)
            if compiled is None
            else _pairs_by_kernel(compiled, documents, parameters, *some)
        )
        first = last


def _pairs_by_kernel(
    compiled: Any,
    documents: Documents,
    parameters: Parameters,
    first: int,
    last: int,
    of_document: randomness.Words,
    of_sentence: randomness.Words,
) -> Pairs:
    rooms = [np.empty(len(of_sentence), np.int64) for _ in range(4)]
    random_next = np.empty(len(of_sentence), np.uint8)
    bounds = first, last, len(documents), documents.sentences, documents.documents
    aims = parameters.sequence - 3, parameters.short_sequences
    made = compiled.pairs(*bounds, *aims, of_document, of_sentence, *rooms, random_next)
    a, a_length, b, b_length = (room[:made] for room in rooms)
    return Pairs(a, a_length, b, b_length, random_next[:made].view(np.bool_))


def _pairs_by_numpy(
    documents: Documents,
    parameters: Parameters,
    first_document: int,
    last_document: int,
    of_document: randomness.Words,
    of_sentence: randomness.Words,
) -> Pairs:
    """All these documents advance together, a chunk each per step."""
    limit = parameters.sequence - 3
    count = len(documents)
    begins, bounds = documents.sentences, documents.documents
    short = randomness.uniform(of_document[:, 0]) < parameters.short_sequences
    targets = np.where(short, 2 + randomness.below(of_document[:, 1], np.full(len(short), limit - 1)), limit)
    made: list[tuple[Index, ...]] = []
    lane = np.arange(first_document, last_document)  # documents that are not yet read to their end
    at = bounds[lane]  # the sentence at which each document's next chunk begins
    sentence = int(bounds[first_document])
    while len(lane):
        first, end, target = at[lane - first_document], bounds[lane + 1], targets[lane - first_document]
        last = np.minimum(np.searchsorted(begins, begins[first] + target), end)
        if count == 1:
            last = np.where(last - first == 1, np.minimum(last + 1, end), last)
        words, size = of_sentence[first - sentence], last - first
        random = ((size == 1) | (words[:, 1] >> np.uint64(63) == 0)) & (count > 1)
        middle = first + 1 + np.where(size > 1, randomness.below(words[:, 0], np.maximum(size - 1, 1)), 0)
        a, a_length = begins[first], begins[middle] - begins[first]
        # a run from another document, as long as the target leaves room for and at least one sentence
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
        at[lane - first_document] = np.where(random, middle, last)
        lane = lane[at[lane - first_document] < end]
    first, a, a_length, b, b_length, is_random = (
        (np.concatenate([np.zeros(0, np.int64), *column]) for column in zip(*made, strict=True))
        if made
        else (np.zeros(0, np.int64) for _ in range(6))
    )
    order = np.argsort(first, kind="stable")
    whole = Pairs(a[order], a_length[order], b[order], b_length[order], is_random[order].astype(bool))
    return truncated(whole, limit, of_sentence[first[order] - sentence, 4])


def truncated(whole: Pairs, limit: int, words: randomness.Words) -> Pairs:
    """The pairs cut to `limit` tokens, as if the longer segment (B when equal) lost one token after another."""
    a_length, b_length = whole.a_length, whole.b_length
    excess = np.maximum(a_length + b_length - limit, 0)
    to_equal = np.minimum(excess, np.abs(a_length - b_length))
    rest = excess - to_equal
    from_a = np.where(a_length > b_length, to_equal, 0) + rest // 2
    from_b = excess - from_a
    a_front = randomness.heads(words, from_a)
    b_front = randomness.heads(~words * np.uint64(0xD6E8FEB86659FD93), from_b)
    return Pairs(whole.a + a_front, a_length - from_a, whole.b + b_front, b_length - from_b, whole.random_next)


def blocks(
    documents: Documents,
    order: Shuffled,
    parameters: Parameters,
    vocabulary: Vocabulary,
    split: str,
    shard: int,
    rows: int,
) -> Iterator[Arrays]:
    """The examples as arrays in NVIDIA's layout or unmasked (shards.py), `rows` at a time (fewer in the last block)."""
    if parameters.dynamic:
        for begin in range(0, len(order), rows):
            yield unmasked(documents.tokens, order.cut(begin, begin + rows), parameters, vocabulary)
        return
    stream = randomness.Stream(parameters.seed, split, shard, parameters.sequence, "masks")
    words = vocabulary.words
    compiled = kernel.load()
    for begin in range(0, len(order), rows):
        block = order.cut(begin, begin + rows)
        drawn = stream.words(len(block), parameters.predictions, 2)
        if compiled is None:
            arrays = assembled(documents.tokens, block, parameters, vocabulary)
            yield masked(arrays, block, parameters, vocabulary.mask, words, drawn)
        else:
            yield _filled(compiled, documents.tokens, block, parameters, vocabulary, words, drawn)


def unmasked(tokens: NDArray[np.integer], block: Pairs, parameters: Parameters, vocabulary: Vocabulary) -> Arrays:
    """The examples as an unmasked shard holds them: tokens, the two segments' lengths, labels."""
    compiled = kernel.load()
    if compiled is None:
        arrays = assembled(tokens, block, parameters, vocabulary)
    else:  # with no predictions, nothing is masked
        drawn = np.empty((len(block), 0, 2), np.uint64)
        arrays = _filled(compiled, tokens, block, parameters, vocabulary, vocabulary.words, drawn)
    return {
        "input_ids": arrays["input_ids"],
        "a_lengths": block.a_length.astype(np.int32),
        "b_lengths": block.b_length.astype(np.int32),
        "next_sentence_labels": arrays["next_sentence_labels"],
    }


def _filled(
    compiled: Any,
    tokens: NDArray[np.integer],
    block: Pairs,
    parameters: Parameters,
    vocabulary: Vocabulary,
    words: NDArray[np.int32],
    drawn: randomness.Words,
) -> Arrays:
    """What `assembled` and `masked` give, by kernel.c."""
    rows, sequence, predictions = len(block), parameters.sequence, drawn.shape[1]
    counts = masked_of(np.arange(sequence - 2), predictions, parameters.probability)
    arrays: Arrays = {
        "input_ids": np.empty((rows, sequence), np.int32),
        "input_mask": np.empty((rows, sequence), np.int8),
        "segment_ids": np.empty((rows, sequence), np.int8),
        "masked_lm_positions": np.empty((rows, predictions), np.int32),
        "masked_lm_ids": np.empty((rows, predictions), np.int32),
        "next_sentence_labels": np.empty(rows, np.int8),
    }
    compiled.filled(
        *(rows, sequence, predictions, tokens.ctypes.data, tokens.itemsize),
        *(block.a, block.a_length, block.b, block.b_length, block.random_next.view(np.uint8)),
        *(counts.astype(np.int32), drawn, words, len(words)),
        *(vocabulary.cls, vocabulary.sep, vocabulary.mask, np.empty(2 * sequence, np.uint16)),
        *(array if array.itemsize == 4 else array.view(np.uint8) for array in arrays.values()),
    )
    return arrays


def assembled(tokens: NDArray[np.integer], block: Pairs, parameters: Parameters, vocabulary: Vocabulary) -> Arrays:
    """[CLS] A [SEP] B [SEP] and padding: input_ids i4[N,S], input_mask and segment_ids i1[N,S], labels i1[N]."""
    column = np.arange(parameters.sequence)
    a_end = 1 + block.a_length[:, None]
    b_end = a_end + 1 + block.b_length[:, None]
    in_a = (column >= 1) & (column < a_end)
    in_b = (column > a_end) & (column < b_end)
    source = np.where(in_a, block.a[:, None] + column - 1, block.b[:, None] + column - a_end - 1)
    ids = np.where(in_a | in_b, tokens[np.where(in_a | in_b, source, 0)], 0).astype(np.int32)
    ids[:, 0] = vocabulary.cls
    np.put_along_axis(ids, a_end, vocabulary.sep, axis=1)
    np.put_along_axis(ids, b_end, vocabulary.sep, axis=1)
    return {
        "input_ids": ids,
        "input_mask": (column <= b_end).astype(np.int8),
        "segment_ids": ((column > a_end) & (column <= b_end)).astype(np.int8),
        "next_sentence_labels": block.random_next.astype(np.int8),
    }


def masked(
    arrays: Arrays,
    block: Pairs,
    parameters: Parameters,
    mask: int,
    words: NDArray[np.int32],
    drawn: randomness.Words,
) -> Arrays:
    """The arrays with masked tokens: changes input_ids, adds masked_lm_positions and masked_lm_ids, i4[N,P].

    Positions are drawn by the first P steps of a Fisher-Yates shuffle of the positions that hold A and B.
    `drawn`: u8[N,P,2], a word for the place and one for what happens there.
    """
    ids, most = arrays["input_ids"], parameters.predictions
    candidates = block.a_length + block.b_length
    count = masked_of(candidates, most, parameters.probability)
    row = np.arange(len(block))
    pool = np.tile(np.arange(parameters.sequence - 3), (len(block), 1))
    for k in range(most):
        j = np.minimum(k + randomness.below(drawn[:, k, 0], np.maximum(candidates - k, 1)), parameters.sequence - 4)
        pool[row, k], pool[row, j] = pool[row, j], pool[row, k].copy()
    unused = np.arange(most) >= count[:, None]
    chosen = np.sort(np.where(unused, parameters.sequence, pool[:, :most]), axis=1)
    positions = np.where(unused, 0, chosen + 1 + (chosen >= block.a_length[:, None]))
    labels = np.where(unused, 0, np.take_along_axis(ids, positions, axis=1))
    chance = randomness.uniform(drawn[:, :, 1])
    other = words[randomness.below(randomness.lower_half(drawn[:, :, 1]), np.full(drawn.shape[:2], len(words)))]
    instead = np.where(chance < 0.8, mask, np.where(chance < 0.9, labels, other))
    used_row, used_column = np.nonzero(~unused)
    ids = ids.copy()
    ids[used_row, positions[used_row, used_column]] = instead[used_row, used_column]
    return {
        **arrays,
        "input_ids": ids.astype(np.int32),
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": labels.astype(np.int32),
    }

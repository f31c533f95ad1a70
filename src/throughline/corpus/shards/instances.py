"""Turn pairs of segments into examples: arrays in NVIDIA's layout, masked or not. All functions are pure.

In each example round(length x probability) tokens are masked, at least 1 and at most `predictions`. Of these, 80 %
become [MASK], 10 % become a random word and 10 % stay (Devlin et al. 2018, appendix A.2). A random word is never a
special token or an unused entry. Each row of the shuffled shard has its own random numbers, so kernel.c makes the same
shards as numpy does here.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import randomness
from throughline.corpus import kernel
from throughline.corpus.shards import Parameters, layout
from throughline.corpus.shards.masks import masked_of
from throughline.corpus.shards.segment_pairs import Pairs, Shuffled
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.randomness import Words

Arrays = dict[str, NDArray[Any]]


def blocks(
    documents: Documents,
    order: Shuffled,
    parameters: Parameters,
    vocabulary: Vocabulary,
    split: str,
    shard: int,
    rows: int,
) -> Iterator[Arrays]:
    """Yield the examples, `rows` at a time (fewer in the last block), in NVIDIA's layout or unmasked (layout.py)."""
    stream = randomness.Stream(parameters.seed, split, shard, parameters.sequence_length, "masks")
    predictions = 0 if parameters.dynamic else parameters.predictions  # with 0 predictions, nothing is masked
    for begin in range(0, len(order), rows):
        block = order.cut(begin, begin + rows)
        drawn = stream.words(len(block), predictions, 2)
        if kernel.load() is not None:
            arrays = _filled(documents.tokens, block, parameters, vocabulary, drawn)
        else:
            arrays = assembled(documents.tokens, block, parameters, vocabulary)
            arrays = arrays if parameters.dynamic else masked(arrays, block, parameters, vocabulary, drawn)
        if parameters.dynamic:
            lengths = {"a_lengths": block.a_length.astype(np.int32), "b_lengths": block.b_length.astype(np.int32)}
            arrays = {name: lengths[name] if name in lengths else arrays[name] for name in layout.UNMASKED}
        yield arrays


def _filled(
    tokens: NDArray[np.integer], block: Pairs, parameters: Parameters, vocabulary: Vocabulary, drawn: Words
) -> Arrays:
    """Return what `assembled` and `masked` return, made by kernel.c."""
    compiled: Any = kernel.load()
    rows, sequence_length, predictions = len(block), parameters.sequence_length, drawn.shape[1]
    counts = masked_of(np.arange(sequence_length - 2), predictions, parameters.probability)
    shapes = layout.shapes(rows, sequence_length, predictions)
    arrays = {name: np.empty(shape, layout.TYPES[name]) for name, shape in shapes.items()}
    compiled.filled(
        rows, sequence_length, predictions, tokens.ctypes.data, tokens.itemsize,
        block.a, block.a_length, block.b, block.b_length, block.random_next.view(np.uint8),
        counts.astype(np.int32), drawn, vocabulary.words, len(vocabulary.words),
        vocabulary.cls, vocabulary.sep, vocabulary.mask, np.empty(2 * sequence_length, np.uint16),
        *(array if array.itemsize == 4 else array.view(np.uint8) for array in arrays.values()),
    )  # fmt: skip
    return arrays


def assembled(tokens: NDArray[np.integer], block: Pairs, parameters: Parameters, vocabulary: Vocabulary) -> Arrays:
    """Return unmasked rows of [CLS] A [SEP] B [SEP] and padding.

    The arrays are input_ids i4[N,S], input_mask and segment_ids i1[N,S], and next_sentence_labels i1[N].
    """
    column = np.arange(parameters.sequence_length)
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


def masked(arrays: Arrays, block: Pairs, parameters: Parameters, vocabulary: Vocabulary, drawn: Words) -> Arrays:
    """Return the arrays with masked tokens: new input_ids, and also masked_lm_positions and masked_lm_ids, i4[N,P].

    The positions are drawn by the first P steps of a Fisher-Yates shuffle of the positions of A and B.
    `drawn`, u8[N,P,2], holds two random words per mask: one chooses the position, one chooses what happens there.
    """
    ids, most, words = arrays["input_ids"], parameters.predictions, vocabulary.words
    candidates = block.a_length + block.b_length
    count = masked_of(candidates, most, parameters.probability)
    row, length = np.arange(len(block)), parameters.sequence_length
    pool = np.tile(np.arange(length - 3), (len(block), 1))
    for k in range(most):
        j = np.minimum(k + randomness.below(drawn[:, k, 0], np.maximum(candidates - k, 1)), length - 4)
        pool[row, k], pool[row, j] = pool[row, j], pool[row, k].copy()
    unused = np.arange(most) >= count[:, None]
    chosen = np.sort(np.where(unused, length, pool[:, :most]), axis=1)
    positions = np.where(unused, 0, chosen + 1 + (chosen >= block.a_length[:, None]))
    labels = np.where(unused, 0, np.take_along_axis(ids, positions, axis=1))
    chance, lower_half = randomness.uniform(drawn[:, :, 1]), drawn[:, :, 1] << np.uint64(32)
    other = words[randomness.below(lower_half, np.full(drawn.shape[:2], len(words)))]
    instead = np.where(chance < 0.8, vocabulary.mask, np.where(chance < 0.9, labels, other))
    used_row, used_column = np.nonzero(~unused)
    ids = ids.copy()
    ids[used_row, positions[used_row, used_column]] = instead[used_row, used_column]
    return {
        **arrays,
        "input_ids": ids.astype(np.int32),
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": labels.astype(np.int32),
    }

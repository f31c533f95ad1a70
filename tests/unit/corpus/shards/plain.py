"""The rules of pairs, masks and rows in plain Python, one token at a time. kernel.c has to give the same."""

import numpy as np

from throughline import randomness
from throughline.corpus.shards import Parameters
from throughline.corpus.shards.verification import COUNTED, FAULTS
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import Vocabulary

Row = dict[str, list[int]]


def below(word: int, bound: int) -> int:
    return (int(word) >> 32) * bound >> 32


def uniform(word: int) -> float:
    return (int(word) >> 32) / 2**32


def heads(word: int, tosses: int) -> int:
    """Toss coins: the highest bits of a word, then those of the word that splitmix64 makes from it, and so on."""
    count = 0
    while tosses > 0:
        count += (int(word) >> 64 - min(tosses, 64)).bit_count()
        word, tosses = int(randomness.splitmix64(np.array([word], np.uint64))[0]), tosses - 64
    return count


def pairs(found: Documents, parameters: Parameters, stream: randomness.Stream) -> list[list[int]]:
    """Return the pairs of one copy: the places and lengths of A and B, and 1 if B is from another document."""
    count, limit = len(found), parameters.sequence_length - 3
    of_document = stream.words(count, 2).tolist()
    of_sentence = stream.words(len(found.sentences) - 1, 5).tolist()
    begins, bounds = found.sentences.tolist(), found.documents.tolist()
    made = []
    for number in range(count):
        target = limit
        if uniform(of_document[number][0]) < parameters.short_sequences:
            target = 2 + below(of_document[number][1], limit - 1)
        first, end = bounds[number], bounds[number + 1]
        while first < end:
            drawn, last = of_sentence[first], first
            while last < end and begins[last] - begins[first] < target:
                last += 1
            if count == 1 and last - first == 1 and last < end:
                last += 1
            middle = first + 1 + (below(drawn[0], last - first - 1) if last - first > 1 else 0)
            is_random = count > 1 and (last - first == 1 or drawn[1] < 1 << 63)
            a, b = range(begins[first], begins[middle]), range(begins[middle], begins[last])
            if is_random:
                other = below(drawn[2], count - 1)
                other += other >= number
                start = bounds[other] + below(drawn[3], bounds[other + 1] - bounds[other])
                stop = start + 1
                while stop < bounds[other + 1] and begins[stop] - begins[start] < target - len(a):
                    stop += 1
                b = range(begins[start], begins[stop])
            if b:
                lengths = [len(a), len(b)]
                while sum(lengths) > limit:
                    lengths[0 if lengths[0] > lengths[1] else 1] -= 1
                a_front = heads(drawn[4], len(a) - lengths[0])
                b_front = heads(~drawn[4] * 0xD6E8FEB86659FD93 % 2**64, len(b) - lengths[1])
                made.append([a[0] + a_front, lengths[0], b[0] + b_front, lengths[1], int(is_random)])
            first = middle if is_random else last
    return made


def unmasked(found: Documents, pair: list[int], length: int, words: Vocabulary) -> Row:
    """Return [CLS] A [SEP] B [SEP] and padding."""
    a, a_length, b, b_length, is_random = pair
    first = [words.cls, *found.tokens[a : a + a_length].tolist(), words.sep]
    second = [*found.tokens[b : b + b_length].tolist(), words.sep]
    padding = [0] * (length - len(first) - len(second))
    return {
        "input_ids": [*first, *second, *padding],
        "input_mask": [1] * (len(first) + len(second)) + padding,
        "segment_ids": [0] * len(first) + [1] * len(second) + padding,
        "next_sentence_labels": [is_random],
        "a_lengths": [a_length],
        "b_lengths": [b_length],
    }


def masked(row: Row, drawn: list[list[int]], parameters: Parameters, words: Vocabulary) -> Row:
    """Return the row with masks. `drawn`: two random words for each prediction."""
    ids = [*row["input_ids"]]
    a_end = row["a_lengths"][0] + 1
    pool = [*range(1, a_end), *range(a_end + 1, a_end + 1 + row["b_lengths"][0])]
    count = min(max(round((len(pool) + 3) * parameters.probability), 1), parameters.predictions, len(pool))
    for k in range(count):
        j = k + below(drawn[k][0], len(pool) - k)
        pool[k], pool[j] = pool[j], pool[k]
    positions = sorted(pool[:count])
    labels = [ids[at] for at in positions]
    for at, (_, word) in zip(positions, drawn, strict=False):
        if uniform(word) < 0.8:
            ids[at] = words.mask
        elif uniform(word) >= 0.9:
            ids[at] = int(words.words[below((word << 32) % 2**64, len(words.words))])
    zeros = [0] * (parameters.predictions - count)
    return {**row, "input_ids": ids, "masked_lm_positions": positions + zeros, "masked_lm_ids": labels + zeros}


def fault_of(row: Row, words: Vocabulary, promised: Parameters | None) -> str:
    """Return which of FAULTS the row has first; an empty text if it keeps every rule."""
    ids, positions, labels = row["input_ids"], row["masked_lm_positions"], row["masked_lm_ids"]
    length, second, first = sum(row["input_mask"]), sum(row["segment_ids"]), [*row["segment_ids"], 1].index(1)
    _, form, outside, masks, promises, label = FAULTS
    padding = len(ids) - length
    if row["next_sentence_labels"][0] not in (0, 1):
        return label
    if row["input_mask"] != [1] * length + [0] * padding or length < 5 or first < 3 or second < 2:
        return form
    if row["segment_ids"] != [0] * first + [1] * second + [0] * padding or first + second != length:
        return form
    if not all(0 <= token < len(words) for token in ids[:length]):
        return outside
    if any(ids[length:]) or [ids[0], ids[first - 1], ids[length - 1]] != [words.cls, words.sep, words.sep]:
        return form
    count = labels.index(0) if 0 in labels else len(labels)
    if not count or any(labels[count:]) or any(positions[count:]):
        return masks
    for k, (at, label_id) in enumerate(zip(positions[:count], labels[:count], strict=True)):
        if not 0 <= label_id < len(words):
            return outside
        if not (positions[k - 1] if k else 0) < at < length - 1 or at == first - 1:
            return masks
    if promised is None:
        return ""
    originals = [*ids[:length]]
    for at, before in zip(positions[:count], labels[:count], strict=True):
        if ids[at] not in (words.mask, before) and words.kinds[ids[at]] != 2:
            return promises
        originals[at] = before
    specials = sum(words.kinds[token] == 1 for token in originals)
    wanted = min(max(round(length * promised.probability), 1), promised.predictions, length - 3)
    return "" if specials == 3 and count == wanted else promises


def counted(row: Row, words: Vocabulary) -> dict[str, int]:
    """Return what is counted in a row that keeps every rule, by the names COUNTED."""
    places = zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True)
    masks = [(row["input_ids"][at], before) for at, before in places if before]
    counts = (
        1,
        sum(row["input_mask"]),
        len(masks),
        sum(now == words.mask for now, _ in masks),
        sum(now == before for now, before in masks),
        row["next_sentence_labels"][0],
        sum(before == words.unk for _, before in masks),
        sum(now not in (words.mask, before) for now, before in masks),
    )
    return dict(zip(COUNTED, counts, strict=True))

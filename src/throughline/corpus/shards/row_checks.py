"""Check what the rows of a shard promise: the rules of the layout for every shard, and stricter rules for ours.

kernel.c checks rows in one pass. The numpy code here does the same checks, and also says what is wrong and where.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel
from throughline.corpus.shards import Parameters, layout
from throughline.corpus.shards.masks import masked_of
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.datasets.shards import fault

_SIGMAS = 5  # by chance, one share in 1.7 million is farther off
_COUNTED = ("rows", "tokens", "masked", "replaced_by_mask", "unchanged", "random_next", "unknown", "changed")
Arrays = Mapping[str, NDArray[Any]]


def check(path: Path, block: Arrays, vocabulary: Vocabulary, promised: Parameters | None, first: int) -> dict[str, int]:
    """Check some rows of a shard and return what was counted in them.

    `first`: the number of the first of these rows. `promised`: the parameters of a shard of ours, None for others.
    """
    counts = _compiled_counts(block, vocabulary, promised)
    if counts is None:
        check_layout(path, block, vocabulary, first)
        if promised is not None:
            check_promises(path, block, vocabulary, promised, first)
        counts = counted(block, vocabulary)
    return counts


def _compiled_counts(block: Arrays, vocabulary: Vocabulary, promised: Parameters | None) -> dict[str, int] | None:
    """Return the result of `counted`, made by kernel.c.

    Returns None without kernel.c, and if it found a fault: then check_layout or check_promises say what is wrong.
    """
    compiled, masked = kernel.load(), None
    if compiled is None:
        return None
    rows, sequence_length = block["input_ids"].shape
    arrays = [np.ascontiguousarray(block[name]) for name in layout.TYPES]
    if promised is not None:
        masked = masked_of(np.arange(sequence_length - 2), promised.predictions, promised.probability).astype(np.int32)
    counts = np.zeros(len(_COUNTED), np.int64)
    fine = compiled.checked(
        rows, sequence_length, block["masked_lm_ids"].shape[1], len(vocabulary),
        vocabulary.cls, vocabulary.sep, vocabulary.mask, vocabulary.unk, vocabulary.kinds,
        masked.ctypes.data if masked is not None else None,
        *(array if array.itemsize == 4 else array.view(np.uint8) for array in arrays),
        counts,
    )  # fmt: skip
    return dict(zip(_COUNTED, counts.tolist(), strict=True)) if fine else None


def check_lengths(path: Path, block: Arrays, first: int = 0) -> None:
    """Check that the segments of unmasked rows fit into their rows. `first`: the number of the first of these rows."""
    a_length, b_length = (block[name].astype(np.int64) for name in ("a_lengths", "b_lengths"))
    fits = (a_length >= 1) & (b_length >= 1) & (a_length + b_length + 3 <= block["input_ids"].shape[1])
    _all_hold(path, [(fits, "segments without tokens, or longer than the row")], first)


def check_layout(path: Path, arrays: Arrays, vocabulary: Vocabulary, first: int = 0) -> None:
    """Check the rules of the layout. `first`: the number of the first of these rows."""
    ids, positions, labels = arrays["input_ids"], arrays["masked_lm_positions"], arrays["masked_lm_ids"]
    segments, mask = arrays["segment_ids"], arrays["input_mask"]
    length = mask.sum(axis=1, dtype=np.int64)[:, None]
    second = segments.sum(axis=1, dtype=np.int64)[:, None]
    column, number = np.arange(ids.shape[1]), np.arange(positions.shape[1])
    used = labels != 0
    masked = used.sum(axis=1)[:, None]
    checks = [
        ((ids >= 0) & (ids < len(vocabulary)), "input_ids outside the vocabulary"),
        ((labels >= 0) & (labels < len(vocabulary)), "masked_lm_ids outside the vocabulary"),
        (np.isin(arrays["next_sentence_labels"], (0, 1)), "a next_sentence_label that is neither 0 nor 1"),
        (length >= 5, "an example shorter than [CLS] A [SEP] B [SEP]"),
        (mask == (column < length), "an input_mask that is not ones followed by zeros"),
        ((ids == vocabulary.pad) | (mask == 1), "padding that is not [PAD]"),
        (segments == ((column >= length - second) & (column < length)), "segment_ids that are not A, then B"),
        ((second >= 2) & (length - second >= 3), "a segment without tokens"),
        (used == (number < masked), "masked_lm_ids with a gap"),
        ((positions != 0) == used, "masked_lm_positions and masked_lm_ids of different number"),
        (masked >= 1, "an example without a masked token"),
        ((np.diff(positions, axis=1) > 0) | ~used[:, 1:], "masked_lm_positions that are not ascending"),
        ((positions > 0) & (positions < length - 1) | ~used, "a masked position outside the text"),
        ((positions != length - second - 1) | ~used, "a masked [SEP]"),
    ]
    _all_hold(path, checks, first)
    originals = restored(arrays)
    every = np.arange(len(ids))
    checks = [
        (originals[:, 0] == vocabulary.cls, "an example that does not begin with [CLS]"),
        (originals[every, length[:, 0] - 1] == vocabulary.sep, "an example that does not end with [SEP]"),
        (originals[every, (length - second)[:, 0] - 1] == vocabulary.sep, "no [SEP] between A and B"),
    ]
    _all_hold(path, checks, first)


def restored(arrays: Arrays) -> NDArray[np.int32]:
    """Return the ids as they were before masking, i4[N,S]."""
    originals, labels = np.array(arrays["input_ids"]), arrays["masked_lm_ids"]
    row, k = np.nonzero(labels)
    originals[row, arrays["masked_lm_positions"][row, k]] = labels[row, k]
    return originals


def check_promises(path: Path, arrays: Arrays, vocabulary: Vocabulary, parameters: Parameters, first: int = 0) -> None:
    """Check the promises that the rows of our own shards make beyond the layout."""
    labels, ids, originals = arrays["masked_lm_ids"], arrays["input_ids"], restored(arrays)
    length = arrays["input_mask"].sum(axis=1, dtype=np.int64)
    count = np.clip(np.rint(length * parameters.probability), 1, parameters.predictions)
    count = np.minimum(count, length - 3)
    specials = (vocabulary.kinds[originals] == 1).sum(axis=1) - (originals.shape[1] - length)  # without the padding
    row, k = np.nonzero(labels)
    now, before = ids[row, arrays["masked_lm_positions"][row, k]], labels[row, k]
    allowed = (now == vocabulary.mask) | (now == before) | (vocabulary.kinds[now] == 2)
    checks = [
        ((labels != 0).sum(axis=1) == count, "a wrong number of masked tokens"),
        (specials == 3, "a special token inside the text"),
        (allowed.all(), "a special or unused entry as a random word"),
    ]
    _all_hold(path, checks, first)


def check_shares(path: Path, counts: Mapping[str, int], vocabulary: Vocabulary) -> None:
    """Check the shares of [MASK], unchanged and random words over a whole shard of ours."""
    masked, words = counts["masked"], len(vocabulary.words)
    for name, expected, what in (
        ("replaced_by_mask", 0.8, "a share of [MASK] far from 80 %"),
        ("unchanged", 0.1 + 0.1 / words, "a share of unchanged words far from 10 %"),
        ("changed", 0.1 - 0.1 / words, "a share of random words far from 10 %"),
    ):
        spread = (expected * (1 - expected) / masked) ** 0.5
        if abs(counts[name] / masked - expected) > _SIGMAS * spread + 1 / masked:
            raise fault(path, f"has {what}")


def _all_hold(path: Path, checks: list[tuple[Any, str]], first: int) -> None:
    for holds, what in checks:
        if not np.all(holds):
            holds = np.asarray(holds)
            if holds.ndim:
                row = first + int(np.argwhere(~holds)[0][0])
                raise fault(path, f"has {what}", f"first in row {row} (counted from 0)")
            raise fault(path, f"has {what}")


def counted(arrays: Arrays, vocabulary: Vocabulary) -> dict[str, int]:
    """Return the counts that `shares` and `check_shares` need."""
    labels = arrays["masked_lm_ids"]
    row, k = np.nonzero(labels)
    now, before = arrays["input_ids"][row, arrays["masked_lm_positions"][row, k]], labels[row, k]
    return {
        "rows": len(labels),
        "tokens": int(arrays["input_mask"].sum(dtype=np.int64)),
        "masked": len(row),
        "replaced_by_mask": int((now == vocabulary.mask).sum()),
        "unchanged": int((now == before).sum()),
        "random_next": int(arrays["next_sentence_labels"].sum(dtype=np.int64)),
        "unknown": int((before == vocabulary.unk).sum()),
        "changed": int(((now != vocabulary.mask) & (now != before)).sum()),
    }


def shares(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return shares and means from the counts of at least one row."""
    rows, masked = counts["rows"], counts["masked"]
    return {
        "tokens_per_row": counts["tokens"] / rows,
        "masked_per_row": masked / rows,
        "masked_share": masked / (counts["tokens"] - 3 * rows),
        "replaced_by_mask_share": counts["replaced_by_mask"] / masked,
        "unchanged_share": counts["unchanged"] / masked,
        "random_next_share": counts["random_next"] / rows,
        "unknown_share": counts["unknown"] / masked,
    }

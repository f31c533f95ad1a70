"""Is a shard what it should be? Reads it whole and checks every promise of the layout, example by example.

Shards of other makers are checked by the layout's rules. Ours have to keep stricter ones as well: the exact number
of masked tokens, no special among the text, shares within the bounds of chance. With the tokens a shard was made
from, second segments are looked up in them: a true continuation has to follow in the same document, a random
one must not come from it. Of a shard whose masks are drawn while it is read, the first epoch's are judged.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import files
from throughline.corpus import kernel
from throughline.corpus.rooms import Rooms
from throughline.corpus.shards import layout
from throughline.corpus.shards.instances import Parameters
from throughline.corpus.shards.masks import Masking, masked_of, ranges
from throughline.corpus.text import tokens
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

SCHEMA = 1
_SIGMAS = 5  # by chance one share in 1.7 million lies farther off
_LOOK_UP_BYTES = 1 << 30  # search at most so much text for second segments
_LOOKED_UP_AT_ONCE = 1024
_TOO_COMMON = 1000
_ROWS = 2048  # checked at a time, within a processor's cache
_COUNTED = ("rows", "tokens", "masked", "replaced_by_mask", "unchanged", "random_next", "unknown", "changed")
Index = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


def verify(
    path: Path,
    vocabulary: Vocabulary,
    parameters: Parameters | None = None,
    tokens_file: Path | None = None,
    size: tuple[int, int] | None = None,
    memory_bytes: int = tokens.MEMORY_BYTES,
) -> dict[str, Any]:
    """The shard's rows, digests and statistics; UserError naming the first fault found.

    `parameters`: what the shard was asked to be; absent, it is judged as a shard of an unknown maker, of which no more
    may be known than its sequence length and predictions (`size`). Tokens beyond `memory_bytes` lie in a mapped file.
    """
    with layout.open_shard(path) as stream:
        rows, sequence, predictions = layout.extent(stream)
        ours = layout.is_ours(stream)
        written = json.loads(stream.attrs["parameters"]) if ours else None
        wanted = size if parameters is None else (parameters.sequence, parameters.predictions)
        other_size = wanted is not None and wanted != (sequence, predictions)
        if other_size or (parameters is not None and ours and written != recorded(parameters, vocabulary)):
            raise _fault(
                path,
                None,
                f"other parameters than asked for: {written or (sequence, predictions)}, not {parameters or wanted}",
            )
        if layout.is_unmasked(stream) != (parameters is not None and parameters.dynamic):
            raise _fault(path, None, "examples without masks" if layout.is_unmasked(stream) else "masks of its own")
        masking = None
        if parameters is not None and parameters.dynamic:  # judged as it is read in the first epoch
            masking = masking_of(parameters, vocabulary)
            drawn = masking.stream(path.stem, 0)
        statistics: dict[str, Any] = {}
        shard = {name: stream[name] for name in layout.types(stream)}
        content, (ids, *others) = layout.Content(), shard
        content.begin(ids, shard[ids].shape)
        if rows:
            text = None
            if tokens_file is not None:
                text = Text(tokens.read(tokens_file, Rooms(path.parent, memory_bytes))[0])
            promised = parameters if ours else None
            counts: Counter[str] = Counter()
            for first in range(0, rows, layout.ROWS_READ):
                arrays = layout.read_rows(shard, first, first + layout.ROWS_READ, kernel.load())
                content.add(ids, arrays[ids])  # most of the bytes; the others are read again
                for begin in range(0, len(arrays["input_ids"]), _ROWS):
                    block = {name: array[begin : begin + _ROWS] for name, array in arrays.items()}
                    if masking is not None:
                        check_lengths(path, block, first + begin)
                        block = masking.masked(block, drawn)
                    counts.update(_checked(path, block, vocabulary, promised, first + begin))
                    if text is not None:
                        counts.update(text.look_up(path, block, rows, first + begin))
            if promised is not None:
                check_shares(path, counts, vocabulary)
            statistics = shares(counts)
            if text is not None:
                statistics["pairs_looked_up"] = counts["pairs_looked_up"]
        content_digest = content.add_all(shard, others, kernel.load())
    return {
        "schema": SCHEMA,
        "file": path.name,
        **({"source": Path(os.readlink(path)).name} if path.is_symlink() else {}),
        "rows": rows,
        "sequence": sequence,
        "predictions": predictions,
        "sha256": files.sha256(path),
        "content_digest": content_digest,
        "vocabulary_sha256": vocabulary.sha256,
        "vocabulary_size": len(vocabulary),
        "parameters": parameters.described() if parameters is not None else None,
        "statistics": statistics,
    }


def masking_of(parameters: Parameters, vocabulary: Vocabulary) -> Masking:
    """How a reader masks the rows of an unmasked shard."""
    how = parameters.sequence, parameters.predictions, parameters.probability, parameters.seed
    return Masking(*how, vocabulary.mask, ranges(vocabulary.words))


def check_lengths(path: Path, block: Arrays, first: int = 0) -> None:
    """Check that the segments of unmasked rows, called `first` and so on, fit into their rows."""
    a_length, b_length = (block[name].astype(np.int64) for name in ("a_lengths", "b_lengths"))
    fits = (a_length >= 1) & (b_length >= 1) & (a_length + b_length + 3 <= block["input_ids"].shape[1])
    _all_hold(path, [(fits, "segments without tokens, or longer than the row")], first)


def _checked(
    path: Path,
    block: Arrays,
    vocabulary: Vocabulary,
    promised: Parameters | None,
    first: int,
) -> dict[str, int]:
    """Check some of a shard's rows, `first` and so on; what was counted in them."""
    found = _compiled_counts(block, vocabulary, promised)
    if found is None:
        originals = check_layout(path, block, vocabulary, first)
        if promised is not None:
            check_promises(path, block, originals, vocabulary, promised, first)
        found = counted(block, vocabulary)
    return found


def _compiled_counts(block: Arrays, vocabulary: Vocabulary, promised: Parameters | None) -> dict[str, int] | None:
    """`counted` of rows that pass check_layout and check_promises, by kernel.c; None where one does not, or without it:
    then these two have to say what is wrong."""
    compiled = kernel.load()
    if compiled is None:
        return None
    rows, sequence = block["input_ids"].shape
    arrays = [np.ascontiguousarray(block[name]) for name in layout.TYPES]
    masked = None
    if promised is not None:
        masked = masked_of(np.arange(sequence - 2), promised.predictions, promised.probability).astype(np.int32)
    counts = np.zeros(len(_COUNTED), np.int64)
    fine = compiled.checked(
        *(rows, sequence, block["masked_lm_ids"].shape[1], len(vocabulary)),
        *(vocabulary.cls, vocabulary.sep, vocabulary.mask, vocabulary.unk, vocabulary.kinds),
        masked.ctypes.data if masked is not None else None,
        *(array if array.itemsize == 4 else array.view(np.uint8) for array in arrays),
        counts,
    )
    return dict(zip(_COUNTED, counts.tolist(), strict=True)) if fine else None


def recorded(parameters: Parameters, vocabulary: Vocabulary) -> dict[str, Any]:
    """What a shard's attribute `parameters` holds."""
    return {**parameters.described(), "vocabulary_sha256": vocabulary.sha256}


def check_layout(path: Path, arrays: Arrays, vocabulary: Vocabulary, first: int = 0) -> NDArray[np.int32]:
    """Check the rules of the layout; returns the ids as they were before masking, i4[N,S]. The rows are called `first`
    and so on."""
    ids, positions, labels = arrays["input_ids"], arrays["masked_lm_positions"], arrays["masked_lm_ids"]
    segments, mask = arrays["segment_ids"], arrays["input_mask"]
    sequence = ids.shape[1]
    length = mask.sum(axis=1, dtype=np.int64)[:, None]
    second = segments.sum(axis=1, dtype=np.int64)[:, None]
    column = np.arange(sequence)
    used = labels != 0
    masked = used.sum(axis=1)[:, None]
    place = np.arange(positions.shape[1])
    _all_hold(
        path,
        [
            ((ids >= 0) & (ids < len(vocabulary)), "input_ids outside the vocabulary"),
            ((labels >= 0) & (labels < len(vocabulary)), "masked_lm_ids outside the vocabulary"),
            (
                np.isin(arrays["next_sentence_labels"], (0, 1)),
                "a next_sentence_label that is neither 0 nor 1",
            ),
            (length >= 5, "an example shorter than [CLS] A [SEP] B [SEP]"),
            (mask == (column < length), "an input_mask that is not ones followed by zeros"),
            ((ids == vocabulary.pad) | (mask == 1), "padding that is not [PAD]"),
            (
                segments == ((column >= length - second) & (column < length)),
                "segment_ids that are not A, then B",
            ),
            ((second >= 2) & (length - second >= 3), "a segment without tokens"),
            (used == (place < masked), "masked_lm_ids with a gap"),
            ((positions != 0) == used, "masked_lm_positions and masked_lm_ids of different number"),
            (masked >= 1, "an example without a masked token"),
            ((np.diff(positions, axis=1) > 0) | ~used[:, 1:], "masked_lm_positions that are not ascending"),
            ((positions > 0) & (positions < length - 1) | ~used, "a masked position outside the text"),
            ((positions != length - second - 1) | ~used, "a masked [SEP]"),
        ],
        first,
    )
    originals = restored(arrays)
    every = np.arange(len(ids))
    _all_hold(
        path,
        [
            (originals[:, 0] == vocabulary.cls, "an example that does not begin with [CLS]"),
            (originals[every, length[:, 0] - 1] == vocabulary.sep, "an example that does not end with [SEP]"),
            (originals[every, (length - second)[:, 0] - 1] == vocabulary.sep, "no [SEP] between A and B"),
        ],
        first,
    )
    return originals


def restored(arrays: Arrays) -> NDArray[np.int32]:
    """The ids as they were before masking."""
    originals, labels = np.array(arrays["input_ids"]), arrays["masked_lm_ids"]
    row, k = np.nonzero(labels)
    originals[row, arrays["masked_lm_positions"][row, k]] = labels[row, k]
    return originals


def counted(arrays: Arrays, vocabulary: Vocabulary) -> dict[str, int]:
    """What `shares` are made of."""
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
    """Shares and means over at least one row."""
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


def measure(arrays: Arrays, vocabulary: Vocabulary) -> dict[str, Any]:
    """Shares and means over a shard of at least one row."""
    return shares(counted(arrays, vocabulary))


def check_promises(
    path: Path,
    arrays: Arrays,
    originals: NDArray[np.int32],
    vocabulary: Vocabulary,
    parameters: Parameters,
    first: int = 0,
) -> None:
    """Check what each row of our shards promises beyond the layout."""
    labels, ids = arrays["masked_lm_ids"], arrays["input_ids"]
    length = arrays["input_mask"].sum(axis=1, dtype=np.int64)
    count = np.clip(np.rint(length * parameters.probability), 1, parameters.predictions)
    count = np.minimum(count, length - 3)
    special = np.zeros(len(vocabulary), np.bool_)
    special[[vocabulary.cls, vocabulary.sep, vocabulary.mask, vocabulary.pad]] = True
    specials = special[originals].sum(axis=1) - (originals.shape[1] - length)  # less the padding
    word = np.zeros(len(vocabulary), np.bool_)
    word[vocabulary.words] = True
    row, k = np.nonzero(labels)
    now, before = ids[row, arrays["masked_lm_positions"][row, k]], labels[row, k]
    allowed = (now == vocabulary.mask) | (now == before) | word[now]
    _all_hold(
        path,
        [
            ((labels != 0).sum(axis=1) == count, "a wrong number of masked tokens"),
            (specials == 3, "a special token inside the text"),
            (allowed.all(), "a special or unused entry as a random word"),
        ],
        first,
    )


def check_shares(path: Path, counts: Mapping[str, int], vocabulary: Vocabulary) -> None:
    """Check the three shares of masking over a whole shard of ours."""
    masked, words = counts["masked"], len(vocabulary.words)
    for name, expected, fault in (
        ("replaced_by_mask", 0.8, "a share of [MASK] far from 80 %"),
        ("unchanged", 0.1 + 0.1 / words, "a share of unchanged words far from 10 %"),
        ("changed", 0.1 - 0.1 / words, "a share of random words far from 10 %"),
    ):
        if not _by_chance(counts[name] / masked, expected, masked):
            raise _fault(path, None, fault)


class Text:
    """The documents that examples were made from, to be searched."""

    def __init__(self, documents: tokens.Documents) -> None:
        self.tokens, self.sentences = np.ascontiguousarray(documents.tokens), documents.sentences
        self.of_sentence = np.repeat(np.arange(len(documents)), np.diff(documents.documents))
        self._waiting: list[tuple[dict[str, NDArray[Any]], Index]] = []

    @cached_property
    def haystack(self) -> bytes:
        return self.tokens.tobytes()

    def chosen(self, rows: int) -> Index:
        """Which of so many rows are looked up: all, or evenly spaced ones where the text is long."""
        many = max(64, _LOOK_UP_BYTES // (2 * self.tokens.nbytes + 1))
        return np.unique(np.linspace(0, rows - 1, min(many, rows)).astype(np.int64))

    def look_up(self, path: Path, block: Arrays, rows: int, first: int) -> dict[str, int]:
        """Look up those of a shard's `rows` rows that are chosen and stand in the block, whose rows are called `first`
        and so on. Some at a time, for the text is searched once for all of them; the last row's block is the last.
        """
        chosen = self.chosen(rows)
        mine = chosen[(chosen >= first) & (chosen < first + len(block["input_ids"]))] - first
        self._waiting.append(({name: array[mine] for name, array in block.items()}, mine + first))
        last = first + len(block["input_ids"]) == rows
        if not last and sum(len(numbers) for _, numbers in self._waiting) < _LOOKED_UP_AT_ONCE:
            return {}
        together = defaultdict(list)
        for arrays, _ in self._waiting:
            for name, array in arrays.items():
                together[name].append(array)
        some = {name: np.concatenate(each) for name, each in together.items()}
        numbers = np.concatenate([numbers for _, numbers in self._waiting])
        self._waiting = []
        return {"pairs_looked_up": check_pairs(path, some, restored(some), self, numbers)}


def check_pairs(
    path: Path,
    arrays: Arrays,
    originals: NDArray[np.int32],
    text: Text,
    numbers: Index | None = None,
) -> int:
    """Look examples up in the documents they were made from. `numbers`: what their rows are called, if not 0 and so on.

    Returns how many were judged; a segment so short that it stands in a thousand places proves nothing.

    UserError where a segment is in no document, where a second segment labelled as continuation does not follow
    the first within reach, and where one labelled as random can only come from the same document.
    """
    length = arrays["input_mask"].sum(axis=1, dtype=np.int64)
    second = arrays["segment_ids"].sum(axis=1, dtype=np.int64)
    compiled = _compiled_look_up(originals, length - second - 2, second - 1, arrays["next_sentence_labels"], text)
    if compiled is not None:
        return compiled
    haystack, width, of_sentence, sentences = text.haystack, text.tokens.itemsize, text.of_sentence, text.sentences
    limit = originals.shape[1] - 3

    def places(row: int, begin: int, end: int) -> tuple[Index, Index, Index] | None:
        """Where the tokens [begin, end) of a row stand in a document: first token, its sentence, the last's."""
        needle = originals[row, begin:end].astype(text.tokens.dtype).tobytes()
        found: list[int] = []
        at = haystack.find(needle)
        while at >= 0:
            if at % width == 0:
                found.append(at // width)
            if len(found) > _TOO_COMMON:
                return None
            at = haystack.find(needle, at + 1)
        at_token = np.array(found, dtype=np.int64)
        begins = np.searchsorted(sentences, at_token, side="right") - 1
        ends = np.searchsorted(sentences, at_token + (end - begin) - 1, side="right") - 1
        inside = of_sentence[begins] == of_sentence[ends]  # what runs over a document's end is a coincidence
        return at_token[inside], begins[inside], ends[inside]

    decided = 0
    called = range(len(originals)) if numbers is None else numbers.tolist()
    for row in range(len(originals)):
        middle = int(length[row] - second[row])
        in_a, in_b = places(row, 1, middle - 1), places(row, middle, int(length[row]) - 1)
        if in_a is None or in_b is None:
            continue
        (a, a_from, a_to), (b, b_from, b_to) = in_a, in_b
        if not len(a) or not len(b):
            raise _fault(path, called[row], "a segment that is in no document")
        decided += 1
        if arrays["next_sentence_labels"][row]:
            homes = {*of_sentence[a_from].tolist(), *of_sentence[b_from].tolist()}
            if len(homes) == 1:
                raise _fault(path, called[row], "a second segment labelled as random that is from the same document")
            continue
        same = of_sentence[a_from][:, None] == of_sentence[b_from]
        after = b >= (a + middle - 2)[:, None]
        within = sentences[b_to] - a[:, None] < limit
        adjacent = b_from == (a_to + 1)[:, None]
        if not (same & after & (within | adjacent)).any():
            raise _fault(path, called[row], "a second segment labelled as continuation that does not follow the first")
    return decided


def _compiled_look_up(
    originals: NDArray[np.int32], a_length: Index, b_length: Index, labels: NDArray[Any], text: Text
) -> int | None:
    """How many rows are judged, by kernel.c; None where one is wrong, or without it: then it has to be said which."""
    compiled = kernel.load()
    if compiled is None:
        return None
    judged = compiled.looked_up(
        *(*originals.shape, np.ascontiguousarray(originals), a_length, b_length, labels.astype(np.uint8)),
        *(text.tokens.ctypes.data, text.tokens.itemsize, len(text.tokens)),
        *(text.sentences, len(text.sentences), text.of_sentence, _TOO_COMMON),
    )
    if judged == -2:
        raise MemoryError("no memory to look segments up")
    return int(judged) if judged >= 0 else None


def _by_chance(share: float, expected: float, count: int) -> bool:
    spread = (expected * (1 - expected) / count) ** 0.5
    return bool(abs(share - expected) <= _SIGMAS * spread + 1 / count)


def _all_hold(path: Path, checks: list[tuple[Any, str]], first: int) -> None:
    for holds, fault in checks:
        if not np.all(holds):
            holds = np.asarray(holds)
            row = first + int(np.argwhere(~holds)[0][0]) if holds.ndim else None
            raise _fault(path, row, fault)


def _fault(path: Path, row: int | None, fault: str) -> UserError:
    return UserError(
        f"{path} has {fault}",
        why=None if row is None else f"first in row {row} (counted from 0)",
        next_step=layout.repair(path),
    )

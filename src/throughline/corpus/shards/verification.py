"""Verify a shard: read the whole file and check every row.

kernel.c checks the rows: the rules of the layout for every shard, and stricter rules for ours. A plain version of the
same rules is in tests/unit/corpus/shards/plain.py. If a shard's masks are drawn while it is read, the masks of the
first epoch are checked.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from throughline.corpus import kernel, reading
from throughline.corpus.shards import Parameters, layout
from throughline.corpus.shards.masks import Masking, masked_of, ranges
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.datasets import manifest
from throughline.datasets.shards import fault
from throughline.files import UserError

Arrays = Mapping[str, NDArray[Any]]
COUNTED = ("rows", "tokens", "masked", "replaced_by_mask", "unchanged", "random_next", "unknown", "changed")
"""What kernel.c counts in the rows."""
FAULTS = (
    "",
    "a row that is not [CLS] A [SEP] B [SEP] and padding, or another input_mask or segment_ids than that",
    "an id outside the vocabulary",
    "masked_lm_positions and masked_lm_ids that are not one to all tokens of A and B, ascending, and then zeros",
    "another number of masks than its parameters say, a special token in its text, or a random word that is none",
    "a next_sentence_label that is neither 0 nor 1",
)
"""What kernel.c says is wrong with a row."""
_SIGMAS = 5  # by chance, one share in 1.7 million is farther off


def verify(
    path: Path, vocabulary: Vocabulary, parameters: Parameters | None = None, size: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the shard's number of rows, digests and statistics; UserError names the first fault.

    `parameters`: how the shard should have been made. Without them, it is checked as a shard of an unknown maker, for
    which only the sequence length and predictions may be known (`size`).
    """
    with layout.open_shard(path) as stream:
        _check_parameters(path, stream, vocabulary, parameters, size)
        rows, sequence_length, predictions = layout.extent(stream)
        promised = parameters if layout.is_ours(stream) else None
        masking = masking_of(parameters, vocabulary) if parameters is not None and parameters.dynamic else None
        drawn = masking.stream(path.stem, 0) if masking is not None else None

        def checked(block: Arrays, first: int) -> Counter[str]:
            if masking is not None and drawn is not None:
                _check_lengths(path, block, first)
                block = masking.masked(block, drawn)
            return check(path, block, vocabulary, promised, first)

        counts, content_digest = _read(stream, checked)
    if rows and promised is not None:
        _check_shares(path, counts, vocabulary)
    return manifest.verified(
        path,
        {"rows": rows, "sequence_length": sequence_length, "predictions": predictions},
        content_digest,
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(vocabulary),
        parameters=parameters.described() if parameters is not None else None,
        statistics=shares(counts) if rows else {},
    )


def _check_parameters(
    path: Path, stream: h5py.File, vocabulary: Vocabulary, parameters: Parameters | None, size: tuple[int, int] | None
) -> None:
    """Check that an open shard has the parameters, or the size, that it should have."""
    _, sequence_length, predictions = layout.extent(stream)
    written = json.loads(stream.attrs["parameters"]) if layout.is_ours(stream) else None
    wanted = size if parameters is None else (parameters.sequence_length, parameters.predictions)
    others = parameters is not None and written is not None and written != parameters.recorded(vocabulary.sha256)
    if others or (wanted is not None and wanted != (sequence_length, predictions)):
        has = written or (sequence_length, predictions)
        raise fault(path, f"has other parameters than asked for: {has}, not {parameters or wanted}")
    if layout.is_unmasked(stream) != (parameters is not None and parameters.dynamic):
        raise fault(path, f"has {'examples without masks' if layout.is_unmasked(stream) else 'masks of its own'}")


def masking_of(parameters: Parameters, vocabulary: Vocabulary) -> Masking:
    """Return how a reader masks the rows of an unmasked shard."""
    how = parameters.sequence_length, parameters.predictions, parameters.probability, parameters.seed
    return Masking(*how, vocabulary.mask, ranges(vocabulary.words))


def _read(stream: h5py.File, checked: Callable[[Arrays, int], Counter[str]]) -> tuple[Counter[str], str]:
    """Read an open shard. `checked` gets some rows and the number of the first of them.

    Returns what `checked` counted, and the SHA-256 of the names, types, shapes and values of the arrays.
    """
    kinds = layout.types(stream)
    shard = {name: stream[name] for name in kinds}
    counts, digest = Counter[str](), hashlib.sha256()
    for name, kind in kinds.items():
        digest.update(f"{name} {kind} {shard[name].shape}\n".encode())
        wanted = kinds if name == "input_ids" else [name]  # `checked` needs all arrays at once
        for first in range(0, len(shard[name]), layout.ROWS_READ):
            last = first + layout.ROWS_READ
            arrays = {key: np.asarray(reading.rows(shard[key], first, last), kinds[key]) for key in wanted}
            digest.update(np.ascontiguousarray(arrays[name], dtype="<" + kind).data)
            if name == "input_ids":
                counts.update(checked(arrays, first))
    return counts, digest.hexdigest()


def check(
    path: Path, block: Arrays, vocabulary: Vocabulary, promised: Parameters | None = None, first: int = 0
) -> Counter[str]:
    """Check some rows of a shard, the first of which has the number `first`; return what was counted in them.

    `promised`: the parameters of a shard of ours, whose rows keep stricter rules.
    """
    compiled: Any = kernel.load()
    rows, sequence_length = block["input_ids"].shape
    arrays = [np.ascontiguousarray(block[name]) for name in layout.TYPES]
    masked = None
    if promised is not None:
        masked = masked_of(np.arange(sequence_length - 2), promised.predictions, promised.probability).astype(np.int32)
    counts = np.zeros(len(COUNTED), np.int64)
    wrong = compiled.checked(
        rows, sequence_length, block["masked_lm_ids"].shape[1], len(vocabulary),
        vocabulary.cls, vocabulary.sep, vocabulary.mask, vocabulary.unk, vocabulary.kinds,
        masked.ctypes.data if masked is not None else None,
        *(array if array.itemsize == 4 else array.view(np.uint8) for array in arrays),
        counts,
    )  # fmt: skip
    counted = Counter(dict(zip(COUNTED, counts.tolist(), strict=True)))
    if wrong:
        raise _fault_in_row(path, FAULTS[wrong], first + counted["rows"])
    return counted


def _check_lengths(path: Path, block: Arrays, first: int) -> None:
    """Check that the segments of unmasked rows fit into their rows. `first`: the number of the first of these rows."""
    a_length, b_length = (block[name].astype(np.int64) for name in ("a_lengths", "b_lengths"))
    fits = (a_length >= 1) & (b_length >= 1) & (a_length + b_length + 3 <= block["input_ids"].shape[1])
    if not fits.all():
        raise _fault_in_row(path, "segments without tokens, or longer than the row", first + int(np.argmin(fits)))


def _fault_in_row(path: Path, what: str, row: int) -> UserError:
    return fault(path, f"has {what}", f"first in row {row} (counted from 0)")


def _check_shares(path: Path, counts: Mapping[str, int], vocabulary: Vocabulary) -> None:
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

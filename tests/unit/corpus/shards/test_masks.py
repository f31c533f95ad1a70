"""Masks that are drawn while reading follow the rules and statistics of finished shards, and every reader gets the same
rows."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import any_parameters, documents, tiny_vocabulary, write_tokens
from throughline import files
from throughline.corpus import manifest
from throughline.corpus.shards import Parameters, layout, making, masks, verification
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.rank import data
from throughline.rank.data import Manifest

from .test_examples import LENGTHS, all_rows

DYNAMIC = Parameters(32, 5, dupe_factor=1, dynamic=True)
PARAMETERS = any_parameters(dupe_factor=st.just(1), dynamic=st.just(True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masks")


@pytest.fixture(scope="module")
def words(folder: Path) -> Vocabulary:
    return tiny_vocabulary(folder, words=3000)


@pytest.fixture(scope="module")
def corpus(folder: Path, words: Vocabulary) -> Manifest:
    """Three training shards and a test shard of about 600 rows each, all verified."""
    verified = []
    for number, (split, shard) in enumerate([("training", 0), ("training", 1), ("training", 2), ("test", 0)]):
        lengths = np.random.default_rng(number).integers(1, 20, (40, 30)).tolist()
        write_tokens(folder / f"tokens_{number}.hdf5", documents(lengths, words), words)
        path = folder / f"{split}_{shard:04d}.hdf5"
        making.make(folder / f"tokens_{number}.hdf5", folder / "tiny.txt", DYNAMIC, split, shard, path)
        result = verification.verify(path, words, DYNAMIC)
        assert result["rows"] > 300
        files.write_json(path.with_suffix(".json"), result)
        verified.append(path.with_suffix(".json"))
    manifest.merge_pairs("sample", verified, words, DYNAMIC.described(), folder / "manifest.json")
    return Manifest(folder / "manifest.json", "corpus")


def told_apart(rows: data.Rows) -> list[bytes]:
    """Return each row's content, all six arrays, as bytes."""
    return [b"".join(rows[name][row].tobytes() for name in layout.TYPES) for row in range(len(rows["input_ids"]))]


def taken(corpus: Manifest, rank: int, world: int, size: int, count: int) -> list[bytes]:
    source = data.batches(corpus, 1, rank, world, size)
    return [row for batch in itertools.islice(source, count) for row in told_apart(batch)]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(lengths=LENGTHS, parameters=PARAMETERS, epoch=st.integers(0, 3))
def test_any_documents_keep_every_promise(
    words: Vocabulary, lengths: list[list[int]], parameters: Parameters, epoch: int
) -> None:
    found = documents(lengths, words)
    plain = all_rows(found, parameters, words)
    if not plain:
        return
    path, masking = Path("shard"), verification.masking_of(parameters, words)
    verification._check_lengths(path, plain, 0)
    arrays = masking.masked(plain, masking.stream("training_0000", epoch))
    assert {name: array.dtype for name, array in arrays.items()} == layout.TYPES
    verification.check(path, arrays, words, parameters)
    finished = all_rows(found, replace(parameters, dynamic=False), words)  # the same examples, with other masks
    for one in (arrays, finished):
        assert np.array_equal(restored(one), plain["input_ids"])
    for name in ("input_mask", "segment_ids", "next_sentence_labels"):
        assert np.array_equal(arrays[name], finished[name]), name
    assert np.array_equal(arrays["masked_lm_ids"] != 0, finished["masked_lm_ids"] != 0)


def restored(arrays: data.Rows) -> np.ndarray:
    """Return the ids as they were before masking."""
    originals, labels = np.array(arrays["input_ids"]), arrays["masked_lm_ids"]
    row, k = np.nonzero(labels)
    originals[row, arrays["masked_lm_positions"][row, k]] = labels[row, k]
    return originals


@pytest.mark.parametrize(("candidates", "count"), [(1, 1), (2, 2), (5, 2), (6, 3), (4, 4)])
def test_every_choice_is_as_likely(candidates: int, count: int) -> None:
    rows, most = 60_000, 4
    drawn = np.random.Philox(key=candidates).random_raw(rows * most).reshape(rows, most)
    found = masks.chosen(drawn, np.full(rows, candidates), np.full(rows, count))
    assert (found[:, count:] >= 1 << 15).all()
    choices, often = np.unique(found[:, :count], axis=0, return_counts=True)
    assert choices.tolist() == [list(choice) for choice in itertools.combinations(range(candidates), count)]
    expected = rows / len(choices)
    assert (abs(often - expected) < 5 * expected**0.5).all()


@pytest.mark.parametrize(
    ("lengths", "parameters"),
    [
        ([[40_000, 3], [50_000], [7]], Parameters(1 << 15, 2000, dupe_factor=1, dynamic=True)),
        ([[3, 4]] * 1500, Parameters(16, 3, dupe_factor=1, dynamic=True)),  # more rows than are masked at a time
    ],
)
def test_rows_in_blocks_of_any_height(words: Vocabulary, lengths: list[list[int]], parameters: Parameters) -> None:
    plain, masking = all_rows(documents(lengths, words), parameters, words), verification.masking_of(parameters, words)
    whole, stream = masking.masked(plain, masking.stream("training_0000", 0)), masking.stream("training_0000", 0)
    verification.check(Path("shard"), whole, words, parameters)
    several = [{name: array[some] for name, array in plain.items()} for some in (slice(2), slice(2, None))]
    parts = [masking.masked(some, stream) for some in several]
    assert all(np.array_equal(np.concatenate([part[name] for part in parts]), whole[name]) for name in whole)


def test_seed_shard_length_and_epoch_all_count() -> None:
    drawn = {
        masks.Masking(length, 3, 0.15, seed, 5, [[6, 9]]).stream(shard, epoch).words(1).tobytes()
        for length in (16, 32)
        for seed in (1, 2)
        for shard in ("training_0000", "training_0001", "test_0000")
        for epoch in (0, 1)
    }
    assert len(drawn) == 24


def test_the_masks_stay_what_they_are() -> None:
    assert masks.ranges(np.array([3, 4, 6, 9])) == [[3, 5], [6, 7], [9, 10]]
    masking = masks.Masking(24, 4, 0.15, 12345, 5, [[6, 9], [12, 99]])
    plain: dict[str, Any] = {
        "input_ids": np.arange(100, 172, dtype=np.uint16).reshape(3, 24),
        "a_lengths": np.array([10, 1, 12]),
        "b_lengths": np.array([11, 2, 9]),
        "next_sentence_labels": np.zeros(3, np.int8),
    }
    arrays = masking.masked(plain, masking.stream("training_0000", 0))
    row = np.arange(3)[:, None]
    assert arrays["masked_lm_positions"].tolist() == [[9, 13, 16, 22], [3, 0, 0, 0], [4, 7, 11, 20]]
    assert arrays["masked_lm_ids"].tolist() == [[109, 113, 116, 122], [127, 0, 0, 0], [152, 155, 159, 168]]
    after = arrays["input_ids"][row, arrays["masked_lm_positions"]]
    assert after.tolist() == [[5, 5, 5, 96], [5, 124, 124, 124], [5, 5, 5, 93]]


def test_epochs_differ_and_restarts_do_not(corpus: Manifest) -> None:
    epoch = corpus.rows
    two = taken(corpus, 0, 1, 1, 2 * epoch)
    assert len({*two[:epoch]} & {*two[epoch:]}) < epoch / 100, "the same rows with other masks"
    again = Manifest(corpus.path, "corpus")
    assert taken(again, 0, 1, 7, 2 * epoch // 7) == two[: 2 * epoch // 7 * 7], "whatever the size of a batch"


def test_files_and_manifest_say_how_masks_are_drawn(corpus: Manifest, folder: Path, words: Vocabulary) -> None:
    path = corpus.file(corpus.shards[0])
    with layout.open_shard(path) as stream:
        assert set(stream) == set(layout.UNMASKED) and stream["input_ids"].dtype == np.uint16
        assert json.loads(stream.attrs["parameters"])["dynamic"] is True
    assert layout.size(path)[1:] == (32, 5) and corpus.content["vocabulary"]["words"] == [[7, 3007]]
    listed = [folder / f"{Path(shard['file']).stem}.json" for shard in corpus.content["shards"]]
    manifest.merge_pairs("sample", listed, words, replace(DYNAMIC, probability=0.3).described(), folder / "other.json")
    assert files.read_json(folder / "other.json")["content_digest"] != corpus.content["content_digest"]

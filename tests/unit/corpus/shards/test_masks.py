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

from corpus_helpers import any_parameters, documents, read_shard, tiny_vocabulary, write_tokens
from throughline import files
from throughline.corpus import manifest, reading
from throughline.corpus.shards import Parameters, layout, making, masks, verification
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError
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


def test_shares_over_many_rows_are_those_of_finished_masks(words: Vocabulary) -> None:
    chance = np.random.default_rng(0)
    found = documents([chance.integers(1, 20, size=200).tolist() for _ in range(50)], words)
    parameters = Parameters(64, 9, dupe_factor=1, dynamic=True)
    plain, masking = all_rows(found, parameters, words), verification.masking_of(parameters, words)
    epochs = [masking.masked(plain, masking.stream("training_0000", epoch)) for epoch in range(9)]
    arrays = {name: np.concatenate([one[name] for one in epochs]) for name in layout.TYPES}
    counts = verification.check(Path("shard"), arrays, words, parameters)
    verification._check_shares(Path("shard"), counts, words)
    static = all_rows(found, replace(parameters, dynamic=False, dupe_factor=9), words)
    finished = verification.check(Path("shard"), static, words, parameters)
    for name in ("replaced_by_mask", "unchanged", "changed"):
        share, other = counts[name] / counts["masked"], finished[name] / finished["masked"]
        assert abs(share - other) < 5 * (share * (1 - share) * 2 / finished["masked"]) ** 0.5
    used = arrays["masked_lm_ids"] != 0
    full = arrays["input_mask"].sum(axis=1) == 64
    chosen = np.bincount(arrays["masked_lm_positions"][full][used[full]], minlength=64)
    assert chosen[0] == chosen[63] == 0
    text = plain["a_lengths"] + 1  # A's [SEP] is never masked; the positions around it are as likely as all others
    free = 64 - 1 - np.bincount(np.tile(text, 9)[full], minlength=64)[1:63] / full.sum() * 63
    expected = 9 / 61 * full.sum() * (free / 63)
    assert (abs(chosen[1:63] - expected) < 5 * expected**0.5).all()
    row, k = np.nonzero(used)
    now, before = arrays["input_ids"][row, arrays["masked_lm_positions"][row, k]], arrays["masked_lm_ids"][row, k]
    other_words = now[(now != words.mask) & (now != before)]
    assert np.isin(other_words, words.words).all() and abs(other_words.mean() / words.words.mean() - 1) < 0.03


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


def test_the_longest_rows(words: Vocabulary) -> None:
    found, parameters = (
        documents([[40_000, 3], [50_000], [7]], words),
        Parameters(1 << 15, 2000, dupe_factor=1, dynamic=True),
    )
    plain, masking = all_rows(found, parameters, words), verification.masking_of(parameters, words)
    arrays = masking.masked(plain, masking.stream("training_0000", 0))
    verification.check(Path("shard"), arrays, words, parameters)


@pytest.mark.parametrize("heights", [[5000], [1, 4999], [2048, 2048, 904], [3000, 2000]])
def test_masks_do_not_depend_on_where_blocks_end(heights: list[int]) -> None:
    masking = masks.Masking(16, 3, 0.15, 1, 5, [[6, 40]])
    plain: dict[str, Any] = {
        "input_ids": np.full((5000, 16), 9, np.uint16),
        "a_lengths": np.full(5000, 4),
        "b_lengths": np.arange(5000) % 9 + 1,
        "next_sentence_labels": np.zeros(5000, np.int8),
    }
    whole, stream = masking.masked(plain, masking.stream("training_0000", 0)), masking.stream("training_0000", 0)
    ends = list(itertools.accumulate(heights))
    parts = [
        masking.masked({name: array[end - height : end] for name, array in plain.items()}, stream)
        for height, end in zip(heights, ends, strict=True)
    ]
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


@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_together_read_what_one_reads(corpus: Manifest, world: int) -> None:
    """Checked with one shard for each rank, and with ranks that share shards."""
    rows = [row for shard in corpus.shards for row in told_apart(corpus.reader.read(shard, 0))]
    # If shards do not divide evenly, the ranks' shares differ by a few rows. Each rank reads its whole first epoch.
    seen: list[bytes] = []
    for rank in range(world):
        each = 0
        for epoch, _, count in corpus.order(1, rank, world):
            if epoch:
                break
            each += count
        seen += taken(corpus, rank, world, 1, each)
    assert sorted(seen) == sorted(rows)


def test_epochs_differ_and_restarts_do_not(corpus: Manifest) -> None:
    epoch = corpus.rows
    two = taken(corpus, 0, 1, 1, 2 * epoch)
    first, second = set(two[:epoch]), set(two[epoch:])
    assert len(first & second) < epoch / 100, "the same rows with other masks"
    again = Manifest(corpus.path, "corpus")
    assert taken(again, 0, 1, 7, 2 * epoch // 7) == two[: 2 * epoch // 7 * 7], "whatever the size of a batch"


def test_what_is_held_out_is_masked_once_and_for_all(corpus: Manifest) -> None:
    (shard,) = corpus.held_out
    assert told_apart(corpus.reader.read(shard, 0)) == told_apart(Manifest(corpus.path, "corpus").reader.read(shard, 0))


def test_files_and_manifest_say_how_masks_are_drawn(corpus: Manifest, folder: Path, words: Vocabulary) -> None:
    path = corpus.file(corpus.shards[0])
    with layout.open_shard(path) as stream:
        assert set(stream) == set(layout.UNMASKED) and stream["input_ids"].dtype == np.uint16
        assert json.loads(stream.attrs["parameters"])["dynamic"] is True
    assert layout.size(path)[1:] == (32, 5)
    assert corpus.content["vocabulary"]["words"] == [[7, 3007]]
    listed = [folder / f"{Path(shard['file']).stem}.json" for shard in corpus.content["shards"]]
    other = replace(DYNAMIC, probability=0.3).described()
    manifest.merge_pairs("sample", listed, words, other, folder / "other.json")
    assert files.read_json(folder / "other.json")["content_digest"] != corpus.content["content_digest"]
    assert "dynamic" not in Parameters(32, 5).described()


def test_the_text_is_stored_once(corpus: Manifest, folder: Path, tmp_path: Path) -> None:
    path, five = corpus.file(corpus.shards[0]), replace(DYNAMIC, dynamic=False, dupe_factor=5)
    made = folder / "tokens_0.hdf5", folder / "tiny.txt", five, "training", 0
    making.make(*made, tmp_path / "finished.hdf5")
    assert layout.size(tmp_path / "finished.hdf5")[0] > 4.5 * layout.size(path)[0]
    assert (tmp_path / "finished.hdf5").stat().st_size > 4 * path.stat().st_size


def change(name: str, row: int, column: int | None, value: int) -> Any:
    return lambda arrays: arrays[name].__setitem__(row if column is None else (row, column), value)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (change("input_ids", 0, 1, 9999), "an id outside the vocabulary"),
        (change("input_ids", 0, 0, 9), "a row that is not"),
        (change("input_ids", 3, 2, 5), "a special token in its text|a row that is not"),
        (change("a_lengths", 2, None, 0), "segments without tokens.*\n.*first in row 2 "),
        (change("b_lengths", 2, None, -1), "segments without tokens"),
        (change("b_lengths", 2, None, 30), "longer than the row"),
        (change("a_lengths", 2, None, 1 << 30), "longer than the row"),
        (change("next_sentence_labels", 2, None, 2), "neither 0 nor 1"),
        (lambda arrays: arrays.update(a_lengths=arrays["a_lengths"] + 1), "longer than the row|SEP"),
    ],
)
def test_every_fault_is_found(corpus: Manifest, words: Vocabulary, tmp_path: Path, fault: Any, message: str) -> None:
    arrays = read_shard(corpus.file(corpus.shards[0]))
    fault(arrays)
    path, rows = tmp_path / "training_0000.hdf5", len(arrays["input_ids"])
    described = json.dumps(DYNAMIC.recorded(words.sha256))
    making.write(path, [arrays], rows, 32, 5, described, kinds=layout.unmasked_types(len(words)))
    with pytest.raises(UserError, match=message):
        verification.verify(path, words, DYNAMIC)


def test_one_kind_is_not_taken_for_the_other(corpus: Manifest, folder: Path, words: Vocabulary, tmp_path: Path) -> None:
    path = corpus.file(corpus.shards[0])
    with pytest.raises(UserError, match="examples without masks"):
        verification.verify(path, words, None, size=(32, 5))  # as for a finished shard whose maker we do not know
    with pytest.raises(UserError, match="other parameters"):
        verification.verify(path, words, replace(DYNAMIC, dynamic=False))
    finished = tmp_path / "training_0000.hdf5"
    made = folder / "tokens_0.hdf5", folder / "tiny.txt", replace(DYNAMIC, dynamic=False), "training", 0
    making.make(*made, finished)
    with pytest.raises(UserError, match="other parameters"):
        verification.verify(finished, words, DYNAMIC)
    with layout.open_shard(finished) as stream:
        assert "dynamic" not in json.loads(stream.attrs["parameters"])
    with pytest.raises(ValueError, match="no array a_lengths"):
        reading.read_shard(finished, layout.UNMASKED)

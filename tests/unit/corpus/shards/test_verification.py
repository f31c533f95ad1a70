"""Verification finds every kind of fault that a test puts into a valid shard, and the manifest describes the shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from corpus_helpers import documents, read_shard, tiny_vocabulary, write_tokens
from throughline import files
from throughline.corpus import kernel
from throughline.corpus.shards import (
    Parameters,
    instances,
    layout,
    making,
    manifest,
    row_checks,
    segment_pairs,
    text_lookup,
    verification,
)
from throughline.corpus.text import tokens
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

PARAMETERS = Parameters(32, 5)
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verification")


@pytest.fixture(scope="module")
def words(folder: Path) -> Vocabulary:
    return tiny_vocabulary(folder, words=3000)


@pytest.fixture(scope="module")
def good(folder: Path, words: Vocabulary) -> Path:
    chance = np.random.default_rng(1)
    found = documents([chance.integers(1, 20, size=30).tolist() for _ in range(10)], words)
    write_tokens(folder / "tokens.hdf5", found, words)
    making.make(folder / "tokens.hdf5", folder / "tiny.txt", PARAMETERS, "training", 0, folder / "training_0000.hdf5")
    return folder / "training_0000.hdf5"


def test_a_good_shard(good: Path, words: Vocabulary, folder: Path) -> None:
    result = verification.verify(good, words, PARAMETERS, folder / "tokens.hdf5")
    assert result["rows"] == result["statistics"]["pairs_looked_up"] > 500
    assert result["sha256"] == files.sha256(good)
    assert result["file"] == "training_0000.hdf5"
    assert json.loads(json.dumps(result)) == result


def test_a_large_shard_is_not_held_in_memory(
    good: Path, words: Vocabulary, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = verification.verify(good, words, PARAMETERS, folder / "tokens.hdf5")
    monkeypatch.setattr(verification, "_ROWS", 50)
    monkeypatch.setattr(layout, "ROWS_READ", 130)
    monkeypatch.setattr(text_lookup, "_AT_LEAST", 100)
    parts = verification.verify(good, words, PARAMETERS, folder / "tokens.hdf5")
    assert parts["statistics"].pop("pairs_looked_up") == 100 < whole["statistics"].pop("pairs_looked_up")
    assert parts == whole


@pytest.mark.parametrize("kernel_there", [True, False])
@pytest.mark.parametrize(
    ("rows", "sequence_length", "tokens", "compiled"),
    [
        (900, 128, 54_000, 900),  # all rows
        (2_900, 128, 54_000, 1_024),
        (230_000, 128, 4_360_000, 1_024),
        (924_227, 128, 17_445_408, 2_594),
        (4_800_000, 128, 22_000_000, 8_192),
        (232_000, 128, 22_000_000, 1_024),  # a text without copies: searching it costs more than a twentieth
    ],
)
def test_how_many_rows_are_looked_up(
    monkeypatch: pytest.MonkeyPatch, rows: int, sequence_length: int, tokens: int, compiled: int, kernel_there: bool
) -> None:
    if not kernel_there:
        monkeypatch.setattr(kernel, "load", lambda: None)
    chosen = text_lookup.chosen(rows, sequence_length, tokens)
    assert len(chosen) == len(set(chosen.tolist())) == (compiled if kernel_there else min(compiled, 1024))
    assert chosen[0] == 0 and rows - chosen[-1] <= -(-rows // len(chosen)) and (np.diff(chosen) > 0).all()


def test_a_wrong_row_among_a_thousand_is_named(good: Path, words: Vocabulary, folder: Path) -> None:
    """The error names the row in which the kernel found a fault. The rows before it are not searched for again."""
    arrays, found = read_shard(good), tokens.read(folder / "tokens.hdf5")[0]
    row = int(np.flatnonzero(arrays["next_sentence_labels"] == 0)[-1])
    arrays["next_sentence_labels"][row] = 1
    text = text_lookup.Text(found)
    searches = []
    text.places = lambda needle: searches.append(needle) or text_lookup.Text.places(text, needle)  # type: ignore[method-assign]
    with pytest.raises(UserError, match=rf"(?s)from the same document.*row {row} "):
        text.look_up(good, arrays, len(arrays["input_ids"]), 0)
    assert len(searches) == 2


def test_other_parameters_than_asked_for(good: Path, words: Vocabulary) -> None:
    for other in (Parameters(32, 5, seed=1), Parameters(32, 4), Parameters(64, 5)):
        with pytest.raises(UserError, match="other parameters than asked for"):
            verification.verify(good, words, other)


def last_token(arrays: Arrays) -> np.ndarray:
    return arrays["input_mask"].sum(axis=1) - 1


def short_row(arrays: Arrays) -> int:
    return int(np.argmin(last_token(arrays)))


def set_id(row: int, column: int, value: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays["input_ids"][row, column] = value

    return change


def change_all(name: str, value: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name][:] = value

    return change


def no_padding_id(arrays: Arrays) -> None:
    arrays["input_ids"][short_row(arrays), -1] = 9


def hole_in_mask(arrays: Arrays) -> None:
    arrays["input_mask"][3, 4] = 0


def segments_swapped(arrays: Arrays) -> None:
    arrays["segment_ids"][2] = 1 - arrays["segment_ids"][2]


def empty_second(arrays: Arrays) -> None:
    arrays["segment_ids"][2] = 0


def unsorted(arrays: Arrays) -> None:
    row = int(np.argmax((arrays["masked_lm_ids"] != 0).sum(axis=1)))
    arrays["masked_lm_positions"][row, :2] = arrays["masked_lm_positions"][row, 1::-1]


def gap(arrays: Arrays) -> None:
    arrays["masked_lm_ids"][0, 0] = 0


def one_position_less(arrays: Arrays) -> None:
    arrays["masked_lm_positions"][0, 4] = 0


def masked_cls(arrays: Arrays) -> None:
    arrays["masked_lm_positions"][0, 0] = 0
    arrays["masked_lm_ids"][0] = 0


def masked_separator(arrays: Arrays) -> None:
    place = int(np.argmax(arrays["segment_ids"][0])) - 1
    arrays["masked_lm_positions"][0] = [place, 0, 0, 0, 0]
    arrays["masked_lm_ids"][0] = [9, 0, 0, 0, 0]


def fewer_masked(arrays: Arrays) -> None:
    row = int(np.argmax((arrays["masked_lm_ids"] != 0).sum(axis=1)))
    position = arrays["masked_lm_positions"][row, 4]
    arrays["input_ids"][row, position] = arrays["masked_lm_ids"][row, 4]
    arrays["masked_lm_positions"][row, 4] = arrays["masked_lm_ids"][row, 4] = 0


def special_in_text(arrays: Arrays) -> None:
    free = next(c for c in range(1, 32) if c not in arrays["masked_lm_positions"][0])
    if arrays["input_ids"][0, free] == 4:  # [SEP]
        free += 1
    arrays["input_ids"][0, free] = 5  # [MASK], at a position that was not masked


def unused_as_random_word(arrays: Arrays) -> None:
    arrays["input_ids"][0, arrays["masked_lm_positions"][0, 0]] = 1


def too_few_masks(arrays: Arrays) -> None:
    row, k = np.nonzero(arrays["masked_lm_ids"])
    arrays["input_ids"][row, arrays["masked_lm_positions"][row, k]] = arrays["masked_lm_ids"][row, k]


def wrong_pairs(label: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays["next_sentence_labels"][arrays["next_sentence_labels"] == label] = 1 - label

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_id(0, 1, 9999), "input_ids outside the vocabulary"),
        (change_all("next_sentence_labels", 2), "neither 0 nor 1"),
        (change_all("masked_lm_ids", -1), "masked_lm_ids outside the vocabulary"),
        (no_padding_id, r"padding that is not \[PAD\]"),
        (hole_in_mask, "not ones followed by zeros"),
        (segments_swapped, "not A, then B"),
        (empty_second, "a segment without tokens"),
        (gap, "masked_lm_ids with a gap"),
        (one_position_less, "of different number"),
        (masked_cls, "of different number|without a masked token"),
        (unsorted, "not ascending"),
        (masked_separator, r"a masked \[SEP\]"),
        (set_id(0, 0, 9), r"does not begin with \[CLS\]"),
        (fewer_masked, "a wrong number of masked tokens"),
        (special_in_text, "a special token inside the text"),
        (unused_as_random_word, "a special or unused entry as a random word"),
        (too_few_masks, r"far from 80 %"),
        (wrong_pairs(1), "labelled as continuation that does not follow"),
        (wrong_pairs(0), "labelled as random that is from the same document"),
    ],
)
def test_every_fault_is_found(
    good: Path, words: Vocabulary, folder: Path, tmp_path: Path, change: Callable[[Arrays], None], message: str
) -> None:
    arrays = read_shard(good)
    change(arrays)
    path = tmp_path / "training_0000.hdf5"
    described = json.dumps(PARAMETERS.recorded(words.sha256))
    blocks = [{k: v[i : i + 2048] for k, v in arrays.items()} for i in range(0, len(arrays["input_ids"]), 2048)]
    making.write(path, blocks, len(arrays["input_ids"]), 32, 5, described)
    with pytest.raises(UserError, match=message):
        verification.verify(path, words, PARAMETERS, folder / "tokens.hdf5")


def test_a_shard_without_rows_is_legal(folder: Path, words: Vocabulary, tmp_path: Path) -> None:
    write_tokens(tmp_path / "none.hdf5", documents([], words), words)
    making.make(tmp_path / "none.hdf5", folder / "tiny.txt", PARAMETERS, "test", 0, tmp_path / "test_0000.hdf5")
    result = verification.verify(tmp_path / "test_0000.hdf5", words, PARAMETERS, tmp_path / "none.hdf5")
    assert result["rows"] == 0 and result["statistics"] == {}


def test_tokens_of_another_vocabulary_make_no_shard(folder: Path, words: Vocabulary, tmp_path: Path) -> None:
    write_tokens(tmp_path / "t.hdf5", documents([[2, 2]], words), words, sha256="0" * 64)
    with pytest.raises(UserError, match="another vocabulary"):
        making.make(tmp_path / "t.hdf5", folder / "tiny.txt", PARAMETERS, "test", 0, tmp_path / "s.hdf5")
    assert not (tmp_path / "s.hdf5").exists()


def verified(tmp_path: Path, words: Vocabulary, **rows: int) -> list[Path]:
    paths = []
    for name, count in rows.items():
        path = tmp_path / f"{name}.json"
        result = {"file": f"{name}.hdf5", "rows": count, "sequence_length": 32, "predictions": 5, "sha256": "a"}
        files.write_json(path, {**result, "content_digest": name, "vocabulary_sha256": words.sha256})
        paths.append(path)
    return paths


def test_the_manifest(tmp_path: Path, words: Vocabulary) -> None:
    paths = verified(tmp_path, words, test_0000=3, training_0001=0, training_0000=7)
    values = asdict(PARAMETERS)
    manifest.merge("sample", paths, words, values, tmp_path / "a.json")
    manifest.merge("sample", paths[::-1], words, values, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    found = json.loads((tmp_path / "a.json").read_text())
    assert [(shard["file"], shard["split"], shard["rows"]) for shard in found["shards"]] == [
        ("training_0000.hdf5", "training", 7),
        ("training_0001.hdf5", "training", 0),
        ("test_0000.hdf5", "test", 3),
    ]
    assert found["rows"] == 10 and found["sequence_length"] == 32 and found["vocabulary"]["mask"] == words.mask
    assert found["vocabulary"]["lower_case"] is True
    manifest.merge("sample", paths, words, {**values, "seed": 1}, tmp_path / "c.json")
    other = json.loads((tmp_path / "c.json").read_text())
    manifest.merge("sample", paths, words, {**values, "lower_case": False}, tmp_path / "d.json")
    assert json.loads((tmp_path / "d.json").read_text())["vocabulary"]["lower_case"] is False
    assert other["parameters_digest"] != found["parameters_digest"]
    assert other["content_digest"] == found["content_digest"]


def test_manifests_that_make_no_sense(tmp_path: Path, words: Vocabulary) -> None:
    with pytest.raises(UserError, match="no training example"):
        paths = verified(tmp_path, words, test_0000=3, training_0000=0)
        manifest.merge("sample", paths, words, {}, tmp_path / "m.json")
    with pytest.raises(UserError, match="belongs to no split"):
        manifest.merge("sample", verified(tmp_path, words, shard_0=3), words, {}, tmp_path / "m.json")
    with pytest.raises(UserError, match="do not belong together"):
        paths = verified(tmp_path, words, training_0000=3, training_0001=3)
        files.write_json(paths[0], {**files.read_json(paths[0]), "sequence_length": 64})
        manifest.merge("sample", paths, words, {}, tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


def test_a_gap_in_every_copy_is_seen_by_the_pair_search(words: Vocabulary) -> None:
    found = documents([[3, 3, 3, 3], [4, 4, 4]], words)
    order = segment_pairs.examples(found, PARAMETERS, "training", 0)
    (arrays,) = instances.blocks(found, order, PARAMETERS, words, "training", 0, 4096)
    row_checks.check_layout(Path("shard"), arrays, words)
    rows = np.arange(len(arrays["input_ids"]))
    with pytest.raises(UserError, match="in no document"):
        text_lookup.Text(documents([[2, 2], [4]], words)).check(Path("shard"), arrays, rows)


def test_segments_that_stand_everywhere_prove_nothing(words: Vocabulary) -> None:
    found = documents([[1] * 2500, [1] * 2500], words)
    everywhere = Documents(np.full_like(found.tokens, 9), found.sentences, found.documents, found.ids)
    parameters = Parameters(16, 2, dupe_factor=1)
    order = segment_pairs.examples(everywhere, parameters, "training", 0)
    (arrays,) = instances.blocks(everywhere, order, parameters, words, "training", 0, 9999)
    row_checks.check_layout(Path("shard"), arrays, words)
    rows = np.arange(len(arrays["input_ids"]))
    assert text_lookup.Text(everywhere).check(Path("shard"), arrays, rows) == 0

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
from throughline.corpus import manifest
from throughline.corpus.shards import Parameters, layout, making, verification
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


def test_a_good_shard_read_whole_and_in_pieces(good: Path, words: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    result = verification.verify(good, words, PARAMETERS)
    assert result["rows"] > 500 and result["sha256"] == files.sha256(good) and result["file"] == "training_0000.hdf5"
    assert json.loads(json.dumps(result)) == result
    monkeypatch.setattr(layout, "ROWS_READ", 130)
    assert verification.verify(good, words, PARAMETERS) == result


def test_other_parameters_than_asked_for(good: Path, words: Vocabulary) -> None:
    for other in (Parameters(32, 5, seed=1), Parameters(32, 4), Parameters(64, 5)):
        with pytest.raises(UserError, match="other parameters than asked for"):
            verification.verify(good, words, other)


def set_id(row: int, column: int, value: int) -> Callable[[Arrays], None]:
    return lambda arrays: arrays["input_ids"].__setitem__((row, column), value)


def no_padding_id(arrays: Arrays) -> None:
    arrays["input_ids"][int(np.argmin(arrays["input_mask"].sum(axis=1))), -1] = 9


def masked_separator(arrays: Arrays) -> None:
    arrays["masked_lm_positions"][0] = [int(np.argmax(arrays["segment_ids"][0])) - 1, 0, 0, 0, 0]
    arrays["masked_lm_ids"][0] = [9, 0, 0, 0, 0]


def fewer_masked(arrays: Arrays) -> None:
    row = int(np.argmax((arrays["masked_lm_ids"] != 0).sum(axis=1)))
    position = arrays["masked_lm_positions"][row, 4]
    arrays["input_ids"][row, position] = arrays["masked_lm_ids"][row, 4]
    arrays["masked_lm_positions"][row, 4] = arrays["masked_lm_ids"][row, 4] = 0


def unused_as_random_word(arrays: Arrays) -> None:
    arrays["input_ids"][0, arrays["masked_lm_positions"][0, 0]] = 1


def no_masks(arrays: Arrays) -> None:
    row, k = np.nonzero(arrays["masked_lm_ids"])
    arrays["input_ids"][row, arrays["masked_lm_positions"][row, k]] = arrays["masked_lm_ids"][row, k]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_id(0, 1, 9999), "an id outside the vocabulary"),
        (lambda arrays: arrays["next_sentence_labels"].__setitem__(4, 2), "neither 0 nor 1.*\n.*first in row 4 "),
        (no_padding_id, r"a row that is not \[CLS\] A \[SEP\] B \[SEP\]"),
        (lambda arrays: arrays["input_mask"].__setitem__((3, 4), 0), "a row that is not"),
        (masked_separator, "masked_lm_positions and masked_lm_ids"),
        (fewer_masked, "another number of masks"),
        (unused_as_random_word, "a random word that is none"),
        (no_masks, r"a share of \[MASK\] far from 80 %"),
    ],
)
def test_every_fault_is_found(
    good: Path, words: Vocabulary, tmp_path: Path, change: Callable[[Arrays], None], message: str
) -> None:
    arrays = read_shard(good)
    change(arrays)
    path = tmp_path / "training_0000.hdf5"
    described = json.dumps(PARAMETERS.recorded(words.sha256))
    blocks = [{k: v[i : i + 2048] for k, v in arrays.items()} for i in range(0, len(arrays["input_ids"]), 2048)]
    making.write(path, blocks, len(arrays["input_ids"]), 32, 5, described)
    with pytest.raises(UserError, match=message):
        verification.verify(path, words, PARAMETERS)


@pytest.mark.parametrize(
    ("counts", "what"),
    [
        ({"replaced_by_mask": 8000, "unchanged": 1000, "changed": 1000}, None),
        ({"replaced_by_mask": 8000, "unchanged": 1160, "changed": 840}, "unchanged"),
        ({"replaced_by_mask": 8000, "unchanged": 1000, "changed": 840}, "random"),
        ({"replaced_by_mask": 8210, "unchanged": 1000, "changed": 790}, r"\[MASK\]"),
    ],
)
def test_shares_beyond_five_standard_deviations(words: Vocabulary, counts: dict[str, int], what: str | None) -> None:
    if what is None:
        verification._check_shares(Path("shard"), {**counts, "masked": 10_000}, words)
        return
    with pytest.raises(UserError, match=f"a share of {what}"):
        verification._check_shares(Path("shard"), {**counts, "masked": 10_000}, words)


def test_a_shard_without_rows_is_legal(folder: Path, words: Vocabulary, tmp_path: Path) -> None:
    write_tokens(tmp_path / "none.hdf5", documents([], words), words)
    making.make(tmp_path / "none.hdf5", folder / "tiny.txt", PARAMETERS, "test", 0, tmp_path / "test_0000.hdf5")
    result = verification.verify(tmp_path / "test_0000.hdf5", words, PARAMETERS)
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

    def merged(*listed: Path, **changes: object) -> bytes:
        values = {**asdict(PARAMETERS), **changes}
        manifest.merge_pairs("sample", listed, words, values, tmp_path / "manifest.json")
        return (tmp_path / "manifest.json").read_bytes()

    assert merged(*paths) == merged(*paths[::-1])
    found, other, cased = (
        json.loads(merged(*paths, **changes)) for changes in ({}, {"seed": 1}, {"lower_case": False})
    )
    assert [(shard["file"], shard["split"], shard["rows"]) for shard in found["shards"]] == [
        ("training_0000.hdf5", "training", 7),
        ("training_0001.hdf5", "training", 0),
        ("test_0000.hdf5", "test", 3),
    ]
    assert found["rows"] == 10 and found["sequence_length"] == 32 and found["vocabulary"]["mask"] == words.mask
    assert found["vocabulary"]["lower_case"] is True and cased["vocabulary"]["lower_case"] is False
    assert other["parameters_digest"] != found["parameters_digest"]
    assert other["content_digest"] == found["content_digest"]


def test_manifests_that_make_no_sense(tmp_path: Path, words: Vocabulary) -> None:
    with pytest.raises(UserError, match="no training example"):
        paths = verified(tmp_path, words, test_0000=3, training_0000=0)
        manifest.merge_pairs("sample", paths, words, {}, tmp_path / "m.json")
    with pytest.raises(UserError, match="belongs to no split"):
        manifest.merge_pairs("sample", verified(tmp_path, words, shard_0=3), words, {}, tmp_path / "m.json")
    with pytest.raises(UserError, match="do not belong together"):
        paths = verified(tmp_path, words, training_0000=3, training_0001=3)
        files.write_json(paths[0], {**files.read_json(paths[0]), "sequence_length": 64})
        manifest.merge_pairs("sample", paths, words, {}, tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()

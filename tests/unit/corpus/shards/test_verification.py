"""Verification finds every kind of fault that a test puts into a valid shard, and the manifest describes the shards."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus_helpers import documents, read_shard, tiny_vocabulary, write_tokens
from throughline import files
from throughline.corpus import manifest
from throughline.corpus.shards import Parameters, layout, making, verification
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

PARAMETERS = Parameters(32, 5)
DYNAMIC = replace(PARAMETERS, dupe_factor=1, dynamic=True)
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verification")


@pytest.fixture(scope="module")
def words(folder: Path) -> Vocabulary:
    return tiny_vocabulary(folder, words=3000)


@pytest.fixture(scope="module")
def good(folder: Path, words: Vocabulary) -> dict[Parameters, Path]:
    chance = np.random.default_rng(1)
    found = documents([chance.integers(1, 20, size=30).tolist() for _ in range(10)], words)
    write_tokens(folder / "tokens.hdf5", found, words)
    paths = {PARAMETERS: folder / "training_0000.hdf5", DYNAMIC: folder / "dynamic/training_0000.hdf5"}
    for parameters, path in paths.items():
        path.parent.mkdir(exist_ok=True)
        making.make(folder / "tokens.hdf5", folder / "tiny.txt", parameters, "training", 0, path)
    return paths


@pytest.mark.parametrize("parameters", [PARAMETERS, DYNAMIC])
def test_a_good_shard_read_whole_and_in_pieces(
    good: dict[Parameters, Path], words: Vocabulary, monkeypatch: pytest.MonkeyPatch, parameters: Parameters
) -> None:
    result = verification.verify(good[parameters], words, parameters)
    assert result["rows"] > 120 and result["sha256"] == files.sha256(good[parameters])
    assert result["file"] == "training_0000.hdf5" and json.loads(json.dumps(result)) == result
    means = result["statistics"]
    assert means["masked_share"] == pytest.approx(means["masked_per_row"] / (means["tokens_per_row"] - 3))
    monkeypatch.setattr(layout, "ROWS_READ", 50)
    assert verification.verify(good[parameters], words, parameters) == result


@pytest.mark.parametrize(
    ("made", "parameters", "message"),
    [
        (PARAMETERS, Parameters(32, 5, seed=1), "other parameters than asked for"),
        (PARAMETERS, Parameters(32, 4), "other parameters than asked for"),
        (PARAMETERS, Parameters(64, 5), "other parameters than asked for"),
        (PARAMETERS, DYNAMIC, "other parameters than asked for"),
        (DYNAMIC, replace(DYNAMIC, dynamic=False), "other parameters than asked for"),
        (DYNAMIC, None, "has examples without masks"),  # as for a finished shard whose maker we do not know
    ],
)
def test_another_shard_than_asked_for(
    good: dict[Parameters, Path], words: Vocabulary, made: Parameters, parameters: Parameters | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        verification.verify(good[made], words, parameters, size=(32, 5))


def put(name: str, place: int | tuple[int, int], value: int) -> Callable[[Arrays], None]:
    return lambda arrays: arrays[name].__setitem__(place, value)


def no_padding_id(arrays: Arrays) -> None:
    arrays["input_ids"][int(np.argmin(arrays["input_mask"].sum(axis=1))), -1] = 9


def no_first_segment(arrays: Arrays) -> None:
    arrays["segment_ids"][0, 2 : arrays["input_mask"][0].sum()] = 1
    arrays["input_ids"][0, 1] = 4  # [SEP]


def masked_separator(arrays: Arrays) -> None:
    arrays["masked_lm_positions"][0] = [int(np.argmax(arrays["segment_ids"][0])) - 1, 0, 0, 0, 0]
    arrays["masked_lm_ids"][0] = [9, 0, 0, 0, 0]


def unused_as_random_word(arrays: Arrays) -> None:
    arrays["input_ids"][0, arrays["masked_lm_positions"][0, 0]] = 1


def no_masks(arrays: Arrays) -> None:
    row, k = np.nonzero(arrays["masked_lm_ids"])
    arrays["input_ids"][row, arrays["masked_lm_positions"][row, k]] = arrays["masked_lm_ids"][row, k]


@pytest.mark.parametrize(
    ("parameters", "change", "message"),
    [
        (PARAMETERS, put("input_ids", (0, 1), 9999), "an id outside the vocabulary"),
        (PARAMETERS, put("next_sentence_labels", 4, 2), "neither 0 nor 1.*\n.*first in row 4 "),
        (PARAMETERS, no_padding_id, r"a row that is not \[CLS\] A \[SEP\] B \[SEP\]"),
        (PARAMETERS, no_first_segment, "a row that is not"),
        (PARAMETERS, masked_separator, "masked_lm_positions and masked_lm_ids"),
        (PARAMETERS, unused_as_random_word, "a random word that is none"),
        (PARAMETERS, no_masks, r"a share of \[MASK\] far from 80 %"),
        (DYNAMIC, put("input_ids", (0, 0), 9), "a row that is not"),
        (DYNAMIC, put("a_lengths", 2, 0), "segments without tokens.*\n.*first in row 2 "),
        (DYNAMIC, put("b_lengths", 2, -1), "segments without tokens"),
        (DYNAMIC, put("b_lengths", 2, 30), "longer than the row"),
        (DYNAMIC, put("a_lengths", 2, 1 << 30), "longer than the row"),
    ],
)
def test_every_fault_is_found(
    good: dict[Parameters, Path],
    words: Vocabulary,
    tmp_path: Path,
    parameters: Parameters,
    change: Callable[[Arrays], None],
    message: str,
) -> None:
    arrays = read_shard(good[parameters])
    change(arrays)
    path, rows = tmp_path / "training_0000.hdf5", len(arrays["input_ids"])
    blocks = [{k: v[i : i + 2048] for k, v in arrays.items()} for i in range(0, rows, 2048)]
    kinds = layout.unmasked_types(len(words)) if parameters.dynamic else layout.TYPES
    making.write(path, blocks, rows, 32, 5, json.dumps(parameters.recorded(words.sha256)), kinds=kinds)
    with pytest.raises(UserError, match=message):
        verification.verify(path, words, parameters)


@pytest.mark.parametrize(
    ("masks", "unchanged", "changed", "what"),
    [(8000, 1160, 840, "unchanged words"), (8000, 1000, 840, "random words"), (8210, 1000, 790, r"\[MASK\]")],
)
def test_shares_beyond_five_standard_deviations(
    words: Vocabulary, masks: int, unchanged: int, changed: int, what: str
) -> None:
    fine = {"masked": 10_000, "replaced_by_mask": 8000, "unchanged": 1140, "changed": 860}
    verification._check_shares(Path("shard"), fine, words)
    with pytest.raises(UserError, match=f"a share of {what} far from"):
        wrong = {"replaced_by_mask": masks, "unchanged": unchanged, "changed": changed}
        verification._check_shares(Path("shard"), {**fine, **wrong}, words)


def test_tokens_without_documents_and_of_another_vocabulary(folder: Path, words: Vocabulary, tmp_path: Path) -> None:
    made = folder / "tiny.txt", PARAMETERS, "test", 0
    write_tokens(tmp_path / "none.hdf5", documents([], words), words)
    making.make(tmp_path / "none.hdf5", *made, tmp_path / "test_0000.hdf5")
    result = verification.verify(tmp_path / "test_0000.hdf5", words, PARAMETERS)
    assert result["rows"] == 0 and result["statistics"] == {}
    write_tokens(tmp_path / "other.hdf5", documents([[2, 2]], words), words, sha256="0" * 64)
    with pytest.raises(UserError, match="another vocabulary"):
        making.make(tmp_path / "other.hdf5", *made, tmp_path / "s.hdf5")
    assert not (tmp_path / "s.hdf5").exists()


Merged = Callable[..., dict[str, Any]]


@pytest.fixture
def merged(tmp_path: Path, words: Vocabulary) -> Merged:
    """Return a function that makes the manifest of shards with these rows."""

    def made(rows: dict[str, int], lengths: Sequence[int] = (32, 32, 32), **changes: object) -> dict[str, Any]:
        paths = [tmp_path / f"{name}.json" for name in rows]
        for path, length in zip(paths, lengths, strict=False):
            shape = {"sequence_length": length, "predictions": 5, "vocabulary_sha256": words.sha256}
            shard = {"file": f"{path.stem}.hdf5", "rows": rows[path.stem], "sha256": "a", "content_digest": path.stem}
            files.write_json(path, {**shard, **shape})
        manifest.merge_pairs("sample", paths, words, {**asdict(PARAMETERS), **changes}, tmp_path / "manifest.json")
        found: dict[str, Any] = files.read_json(tmp_path / "manifest.json")
        return found

    return made


def test_the_manifest(words: Vocabulary, merged: Merged) -> None:
    rows = {"test_0000": 3, "training_0001": 0, "training_0000": 7}
    found, other, cased = merged(rows), merged(rows, seed=1), merged(rows, lower_case=False)
    assert found == merged(dict(reversed(rows.items())))
    listed = [(shard["file"], shard["split"], shard["rows"]) for shard in found["shards"]]
    training = [("training_0000.hdf5", "training", 7), ("training_0001.hdf5", "training", 0)]
    assert listed == [*training, ("test_0000.hdf5", "test", 3)]
    assert found["rows"] == 10 and found["sequence_length"] == 32 and found["vocabulary"]["mask"] == words.mask
    assert found["vocabulary"]["lower_case"] is True and cased["vocabulary"]["lower_case"] is False
    assert other["parameters_digest"] != found["parameters_digest"]
    assert other["content_digest"] == found["content_digest"]


def test_manifests_that_make_no_sense(tmp_path: Path, merged: Merged, words: Vocabulary) -> None:
    with pytest.raises(UserError, match="no training example"):
        merged({"test_0000": 3, "training_0000": 0})
    with pytest.raises(UserError, match="belongs to no split"):
        merged({"shard_0": 3})
    with pytest.raises(UserError, match="do not belong together"):
        merged({"training_0000": 3, "training_0001": 3}, [32, 64])
    with pytest.raises(UserError, match="do not belong together"):
        manifest.merge_pairs(
            "sample", [tmp_path / "training_0000.json"], replace(words, sha256="0"), {}, tmp_path / "m"
        )
    assert not (tmp_path / "manifest.json").exists()

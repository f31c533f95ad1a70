"""NVIDIA's training script can read our shards, and we can read the shards that NVIDIA's data script writes."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from corpus_helpers import content_digest, documents, read_shard, tiny_vocabulary, write_tokens
from throughline.corpus.shards import Parameters, layout, making, verification
from throughline.corpus.text.vocabulary import Vocabulary

NAMES = ["input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels"]


@pytest.fixture
def words(tmp_path: Path) -> Vocabulary:
    return tiny_vocabulary(tmp_path, words=500)


@pytest.fixture
def ours(tmp_path: Path, words: Vocabulary) -> Path:
    chance = np.random.default_rng(3)
    found = documents([chance.integers(1, 25, size=20).tolist() for _ in range(6)], words)
    write_tokens(tmp_path / "tokens.hdf5", found, words)
    path = tmp_path / "training_0000.hdf5"
    making.make(tmp_path / "tokens.hdf5", tmp_path / "tiny.txt", Parameters(32, 5), "training", 0, path)
    return path


def loaded_as_in_training(path: Path, ignore: int = -1) -> list[tuple[np.ndarray, ...]]:
    """Return what a model gets per example: four vectors and a label, with a target at each position to predict."""
    with h5py.File(path, "r") as stream:
        columns = [np.asarray(stream[name][:]) for name in NAMES]
    examples = []
    for ids, mask, segments, positions, answers, label in zip(*(c.astype(np.int64) for c in columns), strict=True):
        labels = np.full(len(ids), ignore)
        ends = np.flatnonzero(positions == 0)
        count = ends[0] if len(ends) else len(positions)
        labels[positions[:count]] = answers[:count]
        examples.append((ids, segments, mask, labels, label))
    return examples


def test_a_training_loop_reads_our_shards(ours: Path, words: Vocabulary) -> None:
    with h5py.File(ours) as stream:
        found = {name: (stream[name].dtype.str, stream[name].shape[1:]) for name in stream}
    shapes = [(32,), (32,), (32,), (5,), (5,), ()]
    assert found == dict(zip(NAMES, zip(["<i4", "|i1", "|i1", "<i4", "<i4", "|i1"], shapes, strict=True), strict=True))
    examples = loaded_as_in_training(ours)
    assert len(examples) == layout.size(ours)[0] > 100
    for ids, segments, mask, labels, label in examples:
        assert len(ids) == len(segments) == len(mask) == len(labels) == 32
        wanted = labels != -1
        assert 1 <= wanted.sum() <= 5 and label in (0, 1)
        assert (labels[wanted] >= 0).all() and (mask[wanted] == 1).all()
        assert not np.isin(labels[wanted], [words.pad, words.cls, words.sep, words.mask]).any()
        restored = np.where(wanted, labels, ids)
        assert restored[0] == words.cls and (restored == words.sep).sum() == 2


def as_nvidia_writes(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as stream:
        for name in NAMES:
            kind = "i4" if name in ("input_ids", "masked_lm_positions", "masked_lm_ids") else "i1"
            stream.create_dataset(name, data=arrays[name].astype("int32"), dtype=kind, compression="gzip")


def test_we_read_what_nvidias_script_writes(ours: Path, tmp_path: Path, words: Vocabulary) -> None:
    """Its random words may be special tokens, and a literal [SEP] in its text becomes one. Both are no faults."""
    path, arrays = tmp_path / "part_training_7.hdf5", read_shard(ours)
    arrays["input_ids"][0, arrays["masked_lm_positions"][0, 0]] = words.sep
    free = next(c for c in range(1, 4) if c not in arrays["masked_lm_positions"][1])
    arrays["input_ids"][1, free] = words.sep
    as_nvidia_writes(path, arrays)
    found = read_shard(path)
    assert all(np.array_equal(found[name], arrays[name]) and found[name].dtype == arrays[name].dtype for name in NAMES)
    result = verification.verify(path, words)
    assert result["content_digest"] == content_digest(arrays) and result["parameters"] is None

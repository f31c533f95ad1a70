"""A job makes the same content, however much memory it may use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import content, same, tiny_vocabulary
from throughline.corpus.shards import Parameters, making, pairs
from throughline.corpus.text import tokens
from throughline.corpus.text.tokens import Allocator

PARAMETERS = Parameters(16, 3, probability=0.3, dupe_factor=2)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    articles=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=12),
    memory_bytes=st.sampled_from([0, 1, 40, 300]),
    at_a_time=st.sampled_from([1, 3, 7]),
)
def test_any_memory_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    articles: list[list[int]],
    memory_bytes: int,
    at_a_time: int,
) -> None:
    folder = tmp_path_factory.mktemp("memory")
    tiny_vocabulary(folder)
    chance = np.random.default_rng(len(articles))
    for part in range(2):
        with (folder / f"{part}.jsonl").open("w") as stream:
            for number, sentences in enumerate(articles[part::2]):
                lines = [" ".join(f"word{i}" for i in chance.integers(0, 20, size)) for size in sentences]
                stream.write(json.dumps({"id": str(7 * number % 11 + 20 * part), "text": "\n".join(lines)}) + "\n")

    def made(name: str, **bound: int) -> Path:
        there = folder / name
        parts = [there / f"part_{part}.hdf5" for part in range(2)]
        for part, path in enumerate(parts):
            tokens.tokenize(folder / f"{part}.jsonl", folder / "tiny.txt", path, lines=True, **bound)
        tokens.gather(parts, 0, 1, there / "tokens.hdf5", **bound)
        shard, gathered = there / "training_0000.hdf5", there / "tokens.hdf5"
        making.make(gathered, folder / "tiny.txt", PARAMETERS, "training", 0, shard, **bound)
        return there

    whole = made("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_BATCH_CHARACTERS", 10)
        patch.setattr(pairs, "_SENTENCES", at_a_time)
        patch.setattr(pairs, "_SORTED", at_a_time)
        bounded = made("bounded", memory_bytes=memory_bytes)
    for path in sorted(whole.iterdir()):
        assert same(content(path), content(bounded / path.name)), path.name
    assert sorted(path.name for path in bounded.iterdir()) == sorted(path.name for path in whole.iterdir())


def test_what_does_not_fit_lies_in_files_and_keeps_its_values(tmp_path: Path) -> None:
    allocator = Allocator(tmp_path, 1000)
    inside, outside = allocator.empty(100, np.int64), allocator.empty(100_000, np.int64)
    inside[:], outside[:] = np.arange(100), np.arange(100_000)
    allocator.release()
    assert np.array_equal(outside, np.arange(100_000)) and np.array_equal(inside, np.arange(100))
    assert len(allocator.empty(0, np.int64)) == 0 and not list(tmp_path.iterdir())
    assert allocator._left == 200 and len(allocator._mapped) == 1

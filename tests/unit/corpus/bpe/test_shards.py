"""GPT-2's tokens: the shards do not depend on how the text is cut, they decode to the text, and are read in windows."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from corpus_helpers import content, same
from throughline import files, workloads
from throughline.corpus import manifest
from throughline.corpus.bpe import END_OF_TEXT, shards, vocabulary
from throughline.corpus.text import tokens
from throughline.files import UserError
from throughline.rank.data import Manifest
from throughline.workloads import gpt2

SHARDS = [("training", 0), ("training", 1), ("test", 0)]
DIGEST = "d" * 64
WORDS = ["the", "cat", "don't", "0815", "naïve", "日本語", "\n\n", "  ", "<|endoftext|>", "🙂", "(see", "below),"]


@pytest.fixture(scope="module")
def texts() -> dict[int, str]:
    """Page id -> text. One text is empty, and one begins with a lone surrogate."""
    chance = random.Random(1)
    made = {number: " ".join(chance.choices(WORDS, k=chance.randrange(1, 300))) for number in range(100, 160)}
    return made | {7: "", 8: "\ud83d alone"}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    vocabulary.build(folder)
    return folder


def made(folder: Path, words: Path, texts: dict[int, str], parts: int) -> Path:
    """Make shards from the texts in `parts` parts; return the manifest."""
    every = []
    for part in range(parts):
        mine = [(number, text) for at, (number, text) in enumerate(texts.items()) if at % parts == part]
        articles = folder / f"part_{part}.jsonl"
        articles.write_text("".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in mine))
        every.append(folder / "tokens" / f"part_{part}.hdf5")
        shards.tokenize(articles, words, every[-1])
    verified = []
    for at, (split, number) in enumerate(SHARDS):
        path = folder / "bpe" / f"{split}_{number:04d}.hdf5"
        shards.gather(every, at, len(SHARDS), DIGEST, path)
        verified.append(folder / "verified" / f"{path.stem}.json")
        files.write_json(verified[-1], shards.verify(path, words, DIGEST))
    manifest.merge_tokens("sample", verified, {"protocol": 1}, folder / "bpe" / "manifest.json")
    return folder / "bpe" / "manifest.json"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, words: Path, texts: dict[int, str]) -> Path:
    return made(tmp_path_factory.mktemp("one"), words, texts, 1)


def read(one: Path, sequence_length: int, seed: int = 1) -> Manifest:
    return Manifest(one, "corpus", gpt2.Parameters(sequence_length=sequence_length), seed)


def windows(data: Manifest, epoch: int, shard: int = 0) -> np.ndarray:
    return np.asarray(data.reader.read(data.shards[shard], epoch)["tokens"])


def stored(one: Path, shard: str = "training_0000") -> np.ndarray:
    with h5py.File(one.with_name(f"{shard}.hdf5")) as stream:
        return np.asarray(stream["tokens"][:])


@pytest.mark.slow
def test_the_same_shards_for_any_parts_and_memory(
    tmp_path: Path, one: Path, words: Path, texts: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MEMORY_BYTES", 1 << 10)
    other = made(tmp_path, words, dict(reversed(texts.items())), 3)
    names = [f"{split}_{number:04d}.hdf5" for split, number in SHARDS]
    assert all(same(content(one.with_name(name)), content(other.with_name(name))) for name in names)
    assert json.loads(one.read_text()) == json.loads(other.read_text())
    listed = json.loads(one.read_text())
    assert listed["documents"] == len(texts) - 1 and listed["vocabulary"]["size"] == 50257
    assert listed["tokens"] == sum(len(stored(one, name.removesuffix(".hdf5"))) for name in names)


def test_documents_are_their_articles_in_the_order_of_their_page_ids(
    one: Path, words: Path, texts: dict[int, str]
) -> None:
    tokens, found = vocabulary.read(words).tokens, {}
    for name in ("training_0000", "training_0001", "test_0000"):
        with h5py.File(one.with_name(f"{name}.hdf5")) as stream:
            ids, bounds, numbers = stream["tokens"][:], stream["documents"][:], stream["ids"][:].tolist()
            assert stream["tokens"].dtype == np.uint16 and stream["tokens"].chunks is None
        assert numbers == sorted(numbers)
        for number, (first, last) in zip(numbers, itertools.pairwise(bounds), strict=True):
            assert ids[last - 1] == END_OF_TEXT
            found[number] = b"".join(tokens[i] for i in ids[first : last - 1]).decode()
    assert found == {number: text.replace("\ud83d", "") for number, text in texts.items() if text}


def one_more(stream: h5py.File) -> None:
    tokens = [*stream["tokens"][:], 5]
    del stream["tokens"]
    stream.create_dataset("tokens", data=np.array(tokens, np.uint16))


def change(name: str, at: int, value: int) -> Callable[[h5py.File], None]:
    return lambda stream: stream[name].__setitem__(at, value)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda stream: stream["tokens"].__setitem__(3, int(stream["tokens"][3]) ^ 1), "another text than the article"),
        (lambda stream: stream["texts"].__setitem__((2, 5), int(stream["texts"][2, 5]) ^ 1), "another text than"),
        (change("tokens", 4, 50_257), "the id 50257 at token 4"),
        (one_more, "documents that do not end with"),
        (change("tokens", 4, END_OF_TEXT), "documents that do not end with"),
        (change("tokens", -1, 5), "documents that do not end with"),
        (change("documents", 1, 2), "documents that do not end with"),
        (lambda stream: stream.attrs.update(parameters_digest="e" * 64), "other parameters"),
        (lambda stream: stream.attrs.update(vocabulary_sha256="e" * 64), "another vocabulary"),
        (lambda stream: stream.__delitem__("ids"), "it lacks ids"),
        (lambda stream: stream.attrs.__delitem__("complete"), "writing was interrupted"),
    ],
)
def test_a_fault_in_a_shard_is_found(tmp_path: Path, one: Path, words: Path, fault: Any, message: str) -> None:
    path = tmp_path / "training_0000.hdf5"
    path.write_bytes(one.with_name(path.name).read_bytes())
    with h5py.File(path, "a") as stream:
        fault(stream)
    with pytest.raises(UserError, match=message):
        shards.verify(path, words, DIGEST)


def test_ids_that_decode_to_the_text_and_are_not_its_encoding(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """` the` written as a blank and `the` is the same text, but with more tokens than its encoding."""
    by_bytes = {token: number for number, token in enumerate(vocabulary.read(words).tokens)}
    ids = [np.array([by_bytes[b"a"], by_bytes[b" "], by_bytes[b"the"]], np.uint16)]
    monkeypatch.setattr(shards.Encoder, "encode", lambda self, texts: ids)
    (tmp_path / "a.jsonl").write_text('{"id": "5", "text": "a the"}\n')
    shards.tokenize(tmp_path / "a.jsonl", words, tmp_path / "part.hdf5")
    shards.gather([tmp_path / "part.hdf5"], 0, 1, DIGEST, tmp_path / "shard.hdf5")
    monkeypatch.undo()
    with pytest.raises(UserError, match="other ids than the article 5"):
        shards.verify(tmp_path / "shard.hdf5", words, DIGEST)


def test_nothing_to_train_on(tmp_path: Path, words: Path) -> None:
    with pytest.raises(UserError, match="no tokens to train on"):
        made(tmp_path, words, {7: ""}, 1)


@pytest.mark.parametrize("sequence_length", [8, 31, 100])
def test_windows_cover_the_tokens(one: Path, sequence_length: int) -> None:
    data, tokens = read(one, sequence_length), stored(one)
    for epoch in range(20):
        rows = windows(data, epoch)
        assert rows.shape == (data.reader.rows(data.shards[0]), sequence_length + 1)
        assert (rows[1:, 0] == rows[:-1, -1]).all(), "what one window predicts last, the next one reads first"
        inputs = rows[:, :-1].ravel()
        assert any((tokens[first : first + len(inputs)] == inputs).all() for first in range(sequence_length))
        assert len(tokens) - 2 * sequence_length < len(inputs) < len(tokens)


def test_windows_follow_seed_and_epoch_and_may_fill_their_shard(one: Path) -> None:
    drawn = {windows(read(one, 64, seed), epoch).tobytes() for seed in (1, 2) * 2 for epoch in range(3)}
    tokens = stored(one)
    longest, longer = read(one, len(tokens) - 1), read(one, len(tokens))
    assert len(drawn) == 6 and (windows(longest, 5) == tokens).all()
    assert [data.reader.rows(data.shards[0]) for data in (longest, longer)] == [1, 0] and not len(windows(longer, 0))


def test_each_replica_needs_a_window(one: Path) -> None:
    short = read(one, 1000)
    with pytest.raises(UserError, match="training rows for 99 replicas"):
        short.fits(workloads.of("gpt2-tiny"), gpt2.Parameters(sequence_length=1000), 99)
    short.fits(workloads.of("gpt2-tiny"), gpt2.Parameters(sequence_length=1000), 2)


def test_a_manifest_of_pairs_is_not_for_gpt2(tmp_path: Path, one: Path) -> None:
    pairs = tmp_path / "manifest.json"
    pairs.write_text(json.dumps({"sequence_length": 32, "predictions": 5, "shards": []}))
    with pytest.raises(UserError, match="running text"):
        Manifest(pairs, "corpus", gpt2.Parameters(), 1).fits(workloads.of("gpt2-tiny"), gpt2.Parameters(), 1)

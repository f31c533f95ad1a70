"""Tokens files: only the page id decides the shard of a document, in any memory. Empty documents are left out."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import content, documents, same, tiny_vocabulary, write_tokens
from throughline.corpus.shards import Parameters, making, pairs
from throughline.corpus.text import tokens
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

PARAMETERS = Parameters(16, 3, probability=0.3, dupe_factor=2)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return tiny_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def write_articles(path: Path, articles: dict[int, str]) -> Path:
    path.write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in articles.items()))
    return path


def sentences_of(found: tokens.Documents, number: int) -> list[list[int]]:
    first, last = found.documents[number : number + 2]
    return [found.tokens[found.sentences[i] : found.sentences[i + 1]].tolist() for i in range(first, last)]


def test_tokenized_articles_and_a_part_without_any(tmp_path: Path) -> None:
    articles = {
        7: "word1 word2. word3\nword4",
        8: "",
        9: "\n \n\u200b\n",  # for BERT, this paragraph has no tokens
        3: "[SEP] word5",
    }
    words = tiny_vocabulary(tmp_path)
    parts = [tmp_path / "t.hdf5", tmp_path / "empty.hdf5"]
    for part, texts in zip(parts, (articles, {}), strict=True):
        tokens.tokenize(write_articles(tmp_path / "a.jsonl", texts), tmp_path / "tiny.txt", part)
    found, facts = tokens.read(parts[0])
    assert sorted(found.ids.tolist()) == [3, 7]
    assert (facts["vocabulary_sha256"], facts["vocabulary_size"]) == (words.sha256, len(words))
    by_id = {number: sentences_of(found, i) for i, number in enumerate(found.ids.tolist())}
    assert by_id[7][-1] == [words.entries.index("word4")]
    special = {words.pad, words.cls, words.sep, words.mask}
    assert not special & {token for sentence in by_id[3] for token in sentence}
    for some, expected in ((parts, [3, 7]), (parts[1:], [])):
        tokens.gather(some, 0, 1, tmp_path / "shard.hdf5")
        assert tokens.read(tmp_path / "shard.hdf5")[0].ids.tolist() == expected


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    articles=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=12),
    parts=st.integers(1, 4),
    shards=st.integers(1, 6),
    memory_bytes=st.sampled_from([0, 1, 40, 300]),
    at_a_time=st.sampled_from([1, 3, 7]),
)
def test_any_parts_and_any_memory_give_the_same_shards(
    tmp_path_factory: pytest.TempPathFactory,
    articles: list[list[int]],
    parts: int,
    shards: int,
    memory_bytes: int,
    at_a_time: int,
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    words, chance = tiny_vocabulary(folder), np.random.default_rng(len(articles))
    ids = chance.choice(10**9, size=len(articles), replace=False).tolist()
    entries = [[chance.integers(0, 20, size).tolist() for size in sentences] for sentences in articles]
    texts = ["\n".join(" ".join(f"word{i}" for i in sentence) for sentence in sentences) for sentences in entries]
    found: dict[int, list[list[int]]] = {}

    def made(parts: int) -> list[bytes]:
        files, contents = [folder / f"{part}.hdf5" for part in range(parts)], []
        for part, file in enumerate(files):
            some = dict(zip(ids[part::parts], texts[part::parts], strict=True))
            path = write_articles(folder / "a.jsonl", some)
            tokens.tokenize(path, folder / "tiny.txt", file, lines=True)
        assert sorted(ids) == sorted(number for file in files for number in tokens.read(file)[0].ids.tolist())
        for shard in range(shards):
            gathered, path = folder / "tokens.hdf5", folder / "training_0000.hdf5"
            tokens.gather(files, shard, shards, gathered)
            making.make(gathered, folder / "tiny.txt", PARAMETERS, "training", 0, path)
            read, _ = tokens.read(gathered)
            assert (np.diff(read.ids) > 0).all()
            found.update((number, sentences_of(read, i)) for i, number in enumerate(read.ids.tolist()))
            contents += content(gathered), content(path)
        return contents

    whole = made(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "MEMORY_BYTES", memory_bytes)
        patch.setattr(tokens, "_BATCH_CHARACTERS", 10)
        patch.setattr(pairs, "_SENTENCES", at_a_time)
        patch.setattr(pairs, "_SORTED", at_a_time)
        assert all(map(same, whole, made(parts)))
    first = words.entries.index("word0")
    assert found == {n: [[first + i for i in one] for one in some] for n, some in zip(ids, entries, strict=True)}
    assert not [path for path in folder.iterdir() if path.suffix not in (".hdf5", ".txt", ".jsonl")]


def test_pages_spread_evenly_and_stay_where_they_are() -> None:
    places = tokens.place(np.arange(100_000))
    shares = np.histogram(places.astype(float), bins=16, range=(0, 2.0**64))[0]
    assert shares.min() > 6000 and shares.max() < 6500
    first_of_splitmix64 = 0xE220A8397B1DCDAF  # with seed 0, as published
    expected = [first_of_splitmix64, 10682531704454680323, 1900726960315935718]
    assert tokens.place(np.array([0, 12, 7_000_000])).tolist() == expected


def test_a_page_in_two_parts_is_taken_once_from_the_first(tmp_path: Path, words: Vocabulary) -> None:
    first, second = documents([[2]], words, ids=[5]), documents([[3], [1]], words, ids=[5, 6])
    for name, found in (("a", first), ("b", second)):
        write_tokens(tmp_path / f"{name}.hdf5", found, words)
    tokens.gather([tmp_path / "a.hdf5", tmp_path / "b.hdf5"], 0, 1, tmp_path / "c.hdf5")
    found, _ = tokens.read(tmp_path / "c.hdf5")
    assert found.ids.tolist() == [5, 6]
    assert [len(sentence) for sentence in sentences_of(found, 0)] == [2]


def test_damaged_files(tmp_path: Path, words: Vocabulary) -> None:
    path = tmp_path / "t.hdf5"
    write_tokens(path, documents([[200, 300]], words), words)
    data = path.read_bytes()
    with h5py.File(path) as stream:
        place = stream["tokens"].id.get_chunk_info(0).byte_offset + 77
    flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    with h5py.File(path, "a") as stream:
        del stream.attrs["complete"]
    for damaged in (path.read_bytes(), data[:-100], flipped):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="no whole tokens file"):
            tokens.read(path)


def test_parts_of_different_vocabularies(tmp_path: Path, words: Vocabulary) -> None:
    for name, sha256 in (("a", "0" * 64), ("b", "1" * 64)):
        write_tokens(tmp_path / f"{name}.hdf5", documents([[2]], words), words, sha256=sha256)
    with pytest.raises(UserError, match="different vocabularies"):
        tokens.gather([tmp_path / "a.hdf5", tmp_path / "b.hdf5"], 0, 1, tmp_path / "c.hdf5")


def test_the_type_of_ids() -> None:
    assert (tokens.kind_for(65536), tokens.kind_for(65537)) == (np.uint16, np.uint32)

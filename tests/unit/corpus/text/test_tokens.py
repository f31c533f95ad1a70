"""Tokens files: only the page id decides which shard a document goes to, and empty documents are left out."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import content, documents, same, taken, tiny_vocabulary, write_tokens
from throughline.corpus.text import tokens
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError


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


def in_hash_order(found: tokens.Documents) -> tokens.Documents:
    return taken(found, np.argsort(tokens.place(found.ids), kind="stable"))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=0, max_size=12),
    parts=st.integers(1, 4),
    shards=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_shards_do_not_depend_on_parts(
    tmp_path_factory: pytest.TempPathFactory,
    words: Vocabulary,
    lengths: list[list[int]],
    parts: int,
    shards: int,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    chance = np.random.default_rng(seed)
    ids = chance.choice(10**9, size=len(lengths), replace=False)
    whole = documents(lengths, words, ids=ids.tolist())
    of_part = chance.integers(parts, size=len(lengths))
    paths = []
    for part in range(parts):
        paths.append(folder / f"part_{part}.hdf5")
        mine = taken(whole, np.flatnonzero(of_part == part))
        write_tokens(paths[-1], in_hash_order(mine), words)
    write_tokens(folder / "one.hdf5", in_hash_order(whole), words)
    seen: dict[int, list[list[int]]] = {}
    for shard in range(shards):
        tokens.gather(paths, shard, shards, folder / "a.hdf5")
        tokens.gather([folder / "one.hdf5"], shard, shards, folder / "b.hdf5")
        assert same(content(folder / "a.hdf5"), content(folder / "b.hdf5"))
        found, _ = tokens.read(folder / "a.hdf5")
        assert (np.diff(found.ids) > 0).all()
        seen |= {number: sentences_of(found, i) for i, number in enumerate(found.ids.tolist())}
    assert seen == {number: sentences_of(whole, i) for i, number in enumerate(ids.tolist())}


def test_pages_spread_evenly_and_stay_where_they_are() -> None:
    places = tokens.place(np.arange(100_000))
    shares = np.histogram(places.astype(float), bins=16, range=(0, 2.0**64))[0]
    assert shares.min() > 6000 and shares.max() < 6500
    first_of_splitmix64 = 0xE220A8397B1DCDAF  # with seed 0, as published
    expected = [first_of_splitmix64, 10682531704454680323, 1900726960315935718]
    assert tokens.place(np.array([0, 12, 7_000_000])).tolist() == expected


def test_a_page_in_two_parts_is_taken_once_from_the_first(tmp_path: Path, words: Vocabulary) -> None:
    first, second = documents([[2]], words, ids=[5]), documents([[3], [1]], words, ids=[5, 6])
    for name, found in (("a", first), ("b", in_hash_order(second))):
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

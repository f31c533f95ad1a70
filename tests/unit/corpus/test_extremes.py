"""Any text becomes valid shards: from articles to tokens to examples, with the published vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from corpus_helpers import read_shard
from throughline.corpus.shards import Parameters, making, verification
from throughline.corpus.text import tokens, vocabulary
from throughline.corpus.text.vocabulary import Vocabulary

PARAMETERS = Parameters(32, 5, dupe_factor=2)
SPECIAL = ["[SEP]", "[MASK]", "[CLS]", "[PAD]", "[UNK]", "[unused5]", "##ing"]
PLANES = [
    "".join(chr(plane << 16 | low) for low in (0x20, 0x41, 0x4E00, 0xD7FF, 0xE000, 0xFFFD, 0xFFFE))
    for plane in range(17)
]
CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x200F, 0x2028, 0x202E, 0xFEFF, 0xFFF9]))
TEXT = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.text(st.characters(max_codepoint=0x7E), max_size=200),
        st.sampled_from([*SPECIAL, *PLANES, CONTROLS, "\n\r", ". ", "A word.", "\ud800", "e\u0301" * 50, "x" * 500]),
    ),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the published vocabulary, which is read once: that takes longer than to make a small shard."""
    path = tmp_path_factory.mktemp("extremes")
    vocabulary.write_bert_base_uncased(path / "vocabulary.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "read", cache(vocabulary.read))
        yield path


@pytest.fixture(scope="module")
def words(folder: Path) -> Vocabulary:
    return vocabulary.read(folder / "vocabulary.txt")


def shard_of(folder: Path, words: Vocabulary, texts: list[str]) -> tuple[dict[str, np.ndarray], tokens.Documents]:
    """Make one verified shard from the texts; return its arrays and its documents."""
    lines = [json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)]
    (folder / "articles.jsonl").write_text("".join(lines))
    tokens.tokenize(folder / "articles.jsonl", folder / "vocabulary.txt", folder / "part.hdf5")
    tokens.gather([folder / "part.hdf5"], 0, 1, folder / "tokens.hdf5")
    path = folder / "training_0000.hdf5"
    making.make(folder / "tokens.hdf5", folder / "vocabulary.txt", PARAMETERS, "training", 0, path)
    verification.verify(path, words, PARAMETERS)
    return read_shard(path), tokens.read(folder / "tokens.hdf5")[0]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXT, max_size=6))
@example([f"Before {text} after. Then {text * 50}." for text in PLANES])
@example(["A single sentence"])  # there is no next sentence, and no other document
@example([f"He wrote {name} here. And {name}{name} there." for name in SPECIAL] * 3)
def test_any_text(folder: Path, words: Vocabulary, texts: list[str]) -> None:
    arrays, documents = shard_of(folder, words, texts)
    assert len(documents) <= len(texts) and (len(documents) > 1 or not arrays["next_sentence_labels"].any())
    assert not np.isin(documents.tokens, [words.pad, words.cls, words.sep, words.mask]).any()


def test_control_characters_and_empty_documents(folder: Path, words: Vocabulary) -> None:
    _, with_them = shard_of(folder, words, [f"One{CONTROLS}two. Three {character} four." for character in CONTROLS])
    assert len(with_them) == len(CONTROLS)
    nothing = ["", " ", "\n\n", "\t\r\n", "\u200b", "\0", "\ufeff"]
    arrays, documents = shard_of(folder, words, [*nothing, "Some text. And more.", *nothing, "Other text here. Yes."])
    assert documents.ids.tolist() == [7, 15] and len(arrays["input_ids"]) > 0
    arrays, documents = shard_of(folder, words, nothing)
    assert len(documents) == 0 and len(arrays["input_ids"]) == 0


def test_a_sentence_of_a_hundred_thousand_words(folder: Path, words: Vocabulary) -> None:
    long = " ".join(f"word{number % 977}" for number in range(100_000))
    arrays, documents = shard_of(folder, words, [long, f"Short. {long}. Short.", "One. Two. Three."])
    assert np.diff(documents.sentences).max() > 100_000
    assert len(arrays["input_ids"]) > 0
    arrays, _ = shard_of(folder, words, ["x" * 1_000_000, "One. Two."])  # a single word, longer than WordPiece reads
    assert (arrays["input_ids"] == words.unk).any()

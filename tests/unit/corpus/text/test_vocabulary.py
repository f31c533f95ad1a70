"""Our vocabulary equals the published one byte for byte. Files that BERT cannot use as a vocabulary are refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from throughline.corpus.text import tokens, vocabulary
from throughline.files import UserError


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary.write_bert_base_uncased(path)
    return path


def test_the_rebuilt_vocabulary_is_the_published_file(published: Path) -> None:
    assert hashlib.sha256(published.read_bytes()).hexdigest() == vocabulary.BERT_BASE_UNCASED_SHA256


def test_ids_of_the_published_vocabulary(published: Path) -> None:
    words = vocabulary.read(published)
    assert (len(words), words.pad, words.unk, words.cls, words.sep, words.mask) == (30522, 0, 100, 101, 102, 103)
    assert words.entries[2133] == "..."
    assert len(words.words) == 30522 - 5 - 994


def test_a_vocabulary_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt = vocabulary._from_blingfire()
    monkeypatch.setattr(vocabulary, "_from_blingfire", lambda: [*rebuilt[:-1], "changed"])
    with pytest.raises(UserError, match="could not be rebuilt"):
        vocabulary.write_bert_base_uncased(tmp_path / "vocabulary.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_taken_only_with_its_sha256(published: Path, tmp_path: Path) -> None:
    vocabulary.copy_checked(published, vocabulary.BERT_BASE_UNCASED_SHA256.upper(), tmp_path / "copy.txt")
    assert (tmp_path / "copy.txt").read_bytes() == published.read_bytes()
    with pytest.raises(UserError, match="is not the vocabulary that the configuration names"):
        vocabulary.copy_checked(published, "0" * 64, tmp_path / "other.txt")
    assert not (tmp_path / "other.txt").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n", r"lacks \[MASK\]"),
        ("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n", r"\[PAD\] has the id 1"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\nword\n", "an entry twice: 'word'"),
    ],
)
def test_vocabularies_bert_cannot_use(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        vocabulary.read(path)


def cased(path: Path, words: list[str]) -> Path:
    path.write_text("".join(f"{entry}\n" for entry in [*vocabulary.SPECIALS, "[unused1]", *words]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "lower_case", "message"),
    [
        (["the", "The", "##ing"], True, "is cased, and corpus.vocabulary.lower_case is true"),
        (["the", "Über", "##ing"], True, "is cased, and corpus.vocabulary.lower_case is true"),
        (["the", "a", "##ing", "1"], False, "is uncased, and corpus.vocabulary.lower_case is false"),
    ],
)
def test_a_vocabulary_of_the_other_case_is_refused(
    tmp_path: Path, words: list[str], lower_case: bool, message: str
) -> None:
    path = cased(tmp_path / "vocabulary.txt", words)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(UserError, match=message):
        vocabulary.copy_checked(path, sha256, tmp_path / "copy.txt", lower_case)
    articles = tmp_path / "articles.jsonl"
    articles.write_text('{"id": "1", "text": "The thing."}\n')
    with pytest.raises(UserError, match=message):
        tokens.tokenize(articles, path, tmp_path / "tokens.hdf5", lower_case=lower_case)
    assert {one.name for one in tmp_path.iterdir()} == {"vocabulary.txt", "articles.jsonl"}
    vocabulary.copy_checked(path, sha256, tmp_path / "copy.txt", not lower_case)


@pytest.mark.parametrize("lower_case", [True, False])
def test_a_script_without_capitals_has_either(tmp_path: Path, lower_case: bool) -> None:
    vocabulary.read(cased(tmp_path / "vocabulary.txt", [*"東京日本語", "a", "b"]), lower_case)


def test_an_absent_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        vocabulary.read(tmp_path / "vocabulary.txt")

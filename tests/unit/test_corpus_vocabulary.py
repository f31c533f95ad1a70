"""The published vocabulary, byte for byte, and files that BERT could not work with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from throughline.corpus.text import vocabulary
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


def test_an_absent_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        vocabulary.read(tmp_path / "vocabulary.txt")

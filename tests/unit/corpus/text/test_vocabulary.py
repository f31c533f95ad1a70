"""Our vocabulary equals the published one byte for byte. Files that BERT cannot use as a vocabulary are refused."""

import hashlib
from pathlib import Path

import pytest

from throughline.corpus.text import tokens, vocabulary
from throughline.files import UserError

SPECIALS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


def test_the_rebuilt_vocabulary_is_the_published_file_and_a_copy_is_checked(tmp_path: Path) -> None:
    published, copy = tmp_path / "vocabulary.txt", tmp_path / "copy.txt"
    vocabulary.write_bert_base_uncased(published)
    digest = hashlib.sha256(published.read_bytes()).hexdigest()
    assert digest == vocabulary.BERT_BASE_UNCASED_SHA256
    words = vocabulary.read(published)
    assert (len(words), words.pad, words.unk, words.cls, words.sep, words.mask) == (30522, 0, 100, 101, 102, 103)
    assert words.entries[2133] == "..." and len(words.words) == 30522 - 5 - 994
    with pytest.raises(UserError, match="is not the file that the configuration names"):
        vocabulary.copy(published, "0" * 64, copy)
    assert not copy.exists()
    vocabulary.copy(published, digest.upper(), copy)
    assert copy.read_bytes() == published.read_bytes()


def test_a_vocabulary_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_from_blingfire", lambda: ["[PAD]", "changed"])
    with pytest.raises(UserError, match="could not be rebuilt"):
        vocabulary.write_bert_base_uncased(tmp_path / "vocabulary.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: .*No such file"),
        ("\udcff", "cannot be read: .*utf-8"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n", r"lacks \[MASK\]"),
        ("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n", r"\[PAD\] has the id 1"),
        (f"{SPECIALS}word\nword\n", "the entry 'word' stands there twice"),
    ],
)
def test_vocabularies_bert_cannot_use(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "vocabulary.txt"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=f"(?s)BERT cannot use the vocabulary .*{message}"):
        vocabulary.read(path)


@pytest.mark.parametrize(
    ("words", "lower_case", "message"),
    [
        (["the", "The", "##ing"], True, "is cased, and corpus.vocabulary.lower_case is true"),
        (["the", "Über", "##ing"], True, "is cased, and corpus.vocabulary.lower_case is true"),
        (["the", "a", "##ing", "1"], False, "is uncased, and corpus.vocabulary.lower_case is false"),
        ([*"東京日本語", "a", "b"], True, None),
        ([*"東京日本語", "a", "b"], False, None),
    ],
)
def test_a_vocabulary_of_the_other_case_is_refused(
    tmp_path: Path, words: list[str], lower_case: bool, message: str | None
) -> None:
    path, articles = tmp_path / "vocabulary.txt", tmp_path / "articles.jsonl"
    path.write_text(SPECIALS + "[unused1]\r\n" + "".join(f"{word}\r\n" for word in words), encoding="utf-8")
    if message is None:
        assert vocabulary.read(path, lower_case).entries[-1] == "b"
        return
    articles.write_text('{"id": "1", "text": "The thing."}\n')
    with pytest.raises(UserError, match=message):
        tokens.tokenize(articles, path, tmp_path / "tokens.hdf5", lower_case=lower_case)
    assert {path.name for path in tmp_path.iterdir()} == {"vocabulary.txt", "articles.jsonl"}
    assert vocabulary.read(path, not lower_case)

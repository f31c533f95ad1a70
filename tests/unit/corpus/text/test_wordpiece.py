"""Sentences and their tokens: nothing is lost, and the ids are those of Hugging Face's BERT tokenizer, uncased and
cased."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers.implementations import BertWordPieceTokenizer

from throughline.corpus import kernel
from throughline.corpus.text import sentences, vocabulary
from throughline.corpus.text.sentences import Sentences
from throughline.corpus.text.vocabulary import SPECIALS
from throughline.corpus.text.wordpiece import WordPiece

TRICKY = [
    "Hello, World!  two  spaces ",
    "\tTab\nand\rbreaks\x0band\x0ccontrol\x1ccharacters\x85here",
    "no\u00a0break, \u2003em space, zero\u200bwidth, soft\u00adhyphen, \ufeffmark",
    "Ünïcödé ÅNGSTRÖM e\u0301 \u0301alone a \u0301b ﬁ Ⅷ ß İstanbul ΣΑΣ",
    "東京とソウル서울 mixed漢字text",
    "x" * 101 + " " + "y" * 100,
    "[SEP] [MASK] [CLS] [PAD] [UNK] [unused5] a[SEP]b",
    "\ufffd\u0000nul",
    "1,234.5 $%^ don't U.S.A. — “quotes” … ...",
    "🙂 emoji 👩‍👩‍👧",
    "",
    " ",
]

ANY_TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary.write_bert_base_uncased(path)
    return path


@pytest.fixture(scope="module")
def ours(path: Path) -> WordPiece:
    return WordPiece(vocabulary.read(path))


@pytest.fixture(scope="module")
def theirs(path: Path) -> BertWordPieceTokenizer:
    return BertWordPieceTokenizer(str(path), lowercase=True)


def ids_of(wordpiece: WordPiece, texts: list[str]) -> list[list[int]]:
    ids, lengths = wordpiece.encode(Sentences.of([texts]))
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] if texts else []


def test_tricky_texts_equal_the_reference(ours: WordPiece, theirs: BertWordPieceTokenizer) -> None:
    texts = [text for text in TRICKY if not any(special in text for special in SPECIALS)]
    assert ids_of(ours, texts) == [theirs.encode(text, add_special_tokens=False).ids for text in texts]


@settings(max_examples=150, deadline=None)
@given(ANY_TEXTS)
@example(["a b", "b a", ""])
def test_any_text_equals_the_reference(ours: WordPiece, theirs: BertWordPieceTokenizer, texts: list[str]) -> None:
    texts = [text for text in texts if not any(special in text for special in SPECIALS)]
    assert ids_of(ours, texts) == [theirs.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cased vocabulary: words, and the characters of the tricky texts in upper and lower case and decomposed."""
    text = "".join(TRICKY) + "".join(map(chr, range(0x21, 0x180))) + "ΣσςİıßẞⅧⅷﬁ\u0301"
    both = text + text.lower() + text.upper() + unicodedata.normalize("NFD", text)
    letters = sorted({c for c in both if c not in " \n\r"})
    parts = ["The", "the", "Hello", "##ello", "NASA", "##ING", "##ing", "Ünï", "U", "Å", "##NG", "##STR", "ΣΑ", "東京"]
    entries = dict.fromkeys([*SPECIALS, *parts, *letters, *(f"##{letter}" for letter in letters)])
    path = tmp_path_factory.mktemp("cased") / "vocabulary.txt"
    path.write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["compiled", "plain"])
def ours_cased(request: pytest.FixtureRequest, cased: Path) -> WordPiece:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(kernel, "load", lambda: None)
        return WordPiece(vocabulary.read(cased, lower_case=False), lower_case=False)


@pytest.fixture(scope="module")
def theirs_cased(cased: Path) -> BertWordPieceTokenizer:
    return BertWordPieceTokenizer(str(cased), lowercase=False)


@settings(max_examples=150, deadline=None)
@given(ANY_TEXTS)
@example([text for text in TRICKY if "[" not in text])
@example(["The NASA the nasa Hello HELLO hELLO", "GOING going Going", "Ünïng Übel übel ÅNGSTRÖM u\u0308 U\u0308"])
@example([f"{chr(code)}x{chr(code).swapcase()} X{chr(code)}" for code in range(0x21, 0x250)])
def test_cased_ids_equal_the_reference(
    ours_cased: WordPiece, theirs_cased: BertWordPieceTokenizer, texts: list[str]
) -> None:
    texts = [text for text in texts if not any(special in text for special in SPECIALS)]
    assert ids_of(ours_cased, texts) == [theirs_cased.encode(text, add_special_tokens=False).ids for text in texts]


def test_capitals_and_accents_stay(ours_cased: WordPiece, cased: Path) -> None:
    entries = vocabulary.read(cased).entries
    (ids,) = ids_of(ours_cased, ["NASA Hello e\u0301 Ünï"])
    assert [entries[i] for i in ids] == ["NASA", "Hello", "e", "##\u0301", "Ünï"]


@pytest.mark.slow
def test_transformers_agrees(ours: WordPiece, path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.BertTokenizerFast(vocab=str(path), do_lower_case=True)
    texts = [text for text in TRICKY if "[" not in text]
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert ids_of(ours, texts) == expected


def test_text_never_becomes_a_special_token(ours: WordPiece) -> None:
    for special in (*SPECIALS, "[unused3]", "[sep]"):
        for text in (special, f"a {special}.", f"x{special}x"):
            (ids,) = ids_of(ours, [text])
            assert not set(ids) & {0, 101, 102, 103} and not any(1 <= i <= 99 for i in ids)


def test_a_short_memory_changes_nothing(path: Path, ours: WordPiece) -> None:
    forgetful = WordPiece(vocabulary.read(path), remember_bytes=700)
    for texts in (TRICKY, ["one two three four"], TRICKY[::-1], ["two four"], TRICKY):
        assert ids_of(forgetful, texts) == ids_of(ours, texts)


def test_no_text(ours: WordPiece) -> None:
    ids, lengths = ours.encode(Sentences.of([[]]))
    assert len(ids) == len(lengths) == 0


def test_sentences() -> None:
    text = "History.\nIt began in 1999. The U.S. saw 3.5 of them.\n\n  \nThe end\n"
    assert sentences.split(text) == ["History.", "It began in 1999.", "The U.S. saw 3.5 of them.", "The end"]
    assert sentences.split("") == sentences.split(" \n\t\n") == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
@example("a\0b. C d.\ud800 E")
@example("\u200b.\u2028x\x85y\x1cz")
def test_no_character_is_lost_in_sentences(text: str) -> None:
    found = sentences.split(text)
    assert visible("".join(found)) == visible(text)
    assert all(found)


def visible(text: str) -> str:
    """Return what BERT's tokenizer keeps of a text: everything except blanks, control and format characters."""
    return "".join(c for c in text if not c.isspace() and not unicodedata.category(c).startswith("C"))

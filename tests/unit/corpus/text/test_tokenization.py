"""Sentences are blingfire's, without a character lost. Ids are those of Hugging Face's BERT tokenizer, uncased and
cased."""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import blingfire
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers.implementations import BertWordPieceTokenizer

from throughline.corpus.text import vocabulary
from throughline.corpus.text.tokenization import Sentences, WordPiece, split_sentences
from throughline.corpus.text.vocabulary import SPECIALS, Vocabulary

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
CASES = ["The NASA the nasa Hello HELLO hELLO", "GOING going Going", "Ünïng Übel übel ÅNGSTRÖM u\u0308 U\u0308"]
EVERY_ASCII = [f"{chr(code)}x{chr(code).swapcase()} {chr(code)}" for code in range(0x250)]
WORDS = st.lists(st.sampled_from(["the", "unaffable", "ANTI", "zq", "1999", "-", "x" * 101, "a.b", "é"]), max_size=9)
ASCII = st.text(st.characters(max_codepoint=0x7F), max_size=60)
TEXT = st.one_of(ASCII, st.text(max_size=40), WORDS.map(" ".join), st.sampled_from([*TRICKY, "\ud800", "A. B.\n\nC"]))


class Pair(NamedTuple):
    ours: WordPiece
    theirs: BertWordPieceTokenizer
    words: Vocabulary

    def ids(self, texts: Sequence[str], ours: WordPiece | None = None) -> list[list[int]]:
        ids, lengths = (ours or self.ours).encode(Sentences.from_texts(texts))
        return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] if texts else []

    def check(self, texts: Sequence[str]) -> None:
        """Compare both tokenizers. Theirs makes special tokens of text, and does not take lone surrogates."""
        texts = [text.encode("utf-8", "ignore").decode() for text in texts]
        texts = [text for text in texts if not any(special in text for special in SPECIALS)]
        expected = self.theirs.encode_batch(texts, add_special_tokens=False)
        assert self.ids(texts) == [encoding.ids for encoding in expected]


@pytest.fixture(scope="module")
def uncased(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary.write_bert_base_uncased(path)
    words = vocabulary.read(path)
    return Pair(WordPiece(words), BertWordPieceTokenizer(str(path), lowercase=True), words)


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A cased vocabulary: words, and the characters of the tricky texts in upper and lower case and decomposed."""
    text = "".join(TRICKY) + "".join(map(chr, range(0x21, 0x180))) + "ΣσςİıßẞⅧⅷﬁ\u0301"
    both = text + text.lower() + text.upper() + unicodedata.normalize("NFD", text)
    letters = sorted({c for c in both if c not in " \n\r"})
    parts = ["The", "the", "Hello", "##ello", "NASA", "##ING", "##ing", "Ünï", "U", "Å", "##NG", "##STR", "ΣΑ", "東京"]
    entries = dict.fromkeys([*SPECIALS, *parts, *letters, *(f"##{letter}" for letter in letters)])
    path = tmp_path_factory.mktemp("cased") / "vocabulary.txt"
    path.write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    words = vocabulary.read(path, lower_case=False)
    return Pair(WordPiece(words, lower_case=False), BertWordPieceTokenizer(str(path), lowercase=False), words)


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, max_size=6))
@example(TRICKY)
@example(CASES)
@example(EVERY_ASCII)
def test_any_text_equals_the_reference(uncased: Pair, cased: Pair, texts: list[str]) -> None:
    uncased.check(texts)
    cased.check(texts)


def test_every_word_of_the_vocabulary(uncased: Pair) -> None:
    texts = [entry.removeprefix("##") for entry in uncased.words.entries]
    uncased.check([*texts, *("".join(pair) for pair in itertools.pairwise(texts))])


def test_text_never_becomes_a_special_token(uncased: Pair) -> None:
    for special in (*SPECIALS, "[unused3]", "[sep]"):
        for ids in uncased.ids([special, f"a {special}.", f"x{special}x"]):
            assert not set(ids) & {0, 101, 102, 103} and not any(1 <= i <= 99 for i in ids)


def test_a_short_memory_changes_nothing(uncased: Pair) -> None:
    forgetful = WordPiece(uncased.words, remember_bytes=1)
    many = [" ".join(f"{a}{b}" for b in range(700)) for a in range(200)]
    uncased.check(many)
    for texts in (TRICKY, ["one two three four"], TRICKY[::-1], ["two four"], many[:3], []):
        assert uncased.ids(texts, forgetful) == uncased.ids(texts)


def sentences_of(texts: Sequence[str], *, lines: bool = False) -> list[list[str]]:
    split = split_sentences(texts, lines=lines)
    spans = zip(split.begins.tolist(), split.ends.tolist(), strict=True)
    found = iter([split.text[begin:end].tobytes().decode() for begin, end in spans])
    return [[next(found) for _ in range(count)] for count in split.counts.tolist()]


def expected_sentences(text: str) -> list[str]:
    """Return the sentences of a text as blingfire's own function finds them, paragraph by paragraph."""
    paragraphs = text.replace("\0", "").encode("utf-8", "ignore").decode().split("\n")
    found = [blingfire.text_to_sentences(paragraph) or paragraph for paragraph in paragraphs]
    return [sentence for lines in found for sentence in lines.split("\n") if sentence]


def visible(text: str) -> str:
    """Return what BERT's tokenizer keeps of a text: everything except blanks, control and format characters."""
    return "".join(c for c in text if not c.isspace() and not unicodedata.category(c).startswith("C"))


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, max_size=6))
@example(["", "\n\n", "a", "\u2003\n \n"])
@example(["a\0b. C d.\ud800 E", "\u200b.\u2028x\x85y\x1cz"])
@example(EVERY_ASCII)
def test_sentences_are_blingfires_and_lose_no_character(texts: list[str]) -> None:
    found = sentences_of(texts)
    assert found == [expected_sentences(text) for text in texts]
    assert [visible("".join(sentences)) for sentences in found] == [visible(text) for text in texts]
    paragraphs = [text.replace("\0", "").encode("utf-8", "ignore").decode().split("\n") for text in texts]
    assert sentences_of(texts, lines=True) == [[line for line in lines if line] for lines in paragraphs]

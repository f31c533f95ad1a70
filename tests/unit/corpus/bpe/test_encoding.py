"""GPT-2's vocabulary is the published one, and we encode text to the same ids as tiktoken and `tokenizers`."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blingfire
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from throughline.corpus.bpe import shards, vocabulary
from throughline.corpus.bpe.shards import Encoder
from throughline.corpus.bpe.vocabulary import Vocabulary
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction
from throughline.files import UserError

BLANKS = "\t\n\x0b\x0c\r \x1c\x85\xa0\u1680\u180e\u2003\u2028\u202f\u205f\u3000\u200b\ufeff"
TRICKY = [
    "",
    " ",
    "   \n\n  ",
    "<|endoftext|> a<|endoftext|>b <|endoftext|>",
    "I've it's they'll DON'T don't 's 'S '' '''s 'llama '' 'r 'v 'l 're've'm' '",
    "a  b   c\n\nd \n e\t\tf \xa0 g\xa0\xa0h\u3000 i\xa0  j\u205f  k",
    "10,000 3.5% 2nd x1y2 ²³ ½ Ⅷ ٣٤",
    "Ünïcödé ÅNGSTRÖM e\u0301 ﬁ ß İstanbul ΣΑΣ — “quotes” … don’t",
    "東京とソウル서울 mixed漢字text Москва и عربى",
    "🙂 emoji 👩\u200d👩\u200d👧 \U0001f1e9\U0001f1ea",
    "\0nul \x01\x7f \ufffd \U0010ffff \ue000",
    "x" * 1000 + " " + "-" * 129 + " " * 300 + "0" * 128 + "\n" * 200 + "é" * 300,
]
PIECES = st.sampled_from([*BLANKS, *"'sStTrelvmd-.<|>aé中½9", " the", "endoftext", "\U0001f642"])
TEXT = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(max_codepoint=0x7F), max_size=60),
    st.lists(PIECES, max_size=40).map("".join),
    st.sampled_from(TRICKY),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bpe") / "vocabulary"
    vocabulary.build(folder)
    return folder


@pytest.mark.slow
def test_the_rebuilt_files_are_the_published_ones(folder: Path) -> None:
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert digests == vocabulary.FILES
    tokens = vocabulary.read(folder).tokens
    assert (len(tokens), tokens[188], tokens[198], tokens[262]) == (50_256, b"\0", b"\n", b" the")


@pytest.mark.parametrize("change", [lambda table: table.replace(b" gazed", b" gamed"), lambda table: table[:1000]])
def test_another_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    table = (Path(blingfire.__file__).parent / "gpt2.i2w").read_bytes()
    (tmp_path / "gpt2.i2w").write_bytes(change(table))
    monkeypatch.setattr(blingfire, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(UserError, match=r"GPT-2's encoder.json could not be rebuilt"):
        vocabulary.build(tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_file_that_changed_or_is_absent(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"encoder.json does not exist"):
        vocabulary.read(tmp_path)
    for name in vocabulary.FILES:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\n")
    with pytest.raises(UserError, match=r"vocab.bpe is not GPT-2's published vocabulary"):
        vocabulary.read(tmp_path)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return Encoder(vocabulary.read(folder))


@pytest.fixture(scope="module")
def articles(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("articles")
    path, counts = folder / "part.jsonl", folder / "counts.json"
    extraction.extract(dumps.cut([dumps.find_sample()], 4), 0, path, counts, extractor="throughline")
    return [json.loads(line)["text"] for line in path.open()]


@pytest.fixture(scope="module")
def tiktoken(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """tiktoken's own definition of gpt2 on our files. It checks the hashes of the files that it gets."""
    package = pytest.importorskip("tiktoken")
    from tiktoken_ext import openai_public

    load = openai_public.data_gym_to_mergeable_bpe_ranks

    def from_ours(vocab_bpe_file: str, encoder_json_file: str, **hashes: str) -> dict[bytes, int]:
        return load(*(str(folder / Path(file).name) for file in (vocab_bpe_file, encoder_json_file)), **hashes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", from_ours)
        return package.Encoding(**openai_public.gpt2())


def ids_of(encoder: Encoder, texts: list[str]) -> list[list[int]]:
    found = encoder.encode(texts)
    assert all(ids.dtype == np.uint16 for ids in found)
    return [ids.tolist() for ids in found]


@pytest.mark.slow
def test_articles_and_odd_texts_equal_tiktoken(encoder: Encoder, tiktoken: Any, articles: list[str]) -> None:
    assert sum(map(len, articles)) > 500_000
    texts = [*TRICKY, *articles]
    for text, found in zip(texts, ids_of(encoder, texts), strict=True):
        assert found == tiktoken.encode_ordinary(text), text[:200]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=6))
def test_any_text_equals_tiktoken(encoder: Encoder, tiktoken: Any, texts: list[str]) -> None:
    assert ids_of(encoder, texts) == [tiktoken.encode_ordinary(text) for text in texts]


def test_a_short_memory_and_other_batches_change_nothing(folder: Path, encoder: Encoder) -> None:
    forgetful = Encoder(vocabulary.read(folder), remember_bytes=1)
    assert [ids_of(forgetful, [text])[0] for text in TRICKY] == ids_of(encoder, TRICKY)
    assert ids_of(encoder, []) == [] and ids_of(encoder, ["a\ud800b"]) == ids_of(encoder, ["ab"])


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXT, max_size=6))
@example(TRICKY)
def test_a_small_vocabulary_with_pairs_of_blanks(texts: list[str]) -> None:
    pairs = [(b" ", b"t"), (b"h", b"e"), (b" t", b"he"), (b"a", b"a"), (b"aa", b"aa"), (b"'", b"s"), (b"x", b"x")]
    pairs += [(b"\xc2", b"\xa0"), (b"\xc2\xa0", b" "), (b"\xe2", b"\x81"), (b"\xe2\x81", b"\x9f")]
    pairs += [(b"\xe2\x81\x9f", b" ")]
    tokens = (*(bytes([byte]) for byte in vocabulary.CHARACTERS), *(left + right for left, right in pairs))
    words = Vocabulary(tokens, tuple((vocabulary.printed(left), vocabulary.printed(right)) for left, right in pairs))
    theirs = shards._tokenizer(words)
    assert ids_of(Encoder(words), texts) == [theirs.encode(text).ids for text in texts]

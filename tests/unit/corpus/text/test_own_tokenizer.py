"""`corpus.tokenizer`: shards of one's own tokenizer, and what is refused before any text is read."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from throughline import files
from throughline.corpus import manifest
from throughline.corpus.bpe import shards
from throughline.corpus.text import tokens, vocabulary
from throughline.corpus.text.tokenization import OwnTokenizer
from throughline.files import UserError
from throughline.study.config import ConfigError, load

TEXTS = {1: "The cat sat on the mat. It was [SEP] and <|endoftext|> to the cat.", 2: "Naïve 日本語 text.", 3: ""}
PAIRS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DIGEST = "d" * 64


def trained(path: Path, specials: list[str], size: int = 400, *, bytes_of_text: bool = True) -> Path:
    """Train a tokenizer on a few words and save it, cut to 4 tokens and with padding, which must not matter."""
    trainer: Any
    if bytes_of_text:
        made, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=alphabet)
    else:
        made = Tokenizer(models.WordPiece({}, unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials)
    made.train_from_iterator([*TEXTS.values()] * 3, trainer)
    made.enable_truncation(4)
    made.enable_padding()
    made.save(str(path))
    return path


def articles(folder: Path) -> Path:
    path = folder / "part_0.jsonl"
    path.write_text("".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in TEXTS.items()))
    return path


def test_running_text_is_encoded_with_it_and_given_back(tmp_path: Path) -> None:
    path = trained(tmp_path / "tokenizer.json", ["<|endoftext|>"])
    shards.tokenize(articles(tmp_path), path, tmp_path / "part.hdf5")
    shard = tmp_path / "training_0000.hdf5"
    shards.gather([tmp_path / "part.hdf5"], 0, 1, DIGEST, shard)
    own = OwnTokenizer(path)
    result = shards.verify(shard, path, DIGEST)
    assert (result["documents"], result["texts_proven"], result["texts_decoded"]) == (2, 2, 2)
    with h5py.File(shard) as stream:
        ids = stream["tokens"][...]
    assert (ids == own.facts.end).sum() == 2  # the text `<|endoftext|>` has become no special token
    assert own.decoded(ids[:-1]).count("<|endoftext|>") == 2
    verified, merged, sha256 = tmp_path / "verified.json", tmp_path / "manifest.json", files.sha256(path)
    files.write_json(verified, result)
    manifest.merge_tokens("own", [verified], {"tokenizer": sha256}, merged)
    expected = {"size": len(own.facts), "sha256": sha256, "tokenizer": sha256, "end_of_text": own.facts.end}
    assert files.read_json(merged)["vocabulary"] == expected
    with h5py.File(shard, "a") as stream:
        stream["tokens"][0] = len(own.facts)
    with pytest.raises(UserError, match="the vocabulary ends at"):
        shards.verify(shard, path, DIGEST)


def test_sentences_are_encoded_with_it_and_the_manifest_names_it(tmp_path: Path) -> None:
    path = trained(tmp_path / "tokenizer.json", PAIRS, bytes_of_text=False)
    vocabulary.write_entries(path, tmp_path / "vocabulary.txt")
    words = vocabulary.read(tmp_path / "vocabulary.txt")
    assert (words.pad, words.cls, words.mask) == (0, 2, 4)
    tokens.tokenize(articles(tmp_path), tmp_path / "vocabulary.txt", tmp_path / "part.hdf5", tokenizer=path)
    documents, facts = tokens.read(tmp_path / "part.hdf5")
    assert facts["vocabulary_sha256"] == words.sha256 and len(documents) == 2
    assert not np.isin(documents.tokens, [words.sep, words.cls, words.mask]).any()
    assert "".join(words.entries[i] for i in documents.tokens[:3]).replace("##", "").startswith("the")
    result = {"file": "training_0000.hdf5", "sequence_length": 32, "predictions": 5, "vocabulary_sha256": words.sha256}
    result |= {"source": None, "rows": 9, "sha256": "a" * 64, "content_digest": "b" * 64, "split": "training"}
    files.write_json(tmp_path / "verified.json", result)
    sha256 = vocabulary.read_tokenizer(path).sha256
    manifest.merge_pairs("own", [tmp_path / "verified.json"], words, {"tokenizer": sha256}, tmp_path / "manifest.json")
    described = files.read_json(tmp_path / "manifest.json")["vocabulary"]
    assert described["tokenizer"] == sha256 and "lower_case" not in described


def test_a_file_that_is_no_tokenizer(tmp_path: Path) -> None:
    content = json.loads(trained(tmp_path / "tokenizer.json", PAIRS).read_text())
    (tmp_path / "bad.json").write_text(json.dumps({**content, "pre_tokenizer": {"type": "Nothing"}}))
    with pytest.raises(UserError, match=r"bad.json is no tokenizer that can be used"):
        OwnTokenizer(tmp_path / "bad.json")
    with pytest.raises(UserError, match=r"none.json cannot be read"):
        OwnTokenizer(tmp_path / "none.json")


def test_what_does_not_fit_is_refused_before_any_text_is_read(tmp_path: Path) -> None:
    ends = trained(tmp_path / "ends.json", ["<|endoftext|>"])
    pairs = trained(tmp_path / "pairs.json", PAIRS)
    late = trained(tmp_path / "late.json", PAIRS[::-1])
    big, content = tmp_path / "big.json", json.loads(ends.read_text())
    content["added_tokens"] += [
        {**content["added_tokens"][0], "id": number, "content": f"w{number}"}
        for number in range(len(vocabulary.read_tokenizer(ends)), 50_258)
    ]
    big.write_text(json.dumps(content))
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "model.json").write_text(Path("resources/shapes/gpt2-124m.json").read_text().replace("50257", "300"))
    text, bert = "{model: gpt2-tiny}", "{model: bert-tiny, sequence_length: 32}"
    small = f"{{model: {{transformers: {tmp_path}/model.json, task: clm}}, frameworks: [hf-loop]}}"
    for corpus, benchmark, message in (
        ("none.json", text, "none.json cannot be read as a tokenizer.json"),
        (f"{tmp_path}/other.json", text, "cannot be read as a tokenizer.json"),
        (pairs, text, "no token that ends a document"),
        (ends, bert, "lacks [PAD], [UNK], [CLS], [SEP], [MASK]"),
        (late, bert, "[PAD] has the id 4"),
        (big, text, "has 50,258 entries, and the vocabulary of gpt2-tiny has 50,257"),
        (f"{ends}, vocabulary: bert-base-uncased", text, "it has a vocabulary of its own"),
        (ends, small, "has 300"),
    ):
        config = tmp_path / "config.yaml"
        config.write_text(f"corpus: {{tokenizer: {corpus}}}\nbenchmarks: {{b: {benchmark}}}\n")
        with pytest.raises(ConfigError) as caught:
            load([config])
        assert message in str(caught.value)


def test_it_decides_the_data_and_without_it_nothing_changes(tmp_path: Path) -> None:
    one, other = (trained(tmp_path / f"{size}.json", ["<|endoftext|>"], size) for size in (300, 400))
    config = tmp_path / "config.yaml"
    digests = []
    for corpus in ("{}", f"{{tokenizer: {one}}}", f"{{tokenizer: {other}}}"):
        config.write_text(f"corpus: {corpus}\n")
        section = load([config]).corpus
        digests.append(section.digest("bpe"))
        assert ("tokenizer" in section.decided_by("seq32")) == (corpus != "{}")
    assert len(set(digests)) == 3

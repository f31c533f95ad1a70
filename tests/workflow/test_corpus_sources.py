"""The sources of a corpus: a dump that is downloaded, a vocabulary at an address, finished shards."""

import bz2
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clones import ONE, SMALL, Clone, job_counts
from corpus_helpers import CLOSING, content, documents, same, streams, write_tokens
from dump_server import Server, cut, status
from throughline import files, workloads
from throughline.corpus.shards import Parameters, making
from throughline.corpus.source import IDS, dumps
from throughline.corpus.targets import finished_shards
from throughline.corpus.text import tokens, vocabulary
from throughline.rank.data import Manifest, batches
from throughline.study.config import load
from throughline.workloads import bert

CLOSED = "http://127.0.0.1:9"  # nothing listens there
NAME = "enwiki-20261101"
SINGLE = "pages-articles-multistream.xml.bz2"
FILE = f"/enwiki/20261101/{NAME}-{SINGLE}"


def dump() -> bytes:
    """A small multistream dump of real articles."""
    found = list(dumps.pages(dumps.cut([dumps.find_sample()], 1), 0))[60:100]
    header = bz2.decompress(dumps.find_sample().read_bytes()).split(b"<page>")[0]
    return streams(header, *(b"\n".join(found[i : i + 10]) + b"\n" for i in range(0, 40, 10)), CLOSING)


def named(mirror: str) -> str:
    keys = f"dump: {NAME}\n  contact: me@example.org\n  mirrors: [{mirror}]"
    return ONE.replace("name: little", f"name: little\n  {keys}")


@pytest.fixture(autouse=True)
def no_way_to_wikimedia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_OFFICIAL", CLOSED)


def test_the_newest_dump_is_downloaded_once_and_gone_on_with(
    clone: Callable[[str], Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a contact, nothing is requested."""
    manifest, part = "data/little/seq32/manifest.json", f"data/little/dump/{NAME}-{SINGLE}.part"
    with Server() as server:
        monkeypatch.setenv("THROUGHLINE_OFFICIAL", f"{server.address}/elsewhere")
        server.publish(NAME, {SINGLE: dump()})
        server.list("enwiki")
        latest = named(server.address).replace(NAME, "enwiki-latest")
        fresh = clone(latest.replace("me@example.org", "null"))
        assert job_counts(fresh.made("--dry-run", manifest).stdout)["download"] == 1
        failed = fresh.snakemake("corpus")
        assert failed.returncode != 0 and not server.requests
        assert "corpus: {contact: you@your.org}" in failed.stdout and "Traceback" not in failed.stdout
        (fresh.path / "small.yaml").write_text(latest)
        server.misbehave(FILE, cut(100_000), status(403))
        failed = fresh.snakemake("corpus")
        assert failed.returncode != 0
        assert "could not be downloaded" in failed.stdout and f"are kept in {part}" in failed.stdout
        assert (fresh.path / part).stat().st_size == 100_000
        fresh.made(manifest)
        assert server.asked(FILE)[-1]["Range"] == "bytes=100000-"
        assert not fresh.files("data/little/dump/*.part*")
        server.publish("enwiki-20261120", {SINGLE: dump()})
        server.list("enwiki")
        before = len(server.requests)
        (fresh.path / "small.yaml").write_text(latest.replace("me@example.org", "another@example.org"))
        assert "Nothing to be done" in fresh.made(manifest).stdout and len(server.requests) == before
    cut_into = files.read_json(fresh.path / "data/little/dump/parts.json")
    assert cut_into["wiki"] == "enwiki" and cut_into["files"][0]["path"].startswith("data/little/dump/enwiki-")
    made = files.read_json(fresh.path / manifest)
    assert made["dumps"] == {"enwiki-latest": NAME} and made["parameters"]["dump"] == ["enwiki-latest"]


def test_another_extractor_makes_the_text_again_and_is_told(clone: Callable[[str], Clone]) -> None:
    """Articles and tokens of a finished corpus may be removed. They are made again where a shard needs them."""
    fresh = clone(ONE)
    part = "data/little/articles/part_0000.jsonl"
    fresh.made(part)
    theirs = (fresh.path / part).read_bytes()
    (fresh.path / "small.yaml").write_text(ONE.replace("name: little", "name: little\n  extractor: throughline"))
    assert job_counts(fresh.made(part).stdout) == {"extract": 1}
    assert (fresh.path / part).read_bytes() != theirs
    assert "Nothing to be done" in fresh.made(part).stdout
    fresh.made("corpus")
    manifest = files.read_json(fresh.path / "data/little/seq32/manifest.json")
    assert manifest["parameters"]["extractor"] == "throughline"
    for folder in ("articles", "tokens"):
        shutil.rmtree(fresh.path / "data/little" / folder)
    assert "Nothing to be done" in fresh.made("corpus").stdout
    shard = fresh.path / "data/little/seq32/training_0000.hdf5"
    before = content(shard)
    shard.unlink()
    fresh.made("corpus")
    assert same(content(shard), before) and fresh.files("data/little/articles/*.jsonl")


def test_a_dump_and_other_text_in_one_corpus(clone: Callable[[str], Clone]) -> None:
    """All sources are read before any of them is extracted, and the shards contain text of every source."""
    fresh = clone(ONE.replace("name: little", "name: little\n  dump: [wiki.xml.bz2, {text: books.txt}]"))
    (fresh.path / "wiki.xml.bz2").write_bytes(dump())
    (fresh.path / "books.txt").write_text("\n\n")
    failed = fresh.snakemake("data/little/seq32/manifest.json")
    assert failed.returncode != 0 and "corpus.dump.text holds no document" in failed.stdout
    assert not fresh.files("data/little/articles/*")
    book = "\n".join(f"Page {number} of this book is short." for number in range(9))
    (fresh.path / "books.txt").write_text("\n\n".join([book] * 20))
    counts = job_counts(fresh.made("data/little/seq32/manifest.json").stdout)
    assert counts["cut"] == 1 and counts["extract"] == counts["tokenize"] == 2
    assert "Nothing to be done" in fresh.made("data/little/seq32/manifest.json").stdout
    manifest = files.read_json(fresh.path / "data/little/seq32/manifest.json")
    assert manifest["parameters"]["sources"] == [{"dump": ["wiki.xml.bz2"]}, {"text": ["books.txt"]}]
    gathered = [fresh.path / name for name in fresh.files("data/little/tokens/t*.hdf5")]
    ids = np.concatenate([tokens.read(path)[0].ids for path in gathered])
    assert len(ids) == len(set(ids)) and (ids // IDS == 1).sum() == 20 and (ids // IDS == 0).sum() > 5


def test_a_cased_vocabulary_at_an_address_keeps_the_capitals(
    clone: Callable[[str], Clone], published: Path, tmp_path: Path
) -> None:
    cased = tmp_path / "cased.txt"
    words = published.read_text().split()
    capitals = [word.title() for word in words if word.isalpha() and word.isascii()]
    cased.write_text("".join(f"{word}\n" for word in (*words, *capitals)))
    with Server() as server:
        server.files["/cased.txt"] = cased.read_bytes()
        url = f"{{url: '{server.address}/cased.txt', sha256: {files.sha256(cased)}}}"
        text = ONE.replace("name: little", f"name: little\n  vocabulary: {url}")
        fresh = clone(text)
        failed = fresh.snakemake("data/little/vocabulary.txt")
        assert failed.returncode != 0 and "corpus.vocabulary.lower_case is true" in failed.stdout
        (fresh.path / "small.yaml").write_text(text.replace("}", ", lower_case: false}", 1))
        fresh.made("data/little/seq32/manifest.json")
    assert (fresh.path / "data/little/vocabulary.txt").read_bytes() == cased.read_bytes()
    manifest = files.read_json(fresh.path / "data/little/seq32/manifest.json")
    assert manifest["vocabulary"]["lower_case"] is manifest["parameters"]["lower_case"] is False
    found, _ = tokens.read(fresh.path / "data/little/tokens/training_0000.hdf5")
    assert (found.tokens >= len(words)).mean() > 0.05  # words with a capital letter


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary.write_bert_base_uncased(path)
    return path


@pytest.fixture
def shards(published: Path, tmp_path: Path) -> Path:
    """Finished shards of two lengths in two folders, with names like those of NVIDIA's script."""
    words = vocabulary.read(published)
    for length, predictions in ((32, 5), (64, 10)):
        folder = tmp_path / "someone's data" / f"seq_len_{length}"
        for number, name in enumerate(("training_9", "training_10", "test_9")):
            found = documents([[7, 9, 20, 3] * 9, [12, 30, 5] * 9, [number + 1] * 9], words)
            write_tokens(tmp_path / "tokens.hdf5", found, words)
            parameters = Parameters(length, predictions, dupe_factor=2)
            path = folder / f"wikicorpus_en_{name}.hdf5"
            making.make(tmp_path / "tokens.hdf5", published, parameters, "training", number, path)
    return tmp_path / "someone's data"


def adopting(folder: Path, sequences: str = "{32: 5, 64: 10}") -> str:
    text = SMALL.replace("name: little", f'name: adopted\n  dump: {{shards: "{folder}"}}')
    return text.replace("sequences: {32: 5, 64: 10}", f"sequences: {sequences}")


def test_finished_shards_are_used_as_they_are(clone: Callable[[str], Clone], shards: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in shards.rglob("*.*")}
    fresh = clone(adopting(shards))
    counts = job_counts(fresh.made("corpus").stdout)
    assert (counts["adopt"], counts["verify"], counts["manifest"]) == (6, 6, 2)
    assert not set(counts) & {"sample", "cut", "extract", "tokenize", "gather", "shard"}
    assert all((fresh.path / name).is_symlink() for name in fresh.files("data/adopted/seq*/*.hdf5"))
    manifest = files.read_json(fresh.path / "data/adopted/seq32/manifest.json")
    assert [shard["source"] for shard in manifest["shards"]] == [
        "wikicorpus_en_training_9.hdf5", "wikicorpus_en_training_10.hdf5", "wikicorpus_en_test_9.hdf5"
    ]  # fmt: skip
    assert str(shards) not in str(manifest)
    read = Manifest(fresh.path / "data/adopted/seq32/manifest.json", "corpus")
    read.fits(workloads.of("bert-tiny"), bert.Parameters(sequence_length=32, predictions=5), 2)
    read.check(read.shards)
    assert len(next(batches(read, 1, 0, 2, 8))["input_ids"]) == 8
    asked = load([fresh.path / "small.yaml"]).corpus
    assert manifest["parameters_digest"].startswith(asked.identity("seq32").digest)
    assert before == {path: path.stat().st_mtime_ns for path in shards.rglob("*.*")}
    assert "Nothing to be done" in fresh.made("corpus").stdout


def test_a_finished_shard_that_is_damaged_or_replaced(clone: Callable[[str], Clone], shards: Path) -> None:
    fresh = clone(adopting(shards))
    path = shards / "seq_len_32" / "wikicorpus_en_training_9.hdf5"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    failed = fresh.snakemake("data/adopted/seq32/manifest.json")
    assert failed.returncode != 0
    assert f"it is a link to {path}: copy that file again" in failed.stdout
    path.write_bytes(whole)
    fresh.made("data/adopted/seq32/manifest.json")
    shutil.copy(path.with_name("wikicorpus_en_training_10.hdf5"), path)
    os.utime(path)
    assert job_counts(fresh.made("--dry-run", "data/adopted/seq32/manifest.json").stdout)["verify"] >= 1


def test_finished_shards_of_only_the_length_that_runs_read(clone: Callable[[str], Clone], shards: Path) -> None:
    """The folder has no shards of 128 tokens. Those of 64 tokens are there, and no run reads them."""
    fresh = clone(adopting(shards, "{32: 5, 64: 10, 128: 20}"))
    assert job_counts(fresh.made("--dry-run").stdout)["adopt"] == 3
    assert job_counts(fresh.made("--dry-run", "corpus").stdout)["adopt"] == 6
    failed = fresh.snakemake("--dry-run", "data/adopted/seq128/manifest.json")
    assert failed.returncode != 0 and "corpus.dump.shards holds no finished shards for seq128" in failed.stdout


def test_finished_shards_without_a_test_cannot_be_checked_for_convergence(
    clone: Callable[[str], Clone], shards: Path
) -> None:
    text = adopting(shards).replace("repeats: 1}", "repeats: 1, convergence: {steps: 4}}")
    fresh = clone(text)
    fresh.made("--dry-run")
    next(shards.glob("seq_len_32/*test*")).unlink()
    failed = fresh.snakemake("--dry-run")
    assert failed.returncode != 0
    assert "benchmarks.other.convergence looks at held-out text, and corpus.dump.shards has none" in failed.stdout
    fresh.made("--dry-run", "--config", "benchmarks={other: {convergence: null}}")


def test_finished_shards_that_are_not_there(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, sequences, needed, message in (
        (tmp_path / "none", {32: 5}, "seq32", "there is no folder"),
        (tmp_path / "empty", {32: 5}, "seq32", "holds no shards"),
        (shards, {32: 5}, "bpe", "holds pairs of sentences for BERT, and a benchmark reads running text"),
        (shards, {32: 6, 128: 20}, "seq32", "no training shards of 32 tokens with 6 predictions.*64: 10 in 3 files"),
    ):
        asked = load([], {"corpus": {"dump": {"shards": str(folder)}, "sequences": sequences}}).corpus
        with pytest.raises(files.UserError, match=f"(?s){message}"):
            finished_shards(asked, {needed})

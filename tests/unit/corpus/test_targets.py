"""The files of the corpus, and the errors for those that the configuration does not ask for."""

from pathlib import Path
from typing import Any

import pytest

from throughline.corpus.targets import CorpusTargets
from throughline.files import UserError
from throughline.study.config import load


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.xml", "b.xml", "a.txt", "books.txt", "web.jsonl"):
        Path(name).touch()


def corpus(**changes: Any) -> CorpusTargets:
    section = load([], {"corpus": {"shards": {"training": 3, "test": 1}, **changes}}).corpus
    return CorpusTargets(section, section.made({"seq32", "bpe"}), None)


def test_files_of_the_corpus() -> None:
    made = corpus()
    assert made.shards("seq32").names == ["training_0000", "training_0001", "training_0002", "test_0000"]
    assert made.parts == ["0000", "0001", "0002", "0003"]
    assert made.dump() == ["data/sample/dump/sample.xml.bz2"]
    assert made.verified(corpus="sample", sequence_length="32")[-1] == "data/sample/seq32/verified/test_0000.json"
    assert made.verified(corpus="sample")[0] == "data/sample/bpe/verified/training_0000.json"
    assert made.vocabulary() == {"name": "bert-base-uncased"}
    assert [made.position("training", "0002"), made.position("test", "0000")] == [2, 3]
    assert corpus(dump="enwiki-20261101").dump() == ["data/sample/dump/enwiki-20261101.json"]
    assert corpus(dump=["a.xml", "b.xml"]).dump() == ["a.xml", "b.xml"]
    own = {"url": "https://example.org/v.txt", "sha256": "a" * 64}
    assert corpus(vocabulary=own).vocabulary() == {**own, "lower_case": True}


def test_a_job_makes_only_the_lengths_that_its_runs_read() -> None:
    def files(read: set[str]) -> tuple[list[str], list[str]]:
        section = load([], {}).corpus
        made = CorpusTargets(section, section.made(read), None, section.needed(read))
        return [
            [file for file in listed if file.endswith("manifest.json")]
            for listed in (made.files(), made.files_of_runs())
        ]

    both = ["data/sample/seq32/manifest.json", "data/sample/seq128/manifest.json"]
    assert files({"seq128"}) == [both, both[1:]]
    assert files(set()) == [both, both], "nothing is measured: the corpus is what is wanted"
    tokens = "data/sample/bpe/manifest.json"
    assert files({"seq32", "bpe"}) == [[*both, tokens], [both[0], tokens]]
    assert files({"bpe"}) == [[tokens], [tokens]]


def test_parts_of_several_sources_follow_each_other() -> None:
    made = corpus(parts=2, dump=["enwiki-20261101", {"text": "books.txt"}, {"text": "web.jsonl"}, ["a.xml", "b.xml"]])
    folder = "data/sample/dump"
    assert made.parts == [f"{part:04d}" for part in range(8)]
    assert [made.cut(part) for part in made.parts[::2]] == [f"{folder}/parts_{source}.json" for source in range(4)]
    assert made.cut("0003") == made.cut("0002")
    files = [[f"{folder}/enwiki-20261101.json"], ["books.txt"], ["web.jsonl"], ["a.xml", "b.xml"]]
    assert [made.dump(f"_{source}") for source in range(4)] == files
    assert [made.is_text(f"_{source}") for source in range(4)] == [False, True, True, False]
    assert [made.lines(part) for part in made.parts] == [False, False, True, True, False, False, False, False]
    with pytest.raises(UserError, match=r"parts\.json is not in the configuration"):
        made.dump()
    with pytest.raises(UserError, match="part 0008 is not in the configuration"):
        made.cut("0008")


def test_one_source_has_the_files_that_it_always_had() -> None:
    for dump in ("sample", ["a.xml", "b.xml"], [["a.xml", "b.xml"]], {"text": "a.txt"}, ["sample"]):
        made = corpus(dump=dump)
        assert list(made.cuts) == [""] and made.cut("0003") == "data/sample/dump/parts.json"
        assert made.lines("0001") == made.is_text() == ("text" in dump)


def test_finished_shards_of_another_maker() -> None:
    section = load([], {"corpus": {"dump": {"shards": "x"}}}).corpus
    made = CorpusTargets(section, [], {"seq32": {"training_0000": Path("x/a.hdf5")}})
    where = {"corpus": "sample", "sequence_length": "32", "split": "training"}
    assert made.finished_shard(**where, number="0000") == "x/a.hdf5"
    assert made.shards("seq128").names == []
    with pytest.raises(UserError, match=r"shard training_0001 is not .* It holds: training_0000"):
        made.finished_shard(**where, number="0001")
    with pytest.raises(UserError, match="holds no finished shards for seq128"):
        made.verified(corpus="sample", sequence_length="128")
    with pytest.raises(UserError, match="no part of a dump is extracted"):
        made.dump()


@pytest.mark.parametrize(
    ("wildcards", "message"),
    [
        ({"corpus": "other"}, "corpus other is not in the configuration. It holds: sample"),
        ({"sequence_length": "48"}, "sequence_length 48 is not in the configuration. It holds: 32, 128"),
        ({"part": "0009"}, "part 0009 is not in the configuration. It holds: 0000, ..., 0008"),
        ({"split": "test", "number": "0001"}, "shard test_0001 is not in the configuration. It holds: training_0000,"),
    ],
)
def test_what_the_corpus_does_not_have(wildcards: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        corpus(parts=9).check(**wildcards)
    assert message in str(caught.value)

"""What was left out of an archive is found, and what other rules made is no excuse for another figure."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline.archive import asked, check, contents, pack, tables
from throughline.comparables import exports
from throughline.records import RunRecord, read_summary
from throughline.report import demo
from throughline.report.analysis import cells, summary
from throughline.report.topic import Scope
from throughline.report.topics import write_tables
from unit.archive.test_archive import RUN, Files, differences, packed, unpacked, with_value

__all__ = ["unpacked"]
DEMO = Path(__file__).parents[3] / "docs/demo"
MANIFEST = "data/sample/seq32/manifest.json"
THROUGHPUT = "results/bert/tables/throughput.csv"
PAGE = "results/report.html"
KEPT_ELSEWHERE = ("the archive lacks the samples behind it", "the archive lacks the record ")


def packed_again(files: Files, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Derive and pack everything again, as a forger does who has our programs. The working directory is `folder`."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    made = json.loads(files[contents.NAME])["benchmarks"]
    change(made)
    paths = [Path(name) for name in made["bert"]["summaries"]]
    terms = summary.Terms.model_validate(made["bert"]["terms"])
    for path in paths:
        summary.write(sorted(path.with_suffix("").glob("*/*/run*.json")), path, made["bert"]["repeats"], terms=terms)
    again(paths, Path("results/bert/tables"))
    pack.write(Path("a.zip"), Path(PAGE), [Path(MANIFEST)], made, [])
    return Path("a.zip")


def again(paths: list[Path], folder: Path) -> None:
    for path in folder.glob("*.*"):
        path.unlink()
    folder.mkdir(exist_ok=True)
    every = cells.groups([read_summary(path) for path in paths], [])
    own = [group for group in every if group.benchmark == folder.parent.name]
    write_tables(Scope(own, every, predictions=None), folder)
    exports.write([group.summary for group in own if group.summary], folder)


@pytest.mark.slow
def test_a_repeat_that_was_left_out_of_everything(
    unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def two(made: dict[str, Any]) -> None:
        made["bert"]["repeats"] = 2

    told = differences(packed_again({name: c for name, c in unpacked.items() if "/run1." not in name}, tmp_path, two))
    assert told[0] == "archive.json: benchmarks.bert.repeats: it states 2, and the latest record was made for 3"
    assert told[1] == "results/bert/bz32_fp32/torch/1n1g: run1: the archive lacks this repeat, and has 2"
    assert len(told) == 5


@pytest.mark.slow
def test_other_rules_excuse_words_and_no_numbers(
    unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever types a digest of rules gets a note that says what was not compared."""
    monkeypatch.chdir(tmp_path)
    packed_again(unpacked, tmp_path, lambda made: None)
    honest = check.check(Path("a.zip"))
    assert not honest.differences and not honest.notes
    with zipfile.ZipFile("a.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    forged = with_value(files, contents.NAME, lambda told: told.update(rules="x"))
    forged[THROUGHPUT] = re.sub(rb"(\d)\.", rb"9\1.", forged[THROUGHPUT], count=1)
    verdict = check.check(packed(forged, tmp_path / "b.zip"))
    (told,) = map(str, verdict.differences)
    assert told.startswith(f"{THROUGHPUT}: row 2: ") and told.endswith("no such number follows from the summaries")
    assert f"{PAGE}: the page was not compared, because other rules made it" in map(str, verdict.notes)
    worded = with_value(files, contents.NAME, lambda told: told.update(rules="x"))
    worded[THROUGHPUT] = worded[THROUGHPUT].replace(b"torch", b"jax", 1)
    assert not check.check(packed(worded, tmp_path / "c.zip")).differences


def test_rows_in_another_order_and_other_columns_are_words(tmp_path: Path) -> None:
    kept, derived = tmp_path / "kept", tmp_path / "derived"
    for folder, text in ((kept, "name,speed,old\na,1.5,7\nb,2.5,8\n"), (derived, "name,speed,new\nb,2.5,1\na,1.5,2\n")):
        folder.mkdir()
        (folder / "t.csv").write_text(text)
    assert [one.word for one in tables.folders(kept, derived, "tables")] == [True]
    (kept / "t.csv").write_text("name,speed,old\na,1.6,7\nb,2.5,8\n")
    assert [one.word for one in tables.folders(kept, derived, "tables")] == [True, False]
    (kept / "t.csv").write_text("name,speed\n" + "9" * 200_000)
    assert "cannot be read" in str([*tables.folders(kept, derived, "tables")][-1])


def test_the_configuration_is_that_of_the_records(unpacked: Files, tmp_path: Path) -> None:
    changed = with_value(unpacked, contents.NAME, lambda told: told["configuration"]["runs"].update(repeats=99))
    (told,) = differences(packed(changed, tmp_path / "a.zip"))
    assert told.startswith("archive.json: configuration.runs.repeats: it states 99, and 3 follows")


def runs(unpacked: Files) -> dict[str, RunRecord]:
    names = [name for name in unpacked if asked.RUN.fullmatch(name)]
    return {name: RunRecord.model_validate(json.loads(unpacked[name])) for name in names}


def test_a_cell_that_was_asked_for_and_is_not_there_is_a_doubt(unpacked: Files) -> None:
    told = contents.Contents.model_validate(json.loads(unpacked[contents.NAME]))
    every = runs(unpacked)
    assert not list(asked.absent(told, every)) and not list(asked.check(told, every))
    for name, lacking in (("/1n2g/", "1n2g: the configuration asks for this topology"), ("fp16", "bz64_fp16: ")):
        left = {of: run for of, run in every.items() if name not in of}
        assert next(str(one) for one in asked.absent(told, left)).startswith(f"results/bert: {lacking}")


def test_many_repeats_that_are_not_there(unpacked: Files) -> None:
    """The numbers of a stranger are as large as they like."""
    value = json.loads(unpacked[contents.NAME])
    value["benchmarks"]["bert"]["repeats"] = 10**15
    told = list(map(str, asked.check(contents.Contents.model_validate(value), runs(unpacked))))
    assert len(told) == 5 and all("run4, run5" in line and line.count("run") == 10 for line in told[1:])


def test_rows_are_those_of_the_manifest(unpacked: Files) -> None:
    record, manifest = json.loads(unpacked[f"{RUN}.json"]), json.loads(unpacked[MANIFEST])
    record["data"]["rows"] += 1
    run = RunRecord.model_validate(record)
    (told,) = asked.rows("r", run, {MANIFEST: manifest})
    assert str(told).startswith("r: data.rows: it states 74863, and 74862 follows")
    assert not list(asked.rows("r", run, {MANIFEST: {**manifest, "content_digest": "made again since"}}))
    assert not list(asked.rows("r", run, {MANIFEST: [], "other": 1}))


@pytest.mark.slow
def test_the_records_of_the_demo_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """140 honest records of eight frameworks. The demo keeps neither telemetry nor the records of equivalence
    checks."""
    monkeypatch.chdir(tmp_path)
    paths, results = demo.summaries(DEMO, Path("results")), Path("results")
    terms: dict[str, summary.Terms] = {}
    for line in (DEMO / demo.FILES[0]).read_text().splitlines():
        record = json.loads(line)
        run, at = record["spec"], RunRecord.model_validate(record).spec.log
        Path(at).write_text(f"+ --record {at.removesuffix('.log')}.json\n")
        if record.get("configuration"):
            terms.setdefault(run["benchmark"], demo._terms(run["benchmark"], record["configuration"]))
    made = {}
    for name in sorted({path.parent.name for path in paths}):
        own = [path for path in paths if path.parent.name == name]
        numbers = [int(path.stem.removeprefix("run")) for path in (results / name).glob("bz*/*/*/run*.json")]
        made[name] = {
            "repeats": max(numbers),
            "terms": terms[name].model_dump(),
            "remarks": None,
            "summaries": [path.as_posix() for path in own],
            "compared": [path.as_posix() for path in paths if path not in own],
            "equivalence": (results / name / "equivalence.json").exists(),
        }
        again(paths, results / name / "tables")
    Path(PAGE).write_text("")
    pack.write(Path("a.zip"), Path(PAGE), [], made, [])
    verdict = check.check(Path("a.zip"))
    assert verdict.counts["records"] == 140 and verdict.same_rules
    others = [line for line in map(str, verdict.differences) if not any(text in line for text in KEPT_ELSEWHERE)]
    assert others == [] and verdict.notes == [] and verdict.doubts == []

"""A stranger checks an archive: what was changed in it is found, also if its digests were changed with it.

`two_topologies.zip` holds real runs of bert-tiny, three repeats on one and on two workers, in fp32 and fp16. It is
converted to the present schema, and states the version and the rules of an earlier commit. `version_0_4_0.zip` is as
0.4.0 has packed it: bert-tiny, a training program, and a quick acceptance of three simulated nodes.
"""

import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline import commands
from throughline.archive import check, contents, pack
from throughline.comparables import exports
from throughline.files import UserError, write_json
from throughline.records import read_summary
from throughline.report import demo
from throughline.report.analysis import cells, predictions, summary
from throughline.report.topic import Scope
from throughline.report.topics import write_tables

KEPT = Path(__file__).with_name("two_topologies.zip")
RELEASED = Path(__file__).with_name("version_0_4_0.zip")
DEMO = Path(__file__).parents[3] / "docs/demo"
RUN = "results/bert/bz32_fp32/torch/1n2g/run2"
SUMMARY = "results/bert/bz32_fp32.json"
PREDICTED = Path("results/bert/predictions.json")
THROUGHPUT = "results/bert/tables/throughput.csv"
MANIFEST = Path("data/sample/seq32/manifest.json")
Files = dict[str, bytes]
Change = Callable[[Files], Files]


def read(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def unpacked() -> Files:
    return read(KEPT)


def packed(files: Files, path: Path, honest: bool = False) -> Path:
    """Write an archive. honest: archive.json keeps its digests; otherwise a forger has made them fit."""
    if not honest:
        told = json.loads(files[contents.NAME])
        told["files"] = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
            if name != contents.NAME
        }
        files = files | {contents.NAME: json.dumps(told).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def with_value(files: Files, name: str, change: Callable[[Any], object]) -> Files:
    value = json.loads(files[name])
    change(value)
    return files | {name: json.dumps(value).encode()}


def written(files: Files, folder: Path) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def differences(path: Path) -> list[str]:
    return list(map(str, check.check(path).differences))


def edited(name: str, change: Callable[[Any], object]) -> Change:
    return lambda files: with_value(files, name, change)


def replaced(name: str, old: bytes, new: bytes) -> Change:
    return lambda files: files | {name: files[name].replace(old, new, 1)}


def faster_in_record_and_ranks(record: Any) -> None:
    """What a careful forger does: the windows fit the throughput."""
    record["samples_per_s"] *= 1.01
    record["window_s"] /= 1.01
    for rank in record["ranks"]:
        rank["window_end_s"] = min(rank["window_end_s"], record["window_s"])


def typed(value: Any) -> None:
    value["frameworks"]["torch"]["1n2g"]["median_speed"] *= 1.1


def beyond(value: Any) -> None:
    cell = value["frameworks"]["torch"]["1n2g"]
    cell |= {"values": [3000.0, 3001.0, 3002.0], "median_speed": 3001.0, "min": 3000.0, "max": 3002.0}


def without_a_repeat(files: Files) -> Files:
    """A forger may have our programs, and lower the number of repeats. The records keep how many were asked for."""
    less = {name: content for name, content in files.items() if "/run1." not in name}
    return with_value(less, contents.NAME, lambda told: told["benchmarks"]["bert"].update(repeats=2))


def other_log(files: Files) -> Files:
    return files | {f"{RUN}.log": files[f"{RUN.replace('run2', 'run3')}.log"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (edited(f"{RUN}.json", faster_in_record_and_ranks), [
            f"{RUN}.log: it prints", f"{SUMMARY}: frameworks.torch.1n2g",
        ]),
        (lambda files: {name: files[name] for name in files if name != f"{RUN}.json"}, [
            "results/bert/bz32_fp32/torch/1n2g: run2: the archive lacks this repeat, and has 2",
            f"{SUMMARY}: frameworks.torch.1n2g.n_ok: it states 3, and 2 follows",
        ]),
        (without_a_repeat, [
            "archive.json: benchmarks.bert.repeats: it states 2, and the latest record was made for 3",
            "results/bert/bz32_fp32/torch/1n1g: run1: the archive lacks this repeat, and has 2",
        ]),
        (edited(SUMMARY, typed), [
            rf"{SUMMARY}: frameworks.torch.1n2g.median_speed: it states .* \(\+10 %\)",
            f"results/report.html: {SUMMARY}: the page does not hold this summary as it is",
        ]),
        (other_log, [f"{RUN}.log: it is the log of another run"]),
        (replaced(THROUGHPUT, b",6", b",7"), [f"{THROUGHPUT}: row 3, global_batch_size: it states 74, and no row"]),
        (edited(contents.NAME, lambda told: told["configuration"]["runs"].update(repeats=99)), [
            "archive.json: configuration.runs.repeats: it states 99, and 3 follows"
        ]),
        (edited(contents.NAME, lambda told: told["benchmarks"]["bert"].update(repeats=10**15)), [
            "archive.json: benchmarks.bert.repeats: it states 1000000000000000, and the latest record was made for 3",
            "results/bert/bz32_fp32/torch/1n1g: run4, .*, run13: the archive lacks this repeat, and has 3",
        ]),
    ],
)  # fmt: skip
def test_what_was_changed_is_found(change: Change, found: list[str], unpacked: Files, tmp_path: Path) -> None:
    told = differences(packed(change(unpacked), tmp_path / "a.zip"))
    assert all(any(re.match(text, line) for line in told) for text in found), told


def test_doubts_are_no_differences(unpacked: Files, tmp_path: Path) -> None:
    """A figure that cannot be, and what the configuration asks for and has no record of."""
    changed = with_value(unpacked, SUMMARY, beyond)
    changed = {name: content for name, content in changed.items() if "fp16" not in name or name.endswith("fp16.json")}
    verdict = check.check(packed(changed, tmp_path / "a.zip"))
    doubts = list(map(str, verdict.doubts))
    assert any("above the measured matrix product" in doubt for doubt in doubts)
    assert "results/bert: bz64_fp16: the configuration asks for this size, and no record has it" in doubts


@pytest.mark.parametrize("enough", [None, 2])
def test_a_repeat_that_is_said_to_have_failed_is_a_doubt(enough: int | None, unpacked: Files, tmp_path: Path) -> None:
    """The configuration in the records has to accept fewer repeats. Else the repeat was left out."""
    files = {name: content for name, content in unpacked.items() if name != f"{RUN}.json"}
    said = {f"{RUN}.json": "a node was lost"}
    files = with_value(files, contents.NAME, lambda told: told["benchmarks"]["bert"]["terms"].update(failed=said))
    for name in filter(check.RUN.fullmatch, files):
        files = with_value(files, name, lambda run: run["configuration"]["benchmarks"]["bert"].update(enough=enough))
    verdict = check.check(packed(files, tmp_path / "a.zip"))
    assert any("lacks this repeat" in str(item) for item in verdict.differences) is (enough is None)
    doubt = f"{RUN}.json: it has no record; the archive says that it failed: a node was lost"
    assert doubt in map(str, verdict.doubts)


def test_the_command_line(capsys: pytest.CaptureFixture[str], unpacked: Files, tmp_path: Path) -> None:
    """An archive of an earlier commit holds: its words may differ. A forged one does not."""
    forged = packed(with_value(unpacked, f"{RUN}.json", faster_in_record_and_ranks), tmp_path / "a.zip")
    for path, status, text in (
        (KEPT, 0, "12 records, 2 summaries: every figure follows from the raw values"),
        (RELEASED, 0, "21 records, 3 summaries: every figure follows from the raw values"),
        (forged, 1, "differs: "),
    ):
        with pytest.raises(SystemExit) as ended:
            commands.main(["check", str(path)])
        assert ended.value.code == status and text in capsys.readouterr().out


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The kept runs, packed again by this version, with its tables and predictions."""
    folder, asked = written(read(KEPT), tmp_path_factory.mktemp("present")), {"topologies": ["1n4g"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = json.loads(Path(contents.NAME).read_text())["benchmarks"]
        paths = [Path(name) for name in made["bert"]["summaries"]]
        for path in paths:  # the kept ones have the words of an earlier commit
            runs, check = sorted(path.with_suffix("").glob("*/*/run*.json")), path.with_name("equivalence.json")
            terms = summary.Terms.model_validate(made["bert"]["terms"])
            equivalence = check if made["bert"]["equivalence"] else None
            summary.write(runs, path, made["bert"]["repeats"], equivalence=equivalence, terms=terms)
        made["bert"]["predict"] = asked
        own = {str(path): path for path in paths}
        derived = predictions.derive(own, {}, predictions.Asked.model_validate(asked))
        write_json(PREDICTED, derived.model_dump(by_alias=True))
        tables(paths, Path("results/bert/tables"), derived)
        (folder / "results/bert/acceptance.local.json").write_text("{}")
        for name in ("a.zip", "b.zip"):
            pack.write(Path(name), Path(pack.PAGE), [MANIFEST], made, [])
        assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()
    return read(folder / "a.zip")


def tables(paths: list[Path], folder: Path, predicted: Any = None) -> None:
    for path in folder.glob("*.*"):
        path.unlink()
    folder.mkdir(exist_ok=True)
    every = cells.groups([read_summary(path) for path in paths], [])
    own = [group for group in every if group.benchmark == folder.parent.name]
    write_tables(Scope(own, every, predictions=predicted), folder)
    exports.write([group.summary for group in own if group.summary], folder)


@pytest.mark.slow
def test_what_this_version_packs_holds(present: Files, unpacked: Files, tmp_path: Path) -> None:
    verdict = check.check(packed(present, tmp_path / "a.zip", honest=True))
    assert not verdict.differences and not verdict.notes
    assert not any(name.endswith(".local.json") for name in present)
    assert {name for name in unpacked if "/tables/" not in name} | {str(PREDICTED)} <= present.keys()


def shown(files: Files) -> Files:
    """Type another digit into the first cell of a table of the page."""
    page = files[pack.PAGE]
    cell = next(re.finditer(rb'<td class="[^"]*">[0-9.]+<', page)).group()
    return files | {pack.PAGE: page.replace(cell, cell.replace(b">", b">9", 1), 1)}


def predicted(value: Any) -> None:
    value["series"][0]["predicted"][0]["samples_per_s"] *= 1.01
    value["series"][0]["measured"][0]["step_s"][0] *= 0.99


@pytest.mark.slow
def test_other_rules_excuse_words_and_no_numbers(present: Files, tmp_path: Path) -> None:
    """Anybody may type a digest of rules. Then notes say what was not compared."""
    changed = with_value(shown(present), str(PREDICTED), predicted)
    changed[THROUGHPUT] = re.sub(rb"(\d)\.", rb"9\1.", changed[THROUGHPUT].replace(b"torch", b"jax", 1), count=1)
    told = {line.rpartition(": ")[0] for line in differences(packed(changed, tmp_path / "a.zip"))}
    figures = {
        f"{THROUGHPUT}: row 2, median_samples_per_s",
        f"{PREDICTED}: series[0].measured[0].step_s[0]",
    }
    line = f"{THROUGHPUT}: line 2"
    page = next(name for name in told if name.startswith(f"{pack.PAGE}: line "))
    assert told >= {*figures, line, page, f"{PREDICTED}: series[0].predicted[0].samples_per_s"}
    excused = with_value(changed, contents.NAME, lambda value: value.update(rules="x"))
    verdict = check.check(packed(excused, tmp_path / "b.zip"))
    assert figures == {
        str(one).rpartition(": ")[0] for one in verdict.differences if one.file != "results/bert/tables/predictions.csv"
    }
    notes = [str(one) for one in verdict.notes]
    assert f"{pack.PAGE}: the rest of the page was not compared, because other rules made it" in notes
    assert any(note.startswith(line) for note in notes)


def test_a_name_of_this_machine_does_not_leave_it(
    unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(unpacked, tmp_path) / f"{RUN}.log"
    log.write_text(log.read_text() + "loaded /opt/site/secret/lib.so from 10.1.2.3\n")
    monkeypatch.chdir(tmp_path)
    made = json.loads(unpacked[contents.NAME])["benchmarks"]
    pack.write(Path("a.zip"), Path(pack.PAGE), [], made, [])
    assert read(Path("a.zip"))[f"{RUN}.log"].decode().endswith("loaded .../lib.so from ADDRESS\n")
    (tmp_path / "results/bert/note.json").write_text('{"host": "10.1.2.3"}')
    with pytest.raises(UserError, match="has a name or an address of this machine"):
        pack.write(Path("b.zip"), Path(pack.PAGE), [], made, [])
    assert not Path("b.zip").exists()


@pytest.mark.slow
def test_the_records_of_the_demo_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """122 honest records. The demo keeps neither telemetry nor the records of its checks."""
    monkeypatch.chdir(tmp_path)
    paths, made = demo.summaries(DEMO, Path("results")), {}
    for folder in sorted({path.parent for path in paths}):
        runs = {path: json.loads(path.read_text()) for path in folder.glob("bz*/*/*/run*.json")}
        for path in runs:
            path.with_suffix(".log").write_text(f"+ --record {path}\n")
        configuration = next(run["configuration"] for run in runs.values() if run.get("configuration"))
        made[folder.name] = {
            "repeats": max(run["spec"]["repeat"] for run in runs.values()),
            "terms": demo._terms(folder.name, configuration).model_dump(),
            "remarks": None,
            "summaries": [str(path) for path in paths if path.parent == folder],
            "compared": [str(path) for path in paths if path.parent != folder],
            "equivalence": (folder / "equivalence.json").exists(),
        }
        tables(paths, folder / "tables")
    Path(pack.PAGE).write_text("")
    pack.write(Path("a.zip"), Path(pack.PAGE), [], made, [])
    verdict = check.check(Path("a.zip"))
    assert verdict.counts["records"] == 122 and verdict.same_rules
    elsewhere = r": the archive lacks the samples behind it|equivalence.json: .*/\w+.json does not exist$"
    assert not [line for line in map(str, verdict.differences) if not re.search(elsewhere, line)]
    assert verdict.notes == [] and verdict.doubts == []

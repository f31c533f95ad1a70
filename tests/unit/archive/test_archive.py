"""A stranger checks an archive: what was changed in it is found, and what is hostile in it does no harm.

`two_topologies.zip` holds real runs of bert-tiny, three repeats on one and on two workers, in fp32 and fp16. It is
converted to the present schema, and states the version and the rules of an earlier commit.
"""

import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from throughline import __version__, commands
from throughline.archive import check, contents, pack
from throughline.archive.opening import looked_into
from throughline.files import UserError
from throughline.report.analysis import predictions

KEPT = Path(__file__).with_name("two_topologies.zip")
RUN = "results/bert/bz32_fp32/torch/1n2g/run2"
PREDICTED = "results/bert/predictions.json"
SUMMARY = "results/bert/bz32_fp32.json"
Files = dict[str, bytes]


@pytest.fixture
def unpacked() -> Files:
    with zipfile.ZipFile(KEPT) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


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


def differences(path: Path) -> list[str]:
    return list(map(str, check.check(path).differences))


def test_an_archive_of_an_earlier_commit_holds() -> None:
    verdict = check.check(KEPT)
    assert not verdict.differences
    assert verdict.counts["records"] == 12 and verdict.counts["summaries"] == 2


def test_a_file_that_was_changed_is_named_by_its_digest(unpacked: Files, tmp_path: Path) -> None:
    changed = unpacked | {f"{RUN}.log": unpacked[f"{RUN}.log"] + b"\n"}
    assert differences(packed(changed, tmp_path / "a.zip", honest=True)) == [
        f"{RUN}.log: its SHA-256 is not the one in archive.json: the file was changed"
    ]


def faster(record: Any) -> None:
    record["samples_per_s"] *= 1.01


def faster_throughout(record: Any) -> None:
    """What a careful forger does: the window fits the throughput."""
    record["samples_per_s"] *= 1.01
    record["window_s"] /= 1.01


def less_memory(record: Any) -> None:
    record["peak_memory_bytes"] -= 1


def quicker(record: Any) -> None:
    """Latency that the steps do not bear out. The kept records state no latency."""
    steps = sorted(record["step_seconds"])
    stated = {"name": "latency", "unit": "ms", "better": "less", "at": "95 %", "value": 500 * steps[-1]}
    record["figures"] = [*record["figures"], stated]


def cooler(record: Any) -> None:
    record["telemetry"][0]["machine"]["memory_used_bytes"]["max"] -= 2**20


def less_traffic(record: Any) -> None:
    record["telemetry"][0]["machine"]["loopback_bytes_per_s"]["max"] *= 0.99


def other_node(record: Any) -> None:
    record["ranks"][1]["node"] = 1


def newer_kernel(record: Any) -> None:
    record["environment"]["kernel"] = "7.0"


def less_reserved(record: Any) -> None:
    record["memory"]["reserved_bytes"] -= 1


def other_products(record: Any) -> None:
    for rank in record["ranks"]:
        rank["matmul_flops_per_s"] = 2 * record["work"]["matmul_flops_per_s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (other_products, "work.matmul_flops_per_s: it states"),
        (faster, "does not follow from the window"),
        (faster_throughout, "window_s: it states"),
        (less_memory, "peak_memory_bytes: it states"),
        (quicker, "figures.latency (95 %): it states"),
        (cooler, "telemetry[0].machine.memory_used_bytes.max: it states"),
        (less_traffic, "telemetry[0].machine.loopback_bytes_per_s.max: it states"),
        (other_node, "ranks[1][1]: it states"),
        (less_reserved, "memory.reserved_bytes: it states"),
    ],
)
def test_a_digit_in_a_record(change: Callable[[Any], None], found: str, unpacked: Files, tmp_path: Path) -> None:
    changed = with_value(unpacked, f"{RUN}.json", change)
    told = differences(packed(changed, tmp_path / "a.zip"))
    assert any(line.startswith(f"{RUN}.json") and found in line for line in told), told


def test_an_environment_that_was_edited(unpacked: Files, tmp_path: Path) -> None:
    """The digest is made by a rule, so in an archive of another version it is a note."""
    notes = check.check(packed(with_value(unpacked, f"{RUN}.json", newer_kernel), tmp_path / "a.zip")).notes
    assert any(str(note).startswith(f"{RUN}.json: environment.digest: it states") for note in notes)


def test_a_forged_record_with_its_log_and_its_ranks_is_still_found(unpacked: Files, tmp_path: Path) -> None:
    def everywhere(record: Any) -> None:
        faster_throughout(record)
        for rank in record["ranks"]:
            rank["window_end_s"] = min(rank["window_end_s"], record["window_s"])

    changed = with_value(unpacked, f"{RUN}.json", everywhere)
    told = "\n".join(differences(packed(changed, tmp_path / "a.zip")))
    assert f"{RUN}.log: it prints" in told and f"{SUMMARY}: frameworks.torch.1n2g" in told


def test_a_record_that_was_left_out(unpacked: Files, tmp_path: Path) -> None:
    del unpacked[f"{RUN}.json"]
    told = differences(packed(unpacked, tmp_path / "a.zip"))
    lacking = f"{SUMMARY}: bz32_fp32/torch/1n2g/run2.json: the archive lacks this record, which the summary counts"
    assert lacking in told


def test_a_summary_typed_by_hand(unpacked: Files, tmp_path: Path) -> None:
    def typed(summary: Any) -> None:
        summary["frameworks"]["torch"]["1n2g"]["median_speed"] *= 1.1

    told = differences(packed(with_value(unpacked, SUMMARY, typed), tmp_path / "a.zip"))
    assert any(
        re.match(rf"{SUMMARY}: frameworks.torch.1n2g.median_speed: it states .* \(\+10 %\)", line) for line in told
    )
    assert any("the page does not hold this summary as it is" in line for line in told)


def test_logs_that_were_swapped(unpacked: Files, tmp_path: Path) -> None:
    other = RUN.replace("run2", "run3")
    logs = {f"{RUN}.log": unpacked[f"{other}.log"], f"{other}.log": unpacked[f"{RUN}.log"]}
    told = differences(packed(unpacked | logs, tmp_path / "a.zip"))
    assert sum("it is the log of another run" in line for line in told) == 2


def test_a_table_that_was_edited(unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "results/bert/tables/throughput.csv"
    told = json.loads(unpacked[contents.NAME])
    monkeypatch.setattr(check, "rules", lambda: told["rules"])  # as on the day on which it was made
    lines = unpacked[name].replace(b"torch", b"jax", 1)
    assert any(
        line.startswith(f"{name}: line") for line in differences(packed(unpacked | {name: lines}, tmp_path / "a.zip"))
    )


def test_a_figure_that_cannot_be_is_doubtful(unpacked: Files, tmp_path: Path) -> None:
    def beyond(summary: Any) -> None:
        cell = summary["frameworks"]["torch"]["1n2g"]
        cell |= {"values": [3000.0, 3001.0, 3002.0], "median_speed": 3001.0, "min": 3000.0, "max": 3002.0}

    doubts = check.check(packed(with_value(unpacked, SUMMARY, beyond), tmp_path / "a.zip")).doubts
    assert any("above the measured matrix product" in str(doubt) for doubt in doubts)


def test_the_command_line(capsys: pytest.CaptureFixture[str], unpacked: Files, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        commands.main(["check", str(KEPT)])
    assert ended.value.code == 0 and "every figure follows from the raw values" in capsys.readouterr().out
    changed = packed(with_value(unpacked, f"{RUN}.json", faster), tmp_path / "a.zip")
    with pytest.raises(SystemExit) as ended:
        commands.main(["check", str(changed)])
    assert ended.value.code == 1 and "differs:" in capsys.readouterr().out


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("../outside.json", b"{}", "does not belong below"),
        ("results/../../outside.json", b"{}", "does not belong below"),
        ("/etc/outside", b"{}", "does not belong below"),
        ("results/a\\b.json", b"{}", "does not belong below"),
        ("results/bomb.csv", b"0" * (300 << 20), "unpacks to more than"),
        (contents.NAME, DEEP, "nested too deeply"),
        (contents.NAME, b"9" * 10_000, "digits"),
        (contents.NAME, b"\xff\xfe", "codec"),
        (contents.NAME, b"[]", "valid dictionary"),
    ],
)
def test_a_hostile_archive_is_refused(name: str, content: bytes, why: str, unpacked: Files, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        check.check(packed(unpacked | {name: content}, tmp_path / "a.zip", honest=True))
    assert why in str(refused.value) and "next:" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_record_that_is_nested_too_deeply_is_named(unpacked: Files, tmp_path: Path) -> None:
    told = differences(packed(unpacked | {f"{RUN}.json": DEEP}, tmp_path / "a.zip"))
    assert f"{RUN}.json: it is nested too deeply" in told


def test_a_link_and_a_name_twice_are_refused(unpacked: Files, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("results/link")
    link.external_attr = 0o120777 << 16
    for number, entry in enumerate((link, zipfile.ZipInfo(SUMMARY))):
        path = packed(unpacked, tmp_path / f"{number}.zip", honest=True)
        with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning) if number else nullcontext():
            archive.writestr(entry, b"/etc/passwd")
        with pytest.raises(UserError, match=r"link|twice"):
            check.check(path)


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(UserError, match="is no archive"):
        check.check(tmp_path / "a.zip")
    with pytest.raises(UserError, match="does not exist"):
        check.check(tmp_path / "b.zip")


def test_an_archive_of_a_newer_format_is_left_to_newer_programs(unpacked: Files, tmp_path: Path) -> None:
    newer = with_value(unpacked, contents.NAME, lambda told: told["formats"].update(archive=99))
    with pytest.raises(UserError, match="version 99 of the format archive"):
        check.check(packed(newer, tmp_path / "a.zip", honest=True))


def test_an_archive_of_version_0_3_is_one_clear_error(unpacked: Files, tmp_path: Path) -> None:
    def of_0_3(told: Any) -> None:
        told |= {"formats": {"archive": 2, "results": 2}, "version": "0.3.0"}

    path = packed(with_value(unpacked, contents.NAME, of_0_3), tmp_path / "a.zip")
    for read in (check.check, lambda path: looked_into(path).__enter__()):
        with pytest.raises(UserError) as refused:
            read(path)
        assert str(refused.value).splitlines() == [
            f"{path} has version 2 of the format results, and this version of Throughline ({__version__}) reads 3",
            "  why:  version 0.3.0 of Throughline has made it",
            "  next: check it with that version; to compare with it, measure and pack again with this one",
        ]


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in unpacked.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "results/bert/acceptance.local.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    made = json.loads(unpacked[contents.NAME])["benchmarks"]
    manifests = [Path("data/sample/seq32/manifest.json")]
    for name in ("one.zip", "two.zip"):
        pack.write(Path(name), Path("results/report.html"), manifests, made, [])
    assert Path("one.zip").read_bytes() == Path("two.zip").read_bytes()
    with zipfile.ZipFile("one.zip") as archive:
        assert set(archive.namelist()) == set(unpacked)
    assert all(one.word for one in check.check(Path("one.zip")).differences)  # the tables are an earlier version's
    with zipfile.ZipFile("one.zip") as archive:
        changed = {name: archive.read(name) for name in archive.namelist()}
    shown = next(re.finditer(rb'<td class="[^"]*">[0-9.]+<', changed["results/report.html"])).group()
    typed = changed["results/report.html"].replace(shown, shown.replace(b">", b">9", 1), 1)
    told = differences(packed(changed | {"results/report.html": typed}, Path("three.zip")))
    assert [line for line in told if line.startswith("results/report.html: line ")]
    assert not [line for line in differences(packed(changed, Path("four.zip"))) if "report.html" in line]


def test_a_name_of_this_machine_does_not_leave_it(
    unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in unpacked.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    log = tmp_path / f"{RUN}.log"
    log.write_text(log.read_text() + "loaded /opt/site/secret/lib.so from 10.1.2.3\n")
    monkeypatch.chdir(tmp_path)
    made = json.loads(unpacked[contents.NAME])["benchmarks"]
    pack.write(Path("a.zip"), Path("results/report.html"), [], made, [])
    with zipfile.ZipFile("a.zip") as archive:
        assert archive.read(f"{RUN}.log").decode().endswith("loaded .../lib.so from ADDRESS\n")
    (tmp_path / "results/bert/note.json").write_text('{"host": "10.1.2.3"}')
    with pytest.raises(UserError, match="has a name or an address of this machine"):
        pack.write(Path("b.zip"), Path("results/report.html"), [], made, [])
    assert not Path("b.zip").exists()


def test_predictions_follow_from_the_summaries(unpacked: Files, tmp_path: Path) -> None:
    for name, content in unpacked.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    asked = {"topologies": ["1n4g"]}
    told = json.loads(unpacked[contents.NAME])
    names = told["benchmarks"]["bert"]["summaries"]
    own = {name: tmp_path / name for name in names}
    made = predictions.derive(own, {}, predictions.Asked.model_validate(asked)).model_dump(by_alias=True)
    assert made["series"][0]["predicted"]
    told["benchmarks"]["bert"]["predict"], told["rules"] = asked, contents.rules()
    files = unpacked | {contents.NAME: json.dumps(told).encode(), PREDICTED: json.dumps(made).encode()}

    def found(changed: Files) -> list[str]:
        return [text for text in differences(packed(changed, tmp_path / "a.zip")) if text.startswith(PREDICTED)]

    def changed(value: Any) -> None:
        value["series"][0]["predicted"][0]["samples_per_s"] *= 1.01
        value["series"][0]["measured"][0]["step_s"][0] *= 0.99

    assert not found(files)
    measured, predicted = sorted(found(with_value(files, PREDICTED, changed)))
    assert "measured[0].step_s[0]" in measured and "predicted[0].samples_per_s" in predicted

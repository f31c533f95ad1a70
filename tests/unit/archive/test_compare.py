"""The present results beside archives and folders: verdicts, what differs, what cannot be compared, and what a CI makes
of it."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from throughline import commands
from throughline.archive import compare, contents, regress
from throughline.files import UserError
from throughline.records import Compared, read_compared
from throughline.report.render import archives as shown
from throughline.report.render.page import write_comparison
from throughline.study.result_sections import Compare

KEPT = Path(__file__).with_name("two_topologies.zip")
SUMMARIES = [Path("results/bert/bz32_fp32.json"), Path("results/bert/bz64_fp16.json")]
STEADY = [0.998, 1.0, 1.002]
"""Noise of the repeats in these tests, as shares: the real ones lie further apart."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results that the archive was made from, as the present ones, with steady repeats."""
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in SUMMARIES:
        path.write_text(json.dumps(steady(json.loads(path.read_text()), 1.0)))
    return tmp_path


def steady(summary: Any, factor: float) -> Any:
    """Set the repeats of every cell to a multiple of its median, with little noise."""
    for series in summary["frameworks"].values():
        for cell in series.values():
            middle = cell["median_speed"] * factor
            cell |= {"values": [middle * share for share in STEADY], "median_speed": middle}
    return summary


def archive(name: str, change: Callable[[Any], object], more: Mapping[str, Any] | None = None) -> Path:
    """Write an archive whose summaries were changed, with digests that fit. more: further summaries."""
    with zipfile.ZipFile(KEPT) as kept:
        files = {name: kept.read(name) for name in kept.namelist()}
    for path in SUMMARIES:
        summary = json.loads(path.read_text())
        change(summary)
        files[path.as_posix()] = json.dumps(summary).encode()
    files |= {inner: v if isinstance(v, bytes) else json.dumps(v).encode() for inner, v in (more or {}).items()}
    told = json.loads(files.pop(contents.NAME))
    for inner in more or ():
        benchmark = Path(inner).parent.name
        made = told["benchmarks"].setdefault(benchmark, {**told["benchmarks"]["bert"], "summaries": []})
        made["summaries"].append(inner)
    told["files"] = {n: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in files.items()}
    with zipfile.ZipFile(name, "w") as output:
        for inner, content in (files | {contents.NAME: json.dumps(told).encode()}).items():
            output.writestr(inner, content)
    return Path(name)


def compared(*archives: Path) -> Compared:
    compare.compare(SUMMARIES, archives, Path("compare.json"))
    return read_compared("compare.json")


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.1, "slower"), (0.9, "faster"), (1.0, "no difference"), (1.004, "no difference")]
)
def test_verdicts(factor: float, verdict: str) -> None:
    found = compared(archive("old.zip", lambda summary: steady(summary, factor))).archives[0]
    assert [cell.verdict for cell in found.cells] == [verdict] * 4
    assert all(cell.ratio == pytest.approx(1 / factor) for cell in found.cells)
    assert all(cell.words == f"{verdict} in these runs" for cell in found.cells)  # there are no A/A runs
    assert found.differs == [] and found.only_here == found.only_there == []
    assert read_compared("compare.json").machines == []  # the devices are the same


def test_what_differs_is_named_in_the_order_in_which_it_matters() -> None:
    def changed(summary: Any) -> None:
        summary["environment"]["torch"] |= {"kernel": "5.4.0", "driver": "535.1"}
        summary["environment"]["torch"]["framework"] = {"torch": "2.12.0"}
        summary["device"]["name"] = "Another Processor"
        summary["options"]["compile"] = True
        summary["environment"]["torch"]["gpus"] = [{"power_limit_w": 500.0}, {"power_limit_w": 700.0}]

    for path in SUMMARIES:
        summary = json.loads(path.read_text())
        summary["environment"]["torch"] |= {"driver": "570.2", "gpus": [{"power_limit_w": 700.0}] * 2}
        path.write_text(json.dumps(summary))
    differs = compared(archive("old.zip", changed)).archives[0].differs
    order = ["device.name", "gpu power limit w", "driver", "framework.torch", "options.compile", "kernel"]
    assert [fact.name for fact in differs] == order and differs[3].there == "2.12.0"
    assert str(differs[1]) == "gpu power limit w: 700.0 here, [500.0, 700.0] there"
    machines = read_compared("compare.json").machines
    assert [cell.machine for cell in machines] == ["here"] * 4 + ["old.zip"] * 4


def test_a_difference_of_one_cell_stands_with_it() -> None:
    def changed(summary: Any) -> None:
        if summary["precision"] == "fp16":
            summary["environment"]["torch"]["kernel"] = "5.4.0"

    found = compared(archive("old.zip", changed)).archives[0]
    assert found.differs == []
    assert [len(cell.differs) for cell in found.cells] == [0, 0, 1, 1]


def longer(summary: Any) -> None:
    summary["sequence_length"] = 64


def unequal(summary: Any) -> None:
    proof = {
        "verdict": "different",
        "largest_difference": 1.0,
        "tolerance": 1e-5,
        "reason": "its loss is off",
        "covers": [],
    }
    summary["equivalence"] = {"torch": proof | {"covers": []}}


def simulated(summary: Any) -> None:
    for cell in summary["frameworks"]["torch"].values():
        cell["simulated"] = True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (longer, "parameters is"),
        (unequal, "does not compute what the others do"),
        (simulated, "the nodes of one side are simulated"),
    ],
)
def test_what_cannot_be_compared_says_why(change: Callable[[Any], None], why: str) -> None:
    cells = compared(archive("old.zip", change)).archives[0].cells
    assert {cell.verdict for cell in cells} == {"not comparable"}
    assert all(why in cell.because for cell in cells)


def test_runs_of_another_protocol_are_not_compared(here: Path) -> None:
    record = Path("results/bert/bz32_fp32/torch/1n1g/run1.json")
    value = json.loads(record.read_text())
    value["spec"]["protocol"] += 1
    old = archive("old.zip", lambda summary: None)
    record.write_text(json.dumps(value))
    cells = compared(old).archives[0].cells
    assert [cell.verdict for cell in cells] == ["not comparable"] + ["no difference"] * 3
    assert "measured in different ways (protocol 4 here, 3 there)" in cells[0].because


def test_nothing_in_common_and_a_changed_archive_are_errors() -> None:
    def renamed(summary: Any) -> None:
        summary["frameworks"] = {"jax": summary["frameworks"]["torch"]}
        summary["environment"] = {"jax": {}}
        summary["baselines"] = {"jax": "1n1g"}

    with pytest.raises(UserError, match=r"no cell of old\.zip is also in the present results"):
        compared(archive("old.zip", renamed))
    path = archive("bad.zip", lambda summary: None)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"outcome:", b"outcomf:", 1))
    with pytest.raises(UserError, match=r"bad\.zip"):
        compared(path)
    with pytest.raises(UserError, match=r"other/bad\.zip are both called bad\.zip"):
        compared(path, Path("other/bad.zip"))


def test_the_section_of_the_configuration() -> None:
    with pytest.raises(UserError, match="names no archive and no folder"):
        Compare().some()
    with pytest.raises(UserError, match=r"none\.zip, which does not exist"):
        Compare(against=["none.zip"]).there()


@pytest.mark.parametrize(
    ("factor", "by", "status"),
    [
        (1.1, "2%", 1),
        (1.1, "15%", 0),
        (1.0, "2%", 0),
        (0.9, "0.02", 0),
        (1.0204, "2%", 2),  # the interval reaches to both sides of the limit
    ],
)
def test_regress_decides_for_a_ci(
    factor: float, by: str, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(archive("old.zip", lambda summary: steady(summary, factor)))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert ended("compare.json", "--by", by) == status
    printed = capsys.readouterr().out
    assert printed.count("title=Training speed::") == 4
    assert ("::error" in printed) == (status == 1) and ("::warning" in printed) == (status == 2)


def ended(*words: str) -> Any:
    """Return the exit status of `throughline regress`."""
    with pytest.raises(SystemExit) as end:
        commands.main(["regress", *words])
    return end.value.code


def failed(summary: Any) -> None:
    cell = summary["frameworks"]["torch"]["1n2g"]
    cell |= {"values": [], "median_speed": None, "n_ok": 0, "statuses": {"oom": 3}}
    for name in ("starts", "started", "ended", "speedup", "speedup_range", "speedup_coverage"):
        cell[name] = [] if name == "starts" else None


def gone(summary: Any) -> None:
    del summary["frameworks"]["torch"]["1n2g"]


@pytest.mark.parametrize(("lose", "why"), [(gone, "no figure for it"), (failed, "no figure for it: out of memory")])
def test_a_cell_of_the_baseline_that_is_lost_cannot_be_told(
    lose: Callable[[Any], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = archive("old.zip", lambda summary: None)
    value = json.loads(SUMMARIES[0].read_text())
    lose(value)
    SUMMARIES[0].write_text(json.dumps(value))
    found = compared(old).archives[0]
    assert found.only_there == ["bert bz32 fp32 torch 1n2g"] and len(found.cells) == 3
    assert ended("compare.json") == 2
    printed = capsys.readouterr().out
    assert "bert bz32 fp32 torch 1n2g against old.zip: cannot be told" in printed and why in printed
    assert "4 cells: 3 fine, 1 cannot be told" in printed
    (told,) = [text for text in shown.remarks(read_compared("compare.json"), found) if text.startswith("Only there")]
    assert ("out of memory" in told) == (lose is failed)


def test_a_slower_cell_outweighs_a_lost_one() -> None:
    old = archive("old.zip", lambda summary: steady(summary, 1.1))
    compare.compare(SUMMARIES[1:], [old], Path("compare.json"))
    assert ended("compare.json") == 1


def test_a_comparison_that_cannot_be_read_is_no_slower_cell(capsys: pytest.CaptureFixture[str]) -> None:
    compared(archive("old.zip", lambda summary: None))
    Path("broken.json").write_text("{")
    Path("folder.json").mkdir()
    for words in (["none.json"], ["broken.json"], ["folder.json"], ["compare.json", "--by", "much"]):
        assert ended(*words) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_a_summary_that_cannot_be_read_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def newer(summary: Any) -> None:
        if summary["precision"] == "fp32":
            summary["schema"] = 99

    deep = archive("deep.zip", lambda summary: None, {"results/deep/bz1_fp32.json": b"[" * 200_000 + b"]" * 200_000})
    found = compared(archive("old.zip", newer), archive("a.zip", lambda summary: None), deep)
    assert "nested too deeply" in found.archives[2].unreadable[0] and len(found.archives[2].cells) == 4
    why = "results/bert/bz32_fp32.json of the archive cannot be read: it has schema 99; this version"
    (text,) = found.archives[0].unreadable
    assert text.startswith(why) and found.archives[0].only_here == ["bert bz32 fp32 torch 1n1g",
                                                                    "bert bz32 fp32 torch 1n2g"]  # fmt: skip
    assert any(f"Left out: {why}" in told for told in shown.remarks(found, found.archives[0]))
    (section,) = shown.sections(found)
    assert any(f"old.zip: {why}" in told for told in section["remarks"])
    assert ended("compare.json") == 2
    assert f"a summary against old.zip: cannot be told: {why}" in capsys.readouterr().out


def noisy(summary: Any, factor: float) -> Any:
    for cell in summary["frameworks"]["torch"].values():
        cell["values"] = [value * factor * share for value, share in zip(cell["values"], (0.9, 1.0, 1.1), strict=True)]
    return summary


def test_noisy_repeats_are_not_told_apart() -> None:
    found = compared(archive("old.zip", lambda summary: noisy(summary, 1.05))).archives[0]
    assert {cell.verdict for cell in found.cells} == {"inconclusive"}
    assert {one.decision for one in regress.judge(read_compared("compare.json"), 0.02)} == {"cannot be told"}


def test_runs_of_an_archive_that_measure_one_thing_twice_hide_a_difference() -> None:
    again = {}
    for path in SUMMARIES[:1]:
        summary = steady(json.loads(path.read_text()), 1.1) | {"benchmark": "bert__aa"}
        again[f"results/bert__aa/{path.name}"] = summary
    alone = compared(archive("old.zip", lambda summary: steady(summary, 1.05))).archives[0]
    assert {cell.verdict for cell in alone.cells} == {"slower"}
    found = compared(archive("old.zip", lambda summary: steady(summary, 1.05), again)).archives[0]
    assert [cell.words for cell in found.cells] == ["inconclusive"] * 4  # they judge other precisions too
    assert all(cell.smallest_difference == pytest.approx(1.1 / 1.05 - 1) for cell in found.cells)


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0.0, "the two sides are the same runs"),
        (0.0001, "the repeats of both sides were interleaved"),
        (0.5, "12 hours lie between the two sides"),
        (1.01, "1 day lies between the two sides"),
        (35.0, "35 days lie between the two sides"),
    ],
)
def test_how_far_apart_two_sides_are(days: float, words: str) -> None:
    def dated(summary: Any, more: float) -> None:
        """Let a repeat take ten seconds, one every minute."""
        begin = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=more)
        for cell in summary["frameworks"]["torch"].values():
            starts = [begin + timedelta(minutes=number) for number in range(3)]
            cell["starts"] = [start.isoformat() for start in starts]
            cell |= {"started": cell["starts"][0], "ended": (starts[-1] + timedelta(seconds=10)).isoformat()}

    old = archive("old.zip", lambda summary: dated(summary, 0.0))
    for path in SUMMARIES:
        summary = json.loads(path.read_text())
        dated(summary, days)
        path.write_text(json.dumps(summary))
    found = compared(old)
    told = list(shown.remarks(found, found.archives[0]))
    assert any(words in text for text in told), told
    assert any(text.startswith("Version 0.4.0a1 of Throughline made old.zip; version ") for text in told)


def test_what_has_no_test_cannot_be_told() -> None:
    def once(summary: Any) -> None:
        for cell in summary["frameworks"]["torch"].values():
            cell["values"] = [cell["median_speed"]]

    judged = regress.judge(compared(archive("old.zip", once)), 0.02)
    assert regress.status(judged) == 2 and regress.status([]) == 2
    with pytest.raises(UserError, match="is no share"):
        regress.share("much")


def test_the_page_and_the_tables() -> None:
    """Two archives have their cells on the page. More are a history: a table of what changed, and one plot."""

    def older(summary: Any) -> None:
        steady(summary, 0.5)
        summary["environment"]["torch"]["driver"] = "535.1"
        for cell in summary["frameworks"]["torch"].values():
            cell |= {"started": "2025-03-04T00:00:00Z", "ended": "2025-03-04T01:00:00Z"}

    for path in SUMMARIES:
        summary = json.loads(path.read_text())
        summary["environment"]["torch"]["driver"] = "570.2"
        path.write_text(json.dumps(summary))
    archives = [archive("first.zip", older), *(archive(f"{name}.zip", lambda summary: None) for name in "ab")]
    compared(archives[1])
    shown.write(Path("compare.json"), Path("compare.csv"), Path("machines.csv"))
    assert Path("compare.csv").read_text().count("\n") == 5 and Path("machines.csv").read_text().count("\n") == 1
    write_comparison(Path("compare.json"), Path("compare.html"))
    page = Path("compare.html").read_text()
    assert "Compared with a.zip" in page and "no difference in these runs" in page
    compared(*archives)
    write_comparison(Path("compare.json"), Path("compare.html"))
    page = Path("compare.html").read_text()
    assert page.count('id="history-title"') == 1 and "Compared with" not in page
    (section,) = shown.sections(read_compared("compare.json"))
    rows = [[entry.text for entry in line.entries] for line in section["table"].lines]
    assert [(row[0], row[4]) for row in rows] == [("first.zip", ""), ("a.zip", "1"), ("b.zip", ""), ("here", "")]
    assert rows[0][1:3] == ["2025-03-04", "4 faster in these runs"] and rows[1][5] == "driver from 535.1 to 570.2"
    (plot,) = section["plots"]
    assert plot.count("+100.0 %") == 4 and "bert bz32 fp32 torch 1n1g: first.zip 216" in plot


def folder() -> Path:
    """Return a folder with the results that the archive was made from."""
    with zipfile.ZipFile(KEPT) as kept:
        kept.extractall("there")
    return Path("there/results")


def test_a_folder_of_results_is_compared_as_an_archive() -> None:
    before = {path: path.stat().st_mtime_ns for path in folder().rglob("*")}
    found = compared(Path("there/results"), archive("old.zip", lambda summary: steady(summary, 1.1)))
    one, other = found.archives
    assert (one.name, one.sha256, one.version) == ("there", None, None) and other.sha256
    assert one.cells[0].ratio == pytest.approx(1.0) and len(one.cells) == len(other.cells) == 4
    assert {path: path.stat().st_mtime_ns for path in Path("there/results").rglob("*")} == before
    text = list(shown.remarks(found, one))
    assert not any("of Throughline made" in line for line in text)
    shutil.rmtree("there/results/bert/bz32_fp32")  # summaries alone are enough
    assert len(compared(Path("there/results")).archives[0].cells) == 4


def test_machines_are_compared_without_results_of_our_own() -> None:
    compare.compare([], [folder(), archive("old.zip", lambda summary: None)], Path("compare.json"))
    found = read_compared("compare.json")
    assert [cell.machine for cell in found.machines] == ["there"] * 4 + ["old.zip"] * 4
    assert not any(one.cells for one in found.archives)
    write_comparison(Path("compare.json"), Path("compare.html"))
    page = Path("compare.html").read_text()
    assert "All machines" in page and "Compared with" not in page


def change(path: str, old: str, new: str) -> Callable[[Path], object]:
    """Return a function that changes a text in a file of a folder."""
    return lambda root: (root / path).write_text((root / path).read_text().replace(old, new))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda root: shutil.move(root / "bert", root.parent / "bert"), "not the folder around it"),
        (lambda root: shutil.move(root / "bert", root / "gpt"), "gpt/bz32_fp32.json is the summary of other runs"),
        (change("bert/bz32_fp32.json", '"schema": 3', '"schema": 99'), "this workflow only reads the folder"),
        (lambda root: steadied(root / "bert/bz32_fp32.json"), "does not fit its record"),
        (change("bert/bz32_fp32/torch/1n1g/run1.json", '"ok"', '"fine"'), "is not a valid RunRecord"),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_clear_error(damage: Callable[[Path], object], told: str) -> None:
    damage(folder())
    with pytest.raises(UserError) as caught:
        compared(Path("there/results"))
    assert told in str(caught.value) and "compare.against: there/results" in str(caught.value)


def steadied(path: Path) -> None:
    path.write_text(json.dumps(steady(json.loads(path.read_text()), 1.0)))


def test_its_own_folder_is_no_other_machine() -> None:
    with pytest.raises(UserError, match="in which this workflow writes its own results"):
        compared(Path("results"))

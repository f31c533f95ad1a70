"""The present results beside archives and folders: verdicts, what differs, what cannot be compared, and what a CI makes
of it."""

import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from throughline import commands
from throughline.archive import compare, contents, regress
from throughline.files import UserError
from throughline.records import Compared, read_compared
from throughline.report.render import compared as shown
from throughline.report.render.page import write_comparison
from throughline.study.result_sections import Compare
from unit.archive.test_archive import KEPT, RUN, packed, read

SUMMARIES = [Path("results/bert/bz32_fp32.json"), Path("results/bert/bz64_fp16.json")]
STEADY = [0.998, 1.0, 1.002]
"""Noise of the repeats in these tests, as shares: the real ones lie further apart."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results that the archive was made from, as the present ones, with steady repeats."""
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    changed(lambda summary: steady(summary, 1.0))
    return tmp_path


def changed(change: Callable[[Any], object], paths: Sequence[Path] = SUMMARIES) -> None:
    """Change the present summaries."""
    for path in paths:
        summary = json.loads(path.read_text())
        change(summary)
        path.write_text(json.dumps(summary))


def same(summary: Any) -> None:
    """Change nothing."""


def steady(summary: Any, factor: float) -> Any:
    """Set the repeats of every cell to a multiple of its median, with little noise."""
    for series in summary["frameworks"].values():
        for cell in series.values():
            middle = cell["median_speed"] * factor
            cell |= {"values": [middle * share for share in STEADY], "median_speed": middle}
    return summary


def archive(name: str, change: Callable[[Any], object], more: Mapping[str, Any] | None = None) -> Path:
    """Write an archive whose summaries were changed, with digests that fit. more: further summaries."""
    files = read(KEPT)
    for path in SUMMARIES:
        summary = json.loads(path.read_text())
        change(summary)
        files[path.as_posix()] = json.dumps(summary).encode()
    told = json.loads(files[contents.NAME])
    for inner, value in (more or {}).items():
        files[inner] = value if isinstance(value, bytes) else json.dumps(value).encode()
        made = told["benchmarks"].setdefault(Path(inner).parent.name, {**told["benchmarks"]["bert"], "summaries": []})
        made["summaries"].append(inner)
    return packed(files | {contents.NAME: json.dumps(told).encode()}, Path(name))


def compared(*archives: Path) -> Compared:
    compare.compare(SUMMARIES, archives, Path("compare.json"))
    return read_compared("compare.json")


@pytest.mark.parametrize(
    ("factor", "verdict", "by", "status"),
    [
        (1.1, "slower", "2%", 1),
        (1.1, "slower", "15%", 0),
        (1.0, "no difference", "2%", 0),
        (1.004, "no difference", "2%", 0),
        (0.9, "faster", "0.02", 0),
        (1.0204, "slower", "2%", 2),  # the interval reaches to both sides of the limit
    ],
)
def test_verdicts_and_what_regress_decides_for_a_ci(
    factor: float,
    verdict: str,
    by: str,
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = compared(archive("old.zip", lambda summary: steady(summary, factor)))
    (old,) = found.archives
    assert [cell.verdict for cell in old.cells] == [verdict] * 4
    assert all(cell.ratio == pytest.approx(1 / factor) for cell in old.cells)
    assert all(cell.words == f"{verdict} in these runs" for cell in old.cells)  # there are no A/A runs
    assert old.differs == [] and old.only_here == old.only_there == []
    assert found.machines == []  # the devices are the same
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


def test_regress_says_what_it_expects_in_place_of_an_archive(capsys: pytest.CaptureFixture[str]) -> None:
    archive("old.zip", lambda summary: None)
    assert ended("old.zip") == 2
    said = capsys.readouterr().err
    assert "old.zip is an archive" in said and "--config 'compare={against: [old.zip]}'" in said


def test_what_differs_is_named_in_the_order_in_which_it_matters() -> None:
    def older(summary: Any) -> None:
        summary["environment"]["torch"] |= {"driver": "535.1", "framework": {"torch": "2.12.0"}}
        summary["environment"]["torch"]["gpus"] = [{"power_limit_w": 500.0}, {"power_limit_w": 700.0}]
        summary["device"]["name"] = "Another Processor"
        summary["options"]["compile"] = True
        if summary["precision"] == "fp16":
            summary["environment"]["torch"]["kernel"] = "5.4.0"

    now = {"driver": "570.2", "gpus": [{"power_limit_w": 700.0}] * 2}
    changed(lambda summary: summary["environment"]["torch"].update(now))
    found = compared(archive("old.zip", older))
    (old,) = found.archives
    order = ["device.name", "gpu power limit w", "driver", "framework.torch", "options.compile"]
    assert [fact.name for fact in old.differs] == order and old.differs[3].there == "2.12.0"
    assert str(old.differs[1]) == "gpu power limit w: 700.0 here, [500.0, 700.0] there"
    assert [[fact.name for fact in cell.differs] for cell in old.cells] == [[], [], ["kernel"], ["kernel"]]
    assert [cell.machine for cell in found.machines] == ["here", "old.zip"] * 4


def test_two_offers_of_the_same_device_are_one_table() -> None:
    """Each machine has the price with which it was measured."""
    stated = {"currency": "USD", "price_source": "an offer"}

    def priced(summary: Any, hour: float) -> None:
        for cell in summary["frameworks"]["torch"].values():
            cell["cost"] |= {"price_per_device_hour": hour, **stated}

    changed(lambda summary: priced(summary, 2.0))
    (here, there, *_) = compared(archive("other.zip", lambda summary: priced(summary, 3.0))).machines
    assert (here.machine, here.price_per_device_hour) == ("here", 2.0)
    assert (there.machine, there.price_per_device_hour, there.name) == ("other.zip", 3.0, here.name)
    assert compared(archive("same.zip", same)).machines == []


def unequal(summary: Any) -> None:
    check = {"verdict": "different", "largest_difference": 1.0, "tolerance": 1e-5, "reason": "its loss is off"}
    summary["equivalence"] = {"torch": check | {"covers": []}}


def simulated(summary: Any) -> None:
    for cell in summary["frameworks"]["torch"].values():
        cell["simulated"] = True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda summary: summary.update(sequence_length=64), "parameters is"),
        (unequal, "does not compute what the others do"),
        (simulated, "the nodes of one side are simulated"),
    ],
)
def test_what_cannot_be_compared_says_why(change: Callable[[Any], None], why: str) -> None:
    cells = compared(archive("old.zip", change)).archives[0].cells
    assert {cell.verdict for cell in cells} == {"not comparable"}
    assert all(why in cell.because for cell in cells)


def test_runs_of_another_protocol_are_not_compared(here: Path) -> None:
    old = archive("old.zip", same)
    changed(lambda run: run["spec"].update(protocol=4), [Path("results/bert/bz32_fp32/torch/1n1g/run1.json")])
    cells = compared(old).archives[0].cells
    assert [cell.verdict for cell in cells] == ["not comparable"] + ["no difference"] * 3
    assert "measured in different ways (protocol 4 here, 3 there)" in cells[0].because


def test_a_name_in_a_summary_leads_nowhere_else(here: Path) -> None:
    def elsewhere(summary: Any) -> None:
        for cell in summary["frameworks"]["torch"].values():
            cell["logs"] = [f"{here}/elsewhere.log"]

    Path("elsewhere.json").write_text('{"spec": {"protocol": 9}}')
    cells = compared(archive("old.zip", elsewhere)).archives[0].cells
    assert [cell.verdict for cell in cells] == ["no difference"] * 4


def test_what_cannot_be_compared_at_all_is_an_error() -> None:
    def renamed(summary: Any) -> None:
        for part in ("frameworks", "environment", "baselines"):
            summary[part] = {"jax": summary[part]["torch"]}

    with pytest.raises(UserError, match=r"no cell of old\.zip is also in the present results"):
        compared(archive("old.zip", renamed))
    path = packed(read(KEPT) | {f"{RUN}.log": b"another log"}, Path("bad.zip"), honest=True)
    with pytest.raises(UserError, match=r"bad\.zip is damaged or was changed"):
        compared(path)
    with pytest.raises(UserError, match=r"other/bad\.zip are both called bad\.zip"):
        compared(path, Path("other/bad.zip"))
    with pytest.raises(UserError, match="names no archive and no folder"):
        Compare().some()
    with pytest.raises(UserError, match=r"none\.zip, which does not exist"):
        Compare(against=["none.zip"]).there()


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
    old, faster = archive("old.zip", same), archive("faster.zip", lambda summary: steady(summary, 1.1))
    changed(lose, SUMMARIES[:1])
    found = compared(old)
    assert found.archives[0].only_there == ["bert bz32 fp32 torch 1n2g"] and len(found.archives[0].cells) == 3
    assert ended("compare.json") == 2
    printed = capsys.readouterr().out
    assert "bert bz32 fp32 torch 1n2g against old.zip: cannot be told" in printed and why in printed
    assert "4 compared: 3 fine, 1 cannot be told" in printed
    (told,) = [text for text in shown.remarks(found, found.archives[0]) if text.startswith("Only there")]
    assert ("out of memory" in told) == (lose is failed)
    compared(faster)
    assert ended("compare.json") == 1  # a slower cell outweighs a lost one


def test_a_comparison_that_cannot_be_read_is_no_slower_cell(capsys: pytest.CaptureFixture[str]) -> None:
    compared(archive("old.zip", same))
    Path("broken.json").write_text("{")
    Path("folder.json").mkdir()
    for words in (["none.json"], ["broken.json"], ["folder.json"], ["compare.json", "--by", "much"]):
        assert ended(*words) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_a_summary_that_cannot_be_read_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def newer(summary: Any) -> None:
        if summary["precision"] == "fp32":
            summary["schema"] = 99

    deep = archive("deep.zip", same, {"results/deep/bz1_fp32.json": b"[" * 200_000 + b"]" * 200_000})
    found = compared(archive("old.zip", newer), archive("a.zip", same), deep)
    old, _, nested = found.archives
    assert "nested too deeply" in nested.unreadable[0] and len(nested.cells) == 4
    why = "results/bert/bz32_fp32.json of the archive cannot be read: it has schema 99; this version"
    assert old.unreadable[0].startswith(why)
    assert old.only_here == ["bert bz32 fp32 torch 1n1g", "bert bz32 fp32 torch 1n2g"]
    assert any(f"Left out: {why}" in told for told in shown.remarks(found, old))
    (section,) = shown.sections(found)
    assert any(f"old.zip: {why}" in told for told in section["remarks"])
    assert ended("compare.json") == 2
    assert f"a summary against old.zip: cannot be told: {why}" in capsys.readouterr().out


def noisy(summary: Any) -> None:
    for cell in summary["frameworks"]["torch"].values():
        cell["values"] = [value * 1.05 * share for value, share in zip(cell["values"], (0.9, 1.0, 1.1), strict=True)]


def once(summary: Any) -> None:
    for cell in summary["frameworks"]["torch"].values():
        cell["values"] = [cell["median_speed"]]


@pytest.mark.parametrize("change", [noisy, once])
def test_what_the_repeats_do_not_decide_cannot_be_told(change: Callable[[Any], None]) -> None:
    found = compared(archive("old.zip", change))
    assert {cell.verdict for cell in found.archives[0].cells} == {"inconclusive"}
    judged = regress.judge(found, 0.02)
    assert {one.decision for one in judged} == {"cannot be told"}
    assert regress.status(judged) == regress.status([]) == 2


def test_runs_of_an_archive_that_measure_one_thing_twice_hide_a_difference() -> None:
    summary = steady(json.loads(SUMMARIES[0].read_text()), 1.1) | {"benchmark": "bert__aa"}
    again = {f"results/bert__aa/{SUMMARIES[0].name}": summary}
    found = compared(archive("old.zip", lambda summary: steady(summary, 1.05), again)).archives[0]
    assert [cell.words for cell in found.cells] == ["inconclusive"] * 4  # they judge other precisions too
    assert all(cell.smallest_difference == pytest.approx(1.1 / 1.05 - 1) for cell in found.cells)


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0.0, "here: the same runs."),
        (0.0001, "here: in turn."),
        (0.5, "here: 12.0 h apart."),
        (35.0, "here: 35 days apart."),
    ],
)
def test_how_far_apart_two_sides_are(days: float, words: str) -> None:
    def dated(summary: Any, more: float = 0.0) -> None:
        """Let a repeat take ten seconds, one every minute."""
        begin = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=more)
        for cell in summary["frameworks"]["torch"].values():
            starts = [begin + timedelta(minutes=number) for number in range(3)]
            cell["starts"] = [start.isoformat() for start in starts]
            cell |= {"started": cell["starts"][0], "ended": (starts[-1] + timedelta(seconds=10)).isoformat()}

    old = archive("old.zip", dated)
    changed(lambda summary: dated(summary, days))
    found = compared(old)
    told = list(shown.remarks(found, found.archives[0]))
    assert any(words in text for text in told), told
    assert any(text.startswith("Version 0.4.0a1 of Throughline made old.zip; version ") for text in told)


def test_the_page_and_the_tables() -> None:
    """Two archives have their cells on the page. More are a history: a table of what changed, and one plot."""

    def older(summary: Any) -> None:
        steady(summary, 0.5)
        summary["environment"]["torch"]["driver"] = "535.1"
        for cell in summary["frameworks"]["torch"].values():
            cell |= {"started": "2025-03-04T00:00:00Z", "ended": "2025-03-04T01:00:00Z"}

    changed(lambda summary: summary["environment"]["torch"].update(driver="570.2"))
    archives = [archive("first.zip", older), *(archive(f"{name}.zip", same) for name in "ab")]
    compared(archives[1])
    shown.write(Path("compare.json"), Path("compare.csv"), Path("machines.csv"), Path("kinds.csv"))
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
    assert [row[0] for row in rows] == ["first.zip", "a.zip", "b.zip", "here"]
    assert rows[0][1:3] == ["2025-03-04", "4 faster in these runs"]
    assert [row[4] for row in rows] == ["driver: 570.2 here, 535.1 there", "", "", ""]
    (plot,) = section["plots"]
    assert plot.count("+100.0 %") == 4


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
    compare.compare([], [folder(), archive("old.zip", same)], Path("compare.json"))
    found = read_compared("compare.json")
    assert [cell.machine for cell in found.machines] == ["there", "old.zip"] * 4
    assert not any(one.cells for one in found.archives)
    write_comparison(Path("compare.json"), Path("compare.html"))
    page = Path("compare.html").read_text()
    assert "All machines" in page and "Compared with" not in page


def replaced(path: str, old: str, new: str) -> Callable[[Path], object]:
    """Return a function that changes a text in a file of a folder."""
    return lambda root: (root / path).write_text((root / path).read_text().replace(old, new))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda root: shutil.move(root / "bert", root.parent / "bert"), "not the folder around it"),
        (lambda root: shutil.move(root / "bert", root / "gpt"), "gpt/bz32_fp32.json is the summary of other runs"),
        (replaced("bert/bz32_fp32.json", '"schema": 3', '"schema": 99'), "this workflow only reads the folder"),
        (lambda root: changed(once, [root / "bert/bz32_fp32.json"]), "does not fit its record"),
        (replaced("bert/bz32_fp32/torch/1n1g/run1.json", '"ok"', '"fine"'), "is not a valid RunRecord"),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_clear_error(damage: Callable[[Path], object], told: str) -> None:
    damage(folder())
    with pytest.raises(UserError) as caught:
        compared(Path("there/results"))
    assert told in str(caught.value) and "compare.against: there/results" in str(caught.value)
    with pytest.raises(UserError, match="in which this workflow writes its own results"):
        compared(Path("results"))

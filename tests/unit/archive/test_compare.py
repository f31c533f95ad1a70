"""The present results beside archives: verdicts, what differs, what cannot be compared, and what a CI makes of it."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline import commands
from throughline.archive import compare, contents, regress
from throughline.files import UserError
from throughline.records import Compared, read_compared
from throughline.report.render import archives as shown
from throughline.report.render.page import write_comparison
from throughline.study.compare_section import Compare

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


def archive(name: str, change: Callable[[Any], object]) -> Path:
    """Write an archive whose summaries were changed, with digests that fit."""
    with zipfile.ZipFile(KEPT) as kept:
        files = {name: kept.read(name) for name in kept.namelist()}
    for path in SUMMARIES:
        summary = json.loads(path.read_text())
        change(summary)
        files[path.as_posix()] = json.dumps(summary).encode()
    told = json.loads(files.pop(contents.NAME))
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
    told = shown.remarks(read_compared("compare.json"), found)
    assert not [text for text in told if "Break-even" in text]  # the devices are the same


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
    found = read_compared("compare.json")
    (even,) = [text for text in shown.remarks(found, found.archives[0]) if text.startswith("Break-even price")]
    assert "a device hour here is worth" in even and "torch 1n2g" in even
    order = ["device.name", "gpu power limit w", "driver", "framework.torch", "options.compile", "kernel"]
    assert [text.partition(":")[0] for text in differs] == order
    assert differs[1] == "gpu power limit w: 700.0 here, [500.0, 700.0] there"
    assert differs[3].endswith("2.12.0 there")


def test_a_difference_of_one_cell_stands_with_it() -> None:
    def changed(summary: Any) -> None:
        if summary["precision"] == "fp16":
            summary["environment"]["torch"]["kernel"] = "5.4.0"

    found = compared(archive("old.zip", changed)).archives[0]
    assert found.differs == []
    assert [len(cell.differs) for cell in found.cells] == [0, 0, 1, 1]


def longer(summary: Any) -> None:
    summary["sequence"] = 64


def unequal(summary: Any) -> None:
    proof = {"verdict": "different", "largest_difference": 1.0, "tolerance": 1e-5, "reason": "its loss is off"}
    summary["mathematics"] = {"torch": proof | {"covers": []}}


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


def test_cells_that_one_side_lacks_are_named() -> None:
    def fewer(summary: Any) -> None:
        del summary["frameworks"]["torch"]["1n2g"]

    found = compared(archive("old.zip", fewer)).archives[0]
    assert found.only_here == ["bert bz32 fp32 torch 1n2g", "bert bz64 fp16 torch 1n2g"]
    assert len(found.cells) == 2


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


def test_the_section_of_the_configuration() -> None:
    with pytest.raises(UserError, match="names no archive"):
        Compare().some()
    with pytest.raises(UserError, match=r"none\.zip, which does not exist"):
        Compare(against=["none.zip"]).there()


@pytest.mark.parametrize(
    ("factor", "by", "status"), [(1.1, "2%", 1), (1.1, "15%", 0), (1.0, "2%", 0), (0.9, "0.02", 0)]
)
def test_regress_decides_for_a_ci(
    factor: float, by: str, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(archive("old.zip", lambda summary: steady(summary, factor)))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(SystemExit) as ended:
        commands.main(["regress", "compare.json", "--by", by])
    assert ended.value.code == status
    printed = capsys.readouterr().out
    assert printed.count("title=Training speed::") == 4
    assert ("::error" in printed) == (status == 1)


def test_what_has_no_test_cannot_be_told() -> None:
    def once(summary: Any) -> None:
        for cell in summary["frameworks"]["torch"].values():
            cell["values"] = [cell["median_speed"]]

    judged = regress.judge(compared(archive("old.zip", once)), 0.02)
    assert regress.status(judged) == 2 and regress.status([]) == 2
    with pytest.raises(UserError, match="is no share"):
        regress.share("much")


def test_the_page_and_the_table(here: Path) -> None:
    archives = [archive(f"{name}.zip", lambda summary: None) for name in ("one", "two", "three")]
    compared(archives[0])
    shown.write(Path("compare.json"), Path("compare.csv"))
    assert Path("compare.csv").read_text().count("\n") == 5
    write_comparison(Path("compare.json"), Path("compare.html"))
    page = Path("compare.html").read_text()
    assert "Compared with one.zip" in page and "no difference in these runs" in page
    compared(*archives)
    write_comparison(Path("compare.json"), Path("compare.html"))
    page = Path("compare.html").read_text()
    assert page.count('<svg class="history"') == 4 and "Compared with" not in page

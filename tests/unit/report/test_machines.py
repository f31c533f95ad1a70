"""Two machines on one page: their cells in one table, one set of prices, and a best value that the repeats decide."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from report_fixture import write_series
from throughline.files import UserError
from throughline.records import Summary, other_machine, read_summary
from throughline.report.analysis import machines, summary
from throughline.report.analysis.break_even import break_evens
from throughline.report.analysis.cells import groups
from throughline.report.render import machines as rendered
from throughline.study.result_sections import Price

A100 = {"kind": "cuda", "name": "NVIDIA A100-PCIE-40GB", "count": 4, "fp16_native": True}
PRICES = {"V100": Price(per_hour=5.3, currency="CNY"), "A100": Price(per_hour=9.3, currency="CNY")}


NOT_NEEDED = {"largest_difference": 1.0, "tolerance": 0.001, "covers": []}


def measure(root: Path, speeds: dict[str, list[float]], **changes: Any) -> Path:
    """Write records and a summary as a finished workflow leaves them; return the summary."""
    made, remarks = root / "bert/bz32_fp32.json", changes.pop("terms", None)
    summary.write(write_series(root, speeds, **changes), made, 3, terms=remarks)
    return made


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The results of this machine (V100) and of another one (A100), each with a benchmark `bert`."""
    here, other = tmp_path / "here/results", tmp_path / "other/results"
    measure(
        here, {"1n1g": [100.0, 101.0, 99.5], "1n2g": [180.0, 181.0, 179.0]}, terms=summary.Terms(total_samples=36_000)
    )
    measure(other, {"1n1g": [210.0, 212.0, 209.0]}, device_found=A100)
    return here, other


def compared(here: Path, other: Path, prices: dict[str, Price] = PRICES) -> list[machines.Compared]:
    own = [read_summary(path) for path in sorted(here.glob("*/bz*.json"))]
    found = {machines.HERE: groups(own), "a100": groups(other_machine.read("a100", other).values())}
    return machines.compare(found, prices)


def told(found: list[machines.Compared]) -> list[tuple[str, str, str]]:
    return [(option.machine, str(option.side.row.topology), option.best) for same in found for option in same.options]


def test_one_table_has_the_cells_of_both_machines(folders: tuple[Path, Path], tmp_path: Path) -> None:
    found = compared(*folders)
    rendered.write(found, tmp_path / "machines.csv")
    with (tmp_path / "machines.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["machine"], row["topology"], row["best_value"]) for row in rows] == [
        ("this machine", "1n1g", ""), ("this machine", "1n2g", ""), ("a100", "1n1g", "yes"),
    ]  # fmt: skip
    assert [float(row["price_per_million_samples"]) for row in rows] == pytest.approx(
        [5.3 / 3600 / 100 * 1e6, 2 * 5.3 / 3600 / 180 * 1e6, 9.3 / 3600 / 210 * 1e6]
    )
    assert float(rows[2]["task_hours"]) == pytest.approx(36_000 / 210 / 3600)  # the task of the same benchmark here
    text = (tmp_path / "machines.md").read_text()
    assert "bert: best value, samples for 1 CNY: a100, torch 1n1g, fp32, batch 32: 81,290" in text
    assert "prices.A100 of the configuration" in text


def test_no_best_value_without_a_verdict_of_the_repeats(folders: tuple[Path, Path]) -> None:
    """Two price ratios that the repeats do not tell apart, two currencies, and other data: no cell is called best."""
    here, other = folders
    measure(other, {"1n1g": [170.0, 176.0, 181.0]}, device_found=A100)
    assert {best for _, topology, best in told(compared(here, other)) if topology == "1n1g"} == {"inconclusive"}
    euros = PRICES | {"A100": Price(per_hour=1.0, currency="EUR")}
    (mixed,) = compared(here, other, euros)
    assert not any(option.best for option in mixed.options) and mixed.why == "prices are in CNY and EUR"
    for file in other.rglob("run*.json"):
        file.write_text(file.read_text().replace("ab" * 32, "cd" * 32))
    summary.write(sorted(other.rglob("run*.json")), other / "bert/bz32_fp32.json", 3)
    apart = compared(here, other)
    assert [{option.machine for option in same.options} for same in apart] == [{"this machine"}, {"a100"}]
    assert "train other work" in " ".join(rendered.table(apart).notes)


def test_frameworks_with_other_mathematics_are_no_best_value(folders: tuple[Path, Path]) -> None:
    here, other = folders
    path = other / "bert/bz32_fp32.json"
    value = json.loads(path.read_text())
    value["equivalence"] = {"torch": {"verdict": "different", "reason": "the losses differ", **NOT_NEEDED}}
    path.write_text(json.dumps(value))
    assert [best for _, _, best in told(compared(here, other))] == ["yes", "", ""]


def refused(folder: Path, own: Path = Path("results")) -> str:
    with pytest.raises(UserError) as caught:
        other_machine.read("a100", folder, own)
    return str(caught.value)


def test_a_folder_that_cannot_be_used_is_a_clear_error(folders: tuple[Path, Path], tmp_path: Path) -> None:
    here, other = folders
    assert "machines.a100: no/results is no folder of results\n  why:  there is no such folder" in refused(
        Path("no/results")
    )
    assert "has no results" in refused(tmp_path) and "not the folder around it" in refused(tmp_path)
    assert "in which this workflow writes its own results" in refused(here, here)
    record = next(iter(sorted(other.rglob("run2.json"))))
    kept = record.read_text()
    record.write_text(kept.replace('"samples_per_s": 212.0', '"samples_per_s": 312.0'))
    assert "is not a valid RunRecord" in refused(other) and str(record) in refused(other)
    record.write_text(kept)
    path = other / "bert/bz32_fp32.json"
    whole = path.read_text()
    path.write_text(whole.replace("212.0", "211.5"))
    assert "does not fit its record" in refused(other) and "the summary says 211.5" in refused(other)
    path.write_text(whole.replace('"schema": 3', '"schema": 99'))
    assert "is of a newer version" in refused(other) and "this workflow only reads the folder" in refused(other)
    path.write_text(whole)
    shutil.move(other / "bert", other / "gpt")
    assert "gpt/bz32_fp32.json is the summary of other runs" in refused(other)


def test_summaries_alone_are_enough(folders: tuple[Path, Path]) -> None:
    _, other = folders
    shutil.rmtree(other / "bert/bz32_fp32")
    (found,) = other_machine.read("a100", other).values()
    assert isinstance(found, Summary) and len(groups([found])) == 1


def test_the_break_even_price_has_the_interval_of_the_ratio(folders: tuple[Path, Path]) -> None:
    (found,) = break_evens(compared(*folders))
    assert (found.base.machine, found.other.machine) == ("this machine", "a100")
    assert found.tested and found.tested.low < 2.1 < found.tested.high
    assert found.ratio == pytest.approx((210 * 212 * 209 / 100 / 101 / 99.5) ** (1 / 3))
    text = rendered.break_even(found)
    assert f"its break-even price is {5.3 * found.ratio:.2f} ({5.3 * found.tested.low:.2f} to" in text
    assert "its price, 9.3 CNY, is below it" in text
    dear = {**PRICES, "A100": Price(per_hour=12.0, currency="CNY")}
    assert [one.verdict for one in break_evens(compared(*folders, dear))] == ["above"]
    unknown = {"A100": Price(per_hour=12.0, currency="EUR")}
    assert [one.verdict for one in break_evens(compared(*folders, unknown))] == [None]

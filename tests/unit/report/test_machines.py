"""Two machines in one table: one set of prices, a best value that the repeats decide, and the break-even price."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import read_csv, write_series
from throughline.records import read_summary
from throughline.records.compared import Compared, MachineCell
from throughline.report.analysis import machines, summary
from throughline.report.analysis.cells import groups
from throughline.report.render import compared as shown
from throughline.study.result_sections import Price

A100 = {"kind": "cuda", "name": "NVIDIA A100-PCIE-40GB", "count": 4, "fp16_native": True}
PRICES = {"V100": Price(per_hour=5.3, currency="CNY"), "A100": Price(per_hour=9.3, currency="CNY")}


def measure(root: Path, speeds: dict[str, list[float]], **changes: Any) -> None:
    """Write records and a summary as a finished workflow leaves them."""
    terms = changes.pop("terms", None)
    summary.write(write_series(root, speeds, **changes), root / "bert/bz32_fp32.json", 3, terms=terms)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The results of this machine (V100) and of another one (A100), each with a benchmark `bert`."""
    here, other = tmp_path / "here", tmp_path / "other"
    speeds = {"1n1g": [100.0, 101.0, 99.5], "1n2g": [180.0, 181.0, 179.0]}
    measure(here, speeds, terms=summary.Terms(total_samples=36_000))
    measure(other, {"1n1g": [210.0, 212.0, 209.0]}, device_found=A100)
    return here, other


def compared(here: Path, other: Path, **prices: Price) -> list[MachineCell]:
    read = {name: read_summary(folder / "bert/bz32_fp32.json") for name, folder in (("here", here), ("a100", other))}
    return machines.compare({name: groups([one]) for name, one in read.items()}, PRICES | prices)


def test_one_table_has_the_cells_of_both_machines(folders: tuple[Path, Path], tmp_path: Path) -> None:
    found = Compared(schema_=3, started=None, archives=[], machines=compared(*folders))
    (tmp_path / "compare.json").write_text(found.model_dump_json(by_alias=True))
    shown.write(tmp_path / "compare.json", tmp_path / "cells.csv", tmp_path / "machines.csv", tmp_path / "kinds.csv")
    rows = read_csv(tmp_path / "machines.csv")
    assert [(row["machine"], row["topology"], row["best_value"]) for row in rows] == [
        ("here", "1n1g", ""), ("a100", "1n1g", "yes"), ("here", "1n2g", ""),
    ]  # fmt: skip
    assert [float(row["price_per_million_samples"]) for row in rows] == pytest.approx(
        [5.3 / 3600 / 100 * 1e6, 9.3 / 3600 / 210 * 1e6, 2 * 5.3 / 3600 / 180 * 1e6]
    )
    assert float(rows[1]["samples_per_currency_unit"]) == pytest.approx(210 * 3600 / 9.3)
    assert float(rows[1]["task_hours"]) == pytest.approx(36_000 / 210 / 3600)  # the task of the same benchmark here
    (section,) = shown.sections(found)
    assert ("price", "prices.A100 of the configuration") in section["table"].facts


def test_the_break_even_price_has_the_interval_of_the_ratio(folders: tuple[Path, Path]) -> None:
    here, other, larger = compared(*folders)
    assert other.worth and other.worth_at_least and other.worth_at_most and not (here.worth or larger.worth)
    assert other.break_even_with == "here (Tesla V100-SXM2-16GB): torch 1n1g, fp32, batch 32"
    assert other.worth == pytest.approx((210 * 212 * 209 / 100 / 101 / 99.5) ** (1 / 3))
    assert other.worth_at_least < 2.1 < other.worth_at_most and other.price_is == "below"
    assert (other.break_even_price, other.break_even_at_least) == (5.3 * other.worth, 5.3 * other.worth_at_least)
    for currency, price_is in (("CNY", "above"), ("EUR", None)):
        assert compared(*folders, A100=Price(per_hour=12.0, currency=currency))[1].price_is == price_is


def test_no_best_value_without_a_verdict_of_the_repeats(folders: tuple[Path, Path]) -> None:
    """Repeats that do not tell two prices apart, two currencies, and other mathematics."""
    here, other = folders
    path = other / "bert/bz32_fp32.json"
    value = json.loads(path.read_text())
    check = {"verdict": "different", "reason": "the losses differ", "largest_difference": 1.0, "tolerance": 0.001}
    path.write_text(json.dumps(value | {"equivalence": {"torch": check | {"covers": []}}}))
    assert [cell.best_value for cell in compared(here, other)] == ["yes", "", ""]
    measure(other, {"1n1g": [170.0, 176.0, 181.0]}, device_found=A100)
    found = compared(here, other)
    assert [cell.best_value for cell in found if cell.topology == "1n1g"] == ["inconclusive"] * 2
    mixed = compared(here, other, A100=Price(per_hour=1.0, currency="EUR"))
    assert {(cell.best_value, cell.reasons["best_value"]) for cell in mixed} == {(None, "prices are in CNY and EUR")}


def test_other_data_are_other_work(folders: tuple[Path, Path]) -> None:
    here, other = folders
    for file in other.rglob("run*.json"):
        file.write_text(file.read_text().replace("ab" * 32, "cd" * 32))
    summary.write(sorted(other.rglob("run*.json")), other / "bert/bz32_fp32.json", 3)
    assert compared(here, other) == []

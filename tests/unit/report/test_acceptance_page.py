"""The page and the table of an acceptance: the verdict first, the slow place named, nothing rounded in the CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from throughline.acceptance import verdict
from throughline.records.acceptance import Acceptance
from throughline.report.render import acceptance as shown
from throughline.report.render import page
from throughline.study.acceptance import Measurement
from unit.acceptance import fleets


@pytest.fixture
def slow(tmp_path: Path) -> Acceptance:
    """An acceptance in which one GPU multiplies slowly."""

    def speed(measured: Measurement) -> float:
        return 0.93 if str(measured.place) == "node 3, GPU 1" and measured.what == "matmul" else 1.0

    made = fleets.asked()
    fleets.write(made, tmp_path, speed)
    return verdict.judge(made, tmp_path)


def test_the_verdict_stands_first(slow: Acceptance, tmp_path: Path) -> None:
    page.write_acceptance(slow, tmp_path / "acceptance.html")
    html = (tmp_path / "acceptance.html").read_text(encoding="utf-8")
    assert "<h1>Is every node as fast as its peers?</h1>" in html
    assert html.index(slow.summary) < html.index("All places")
    assert "node 3, GPU 1" in html and "Nothing measured yet" not in html


def test_a_place_has_its_figures_unrounded(slow: Acceptance, tmp_path: Path) -> None:
    shown.write(slow, tmp_path / "standings.csv")
    with (tmp_path / "standings.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    (found,) = [row for row in rows if row["slow"] == "slow"]
    assert (found["place"], found["figure"], found["unit"]) == ("node 3, GPU 1", "matrix product", "TFLOPS")
    figure = next(one for one in slow.figures if one.what == "matmul" and one.kind == "device")
    median = next(one.median for one in figure.standings if one.place.words == "node 3, GPU 1")
    assert float(found["median"]) == median
    assert {row["size"] for row in rows} <= {"", "8192", "1024", "1048576", "1073741824"}
    assert len(rows) == sum(len(one.standings) for one in slow.figures)
    assert {row["unit"] for row in rows if row["figure"] == "training step"} == {"samples/s"}


def test_links_are_a_matrix_that_is_the_same_both_ways(slow: Acceptance) -> None:
    matrix = shown.links(slow)
    assert matrix
    texts = [[entry.text for entry in line.entries][1:] for line in matrix.lines]
    assert texts == [list(column) for column in zip(*texts, strict=True)]
    assert all(texts[node][node] == "" for node in range(len(texts)))

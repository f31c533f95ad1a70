"""The page and the table of an acceptance: the verdict first, the slow place named, nothing rounded in the CSV."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from throughline.acceptance import verdict
from throughline.records.acceptance import Acceptance
from throughline.report.render import acceptance as shown
from throughline.report.render import links, page
from throughline.study.accept_section import Expectation
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
    shown.write(slow, tmp_path / "standings.csv", tmp_path / "pairs.csv")
    with (tmp_path / "standings.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    (found,) = [row for row in rows if row["slow"] == "slow"]
    assert (found["place"], found["figure"], found["unit"]) == ("node 3, GPU 1", "matrix product", "TFLOPS")
    figure = next(one for one in slow.figures if one.what == "matmul" and one.kind == "device")
    median = next(one.median for one in figure.standings if str(one.place) == "node 3, GPU 1")
    assert float(found["median"]) == median
    assert {row["size"] for row in rows} <= {"", "8192", "1024", "1048576", "1073741824"}
    assert len(rows) == sum(len(one.standings) for one in slow.figures)
    assert {row["unit"] for row in rows if row["figure"] == "training step"} == {"samples/s"}


@pytest.fixture
def slow_pair(tmp_path: Path) -> Acceptance:
    """An acceptance in which one link has half of its bandwidth, and one network's speed is known."""

    def speed(measured: Measurement) -> float:
        return 0.5 if measured.place.nodes == (1, 3) else 1.0

    expected = Expectation(what="all-reduce", at="pair", size=2**20, value=200, unit="GB/s", source="the vendor")
    made = fleets.asked(published=[expected])
    fleets.write(made, tmp_path, speed)
    return verdict.judge(made, tmp_path)


def test_every_pair_has_its_bandwidth_by_size_its_latency_and_its_loss(slow_pair: Acceptance, tmp_path: Path) -> None:
    shown.write(slow_pair, tmp_path / "standings.csv", tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 6 * 3, "6 pairs of 4 nodes at 3 sizes"
    of_pair = {int(row["message_bytes"]): row for row in rows if (row["first_node"], row["second_node"]) == ("1", "3")}
    assert {size: row["verdict"] for size, row in of_pair.items()} == {
        2**10: "slow",
        2**20: "not judged",
        2**30: "slow",
    }
    assert float(of_pair[2**30]["distance_from_others"]) == pytest.approx(-0.5, abs=0.01)
    # 4 ranks: bus bandwidth = bytes / seconds * 2 * 3 / 4
    assert float(of_pair[2**10]["time_us"]) == pytest.approx(1.5 * (2**10 + 2**20) / 150e3, rel=0.02)
    assert (of_pair[2**20]["expected_gb_per_s"], of_pair[2**20]["expected_source"]) == ("200.0", "the vendor")
    assert float(of_pair[2**20]["share_of_expected"]) == pytest.approx(75 / 200, rel=0.02)
    assert of_pair[2**30]["expected_gb_per_s"] == ""


def test_the_page_draws_the_links_as_a_matrix(slow_pair: Acceptance) -> None:
    section = links.section(slow_pair)
    assert section
    (drawn,) = section["plots"]
    assert len(re.findall(r">150\.\d<", drawn)) == 2 and len(re.findall(r">\d+\.\d<", drawn)) == 12
    assert "slow: nodes 1 and 3" in drawn
    assert [line.entries[0].text for line in section["table"].lines] == ["1,024", "1,048,576", "1,073,741,824"]
    assert section["table"].lines[1].entries[2].text == "50 %", "half of the largest message's bandwidth"
    assert "between nodes 1 and 3 (the slowest)" in section["remarks"][-1]


def test_without_pairs_there_are_no_links(slow: Acceptance, tmp_path: Path) -> None:
    alone = slow.model_copy(update={"figures": [one for one in slow.figures if one.kind != "pair"]})
    assert links.section(alone) is None
    shown.write(alone, tmp_path / "standings.csv", tmp_path / "pairs.csv")
    assert (tmp_path / "pairs.csv").read_text().startswith("first_node,second_node,message_bytes,")

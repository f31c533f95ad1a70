"""The page and the table of an acceptance: the verdict first, the slow place named, nothing rounded in the CSV."""

import re
from pathlib import Path

import pytest

from report_fixture import read_csv
from throughline.records.acceptance import Acceptance
from throughline.report.render import acceptance as shown
from throughline.report.render import page
from throughline.study.accept_section import Expectation
from unit.acceptance import fleets
from unit.acceptance.fleets import all_of, judged, slow_pairs


@pytest.fixture
def slow(tmp_path: Path) -> Acceptance:
    """An acceptance in which one GPU multiplies slowly, and one link has half of its bandwidth."""
    expected = Expectation(what="all-reduce", at="pair", size=2**20, value=200, unit="GB/s", source="the vendor")
    speed = all_of(fleets.slow(3, 1, "matmul"), slow_pairs((1, 3)))
    return judged(tmp_path, fleets.asked(published=[expected]), speed=speed)


def written(acceptance: Acceptance, folder: Path) -> dict[str, list[dict[str, str]]]:
    """Write the tables, and return their rows."""
    shown.write(acceptance, folder / "standings.csv", folder / "pairs.csv")
    return {name: read_csv(folder / f"{name}.csv") for name in ("standings", "pairs")}


def test_the_verdict_stands_first(slow: Acceptance, tmp_path: Path) -> None:
    page.write_acceptance(slow, tmp_path / "acceptance.html")
    html = (tmp_path / "acceptance.html").read_text(encoding="utf-8")
    assert "<h1>Is every node as fast as its peers?</h1>" in html
    assert html.index(slow.summary) < html.index("All places")
    assert "node 3, GPU 1" in html and "Nothing measured yet" not in html


def test_a_place_has_its_figures_unrounded(slow: Acceptance, tmp_path: Path) -> None:
    rows = written(slow, tmp_path)["standings"]
    (row,) = [row for row in rows if row["slow"] == "slow" and row["figure"] == "matrix product"]
    assert (row["place"], row["unit"]) == ("node 3, GPU 1", "TFLOPS")
    figure = next(one for one in slow.figures if one.what == "matmul" and one.kind == "device")
    assert float(row["median"]) == next(one.median for one in figure.standings if one.slow)
    assert {row["size"] for row in rows} <= {"", "8192", "1024", "1048576", "1073741824"}
    assert len(rows) == sum(len(one.standings) for one in slow.figures)
    assert {row["unit"] for row in rows if row["figure"] == "training step"} == {"samples/s"}


def test_every_pair_has_its_bandwidth_by_size_its_latency_and_its_loss(slow: Acceptance, tmp_path: Path) -> None:
    rows = written(slow, tmp_path)["pairs"]
    assert len(rows) == 6 * 3, "6 pairs of 4 nodes at 3 sizes"
    of_pair = {int(row["message_bytes"]): row for row in rows if (row["first_node"], row["second_node"]) == ("1", "3")}
    verdicts = {size: row["verdict"] for size, row in of_pair.items()}
    assert verdicts == {2**10: "slow", 2**20: "not judged", 2**30: "slow"}
    assert float(of_pair[2**30]["distance_from_others"]) == pytest.approx(-0.5, abs=0.01)
    # 4 ranks: bus bandwidth = bytes / seconds * 2 * 3 / 4
    assert float(of_pair[2**10]["time_us"]) == pytest.approx(1.5 * (2**10 + 2**20) / 150e3, rel=0.02)
    assert (of_pair[2**20]["expected_gb_per_s"], of_pair[2**20]["expected_source"]) == ("200.0", "the vendor")
    assert float(of_pair[2**20]["share_of_expected"]) == pytest.approx(75 / 200, rel=0.02)
    assert of_pair[2**30]["expected_gb_per_s"] == ""


def test_the_page_draws_the_links_as_a_matrix(slow: Acceptance, tmp_path: Path) -> None:
    section = shown.links(slow)
    assert section
    (drawn,) = section["plots"]
    assert len(re.findall(r">1(?:49|50)\.\d<", drawn)) == 2 and len(re.findall(r">\d+\.\d<", drawn)) == 12
    assert [line.entries[0].text for line in section["table"].lines] == ["1,024", "1,048,576", "1,073,741,824"]
    assert section["table"].lines[1].entries[2].text == "50 %", "half of the largest message's bandwidth"
    assert section["table"].lines[-1].entries[3].text.endswith("(nodes 1 and 3)")
    alone = slow.model_copy(update={"figures": [one for one in slow.figures if one.kind != "pair"]})
    assert shown.links(alone) is None and written(alone, tmp_path)["pairs"] == []

"""Other figures that a workload declares are printed, with the names in its records."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from report_fixture import jitter, write_series
from throughline.report.analysis import cells, summary
from throughline.report.render import page
from throughline.report.render.page import Results
from throughline.report.topic import Scope
from throughline.report.topics import write_plots, write_tables


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """Results on two topologies of a workload whose samples are images, with a figure at two sizes."""
    root = tmp_path_factory.mktemp("images")
    one = {"name": "recall", "unit": "%", "better": "more", "at": 1, "value": 71.5}
    beside = {"unit": "images/s", "loss": None, "figures": [one, {**one, "at": 10, "value": None}]}
    paths = write_series(root, {"1n1g": jitter(100.0, 3), "1n2g": jitter(190.0, 3)}, beside=beside)
    return root, Results({root / "bert/bz32_fp32.json": summary.summarize(paths, repeats=3)})


def test_tables_and_plots(results: tuple[Path, Results]) -> None:
    root, found = results
    scope = Scope(cells.groups(found.present.values()))
    write_tables(scope, root / "tables")
    write_plots(scope, root / "plots")
    with (root / "tables/figures.csv").open(encoding="utf-8", newline="") as stream:
        first, _ = csv.DictReader(stream)
    assert (first["recall_1_%"], first["recall_10_%"], first["tokens_per_s"]) == ("71.5", "", "12800.0")
    assert "| 71.50 |" in (root / "tables/figures.md").read_text()
    assert "| framework | node_num | gpu_num | images/s |" in (root / "tables/throughput.md").read_text()
    assert not (root / "plots/bz32_fp32_split.svg").exists()


def test_page_in_its_own_words(results: tuple[Path, Results]) -> None:
    root, found = results
    text = page.render(found, [], None, root / "report.html")
    assert "190.0 images/s on 2 devices" in text and "samples/s" not in text
    assert 'id="benchmark-bert-figures"' in text and "at 1, %, more is better" in text

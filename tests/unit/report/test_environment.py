"""The table of environments: every fact of every cell, and what differs between them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from report_fixture import CPU, write_record, write_series
from throughline.report.analysis import cells, summary
from throughline.report.topic import Scope
from throughline.report.topics import write_tables


def table(tmp_path: Path, paths: list[Path], repeats: int = 3) -> list[dict[str, str]]:
    write_tables(Scope(cells.groups([summary.summarize(paths, repeats=repeats)])), tmp_path / "tables")
    with (tmp_path / "tables/environment.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_what_differs_between_cells_is_named(tmp_path: Path) -> None:
    libraries = {"torch": "2.14.0", "cuda": "13.1", "driver": "580.10"}
    paths = write_series(tmp_path, {"1n1g": [1.0], "1n2g": [2.0]})
    paths += write_series(tmp_path, {"1n1g": [1.5]}, framework="torch-horovod", framework_versions=libraries)
    rows = table(tmp_path, paths, 1)
    assert [row["differs_in"] for row in rows[:2]] == ["", ""]
    assert {"torch", "cuda"} <= set(rows[2]["differs_in"].split(", "))
    assert (rows[0]["torch"], rows[2]["torch"], rows[2]["cuda"]) == ("2.13.0", "2.14.0", "13.1")
    assert rows[2]["nccl"] == "" and "nccl" in rows[2]["differs_in"]
    assert rows[0]["device_name"] == "Tesla V100-SXM2-16GB" and rows[0]["OMP_NUM_THREADS"] == "1"


def test_repeats_of_another_environment_are_named(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [1.0, 1.0, 1.0]})
    other = json.loads(paths[0].read_text())
    other["environment"]["framework"]["cuda"] = "12.8"
    del other["environment"]["digest"]
    write_record(tmp_path, other)
    (row,) = table(tmp_path, paths)
    assert row["cuda"] == "13.0" and row["repeats_left_out"].startswith("1: ") and "12.8" in row["repeats_left_out"]
    assert CPU["name"] == row["cpu"]

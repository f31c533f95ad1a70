"""A workload that is added as add-a-workload.md says, by its folder alone, works from a preset to the report."""

import json
import shutil
from collections.abc import Callable

import pytest

from clones import ROOT, Clone

TOY = ROOT / "tests/toy_workload"


def test_a_folder_is_a_workload(clone: Callable[[str], Clone]) -> None:
    made = clone((TOY / "preset.yaml").read_text())
    shutil.copytree(TOY / "patches", made.path / "src/throughline/workloads/patches")
    made.made("results/report.html")
    # The files are read as JSON, because this process does not know the workload.
    record = json.loads((made.path / "results/pictures/bz4_fp32/torch/1n2g/run1.json").read_text())
    assert (record["status"], record["unit"], record["data"]) == ("ok", "images/s", None)
    assert (record["spec"]["image"], record["spec"]["classes"]) == (12, 10)
    assert record["work"]["flops_per_sample"] == 3 * 2 * 32 * (144 + 10)
    assert "has no tokens" in record["work"]["reasons"]["real_token_share"]
    latency = {"name": "latency", "unit": "ms", "better": "less"}
    assert [{**one, "value": None} for one in record["figures"]] == [
        {**latency, "at": count, "value": None} for count in (1, 8)
    ]
    assert record["settings"]["hidden"] == 32
    cells = json.loads((made.path / "results/pictures/bz4_fp32.json").read_text())["frameworks"]["torch"]
    assert {name: cell["n_ok"] for name, cell in cells.items()} == {"1n1g": 1, "1n2g": 1}
    assert cells["1n2g"]["other_units"] == {"pixels/s": pytest.approx(144 * cells["1n2g"]["median_speed"])}
    assert [figure["at"] for figure in cells["1n2g"]["figures"]] == [1, 8]
    report = (made.path / "results/report.html").read_text(encoding="utf-8")
    assert "images/s" in report and "latency" in report
    tables = [path.read_text() for path in (made.path / "results/pictures/tables").glob("*.csv")]
    assert any("latency" in table for table in tables)
    assert not [word for word in ("masked", "sequence_length", "bert") if any(word in table for table in tables)]

"""FLOP/s of GPT-2 as others count them: OneFlow's published speed on eight V100 is 26.1 TFLOPS, 20.9 % of 125."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import report_fixture
from throughline.observe import work
from throughline.records import Summary
from throughline.report.analysis import summary
from throughline.report.analysis.cells import groups
from throughline.report.render import page
from throughline.report.render.page import Results
from throughline.report.topic import Scope
from throughline.report.topics import write_tables
from throughline.study.runs import read_spec


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """The summary of one run, and its path."""
    root = tmp_path_factory.mktemp("conventions")
    run = report_fixture.spec(benchmark="gpt2", model="gpt2-small", batch=4, precision="fp16", topology="1n8g")
    run = {key: value for key, value in run.items() if key != "predictions"} | {"sequence_length": 1024}
    asked = read_spec(json.dumps(run))
    run = asked.values()
    record = report_fixture.record(run, 239.0)
    record["work"] = work.of(asked, 239.0, 8, report_fixture.V100, {})
    path = root / "gpt2/bz4_fp16/torch/1n8g/run1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    return root, summary.summarize([path], repeats=1)


def test_one_speed_in_every_convention(gpt2: tuple[Path, Summary]) -> None:
    root, own = gpt2
    write_tables(Scope(groups([own])), root / "tables")
    with (root / "tables/conventions.csv").open(encoding="utf-8", newline="") as stream:
        [row] = csv.DictReader(stream)
    found = {name: float(value) for name, value in row.items() if name.startswith(("tflops_", "mfu_", "tokens_"))}
    assert found["tokens_per_s_per_device"] == pytest.approx(239 * 1024 / 8)
    assert found["tflops_full"] == pytest.approx(26.14, abs=0.01) and found["mfu_full"] == pytest.approx(
        0.209, abs=5e-4
    )
    assert found["tflops_torchtitan"] == found["tflops_full"] > found["tflops_nemo"]
    assert found["tflops_causal"] == pytest.approx(found["tflops_nemo"], rel=1e-3)
    assert found["tflops_megatron"] > found["tflops_palm"] > found["tflops_full"]
    assert all(found[f"mfu_{name[7:]}"] == pytest.approx(v / 125) for name, v in found.items() if name[:6] == "tflops")
    work_of_record = own.frameworks["torch"]["1n8g"].work
    assert work_of_record and work_of_record.mfu and work_of_record.mfu_causal
    assert work_of_record.mfu_causal / work_of_record.mfu == pytest.approx(817.2 / 875.2, rel=1e-3)


def test_the_page_states_every_formula(gpt2: tuple[Path, Summary]) -> None:
    root, own = gpt2
    html = page.render(Results({root / "gpt2/bz4_fp16.json": own}), [], None, root / "report.html")
    for text in ("FLOP/s as others count them", "6 P + 12 L H s", "8 P_layers + 16 L H s + 6 P_head", "6 P + 6 L H s"):
        assert text in html


def test_a_model_that_is_no_decoder_has_no_such_table(tmp_path: Path) -> None:
    own = summary.summarize(report_fixture.write_series(tmp_path, {"1n1g": [150.0]}), repeats=1)
    write_tables(Scope(groups([own])), tmp_path / "tables")
    assert not (tmp_path / "tables/conventions.csv").exists()

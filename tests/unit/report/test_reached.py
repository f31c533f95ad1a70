"""What single calls reach: shares of the datasheet and of the largest product; tables, curves, the device's page."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import report_fixture
from throughline import gpus
from throughline.observe import work
from throughline.report import answers
from throughline.report.analysis import cells, summary
from throughline.report.render import page, table_files
from throughline.report.render.page import Results
from throughline.report.topic import Scope
from throughline.report.topics import layers_alone as parts_topic
from throughline.report.topics import write_plots, write_tables
from throughline.report.topics.layers_alone import parts
from throughline.report.topics.single_calls import best, device, reached, rooflines
from throughline.study.runs import read_spec

A100 = {"kind": "cuda", "name": "A100-SXM4-80GB", "count": 1, "fp16_native": True}
PUBLISHED = {"matmul": (230.0, 312.0), "forward": (110.0, 312.0), "forward_backward": (136.0, 312.0)}
"""Mu Li's figures of an A100 in fp16, and the datasheet's, in TFLOPS."""


def one(name: str, at: int | None, value: float, unit: str = "TFLOPS") -> dict[str, Any]:
    return {"name": name, "unit": unit, "better": "more", "at": at, "value": value}


def write(root: Path, model: str, batch: int, precision: str, own: dict[str, Any], figures: list[Any]) -> Path:
    """Write the summary of one run of a test on an A100; return its path."""
    run = report_fixture.spec(benchmark=model.replace("-", "_"), batch=batch, precision=precision, repeat=1)
    run = {key: value for key, value in run.items() if key not in ("sequence_length", "predictions", "corpus")}
    run |= {"model": model, "options": {**run["options"], "data": "synthetic"}, **own}
    asked = read_spec(json.dumps(run))
    run = asked.values()
    unit = "samples/s" if model.endswith("layer") else "calls/s"
    beside = {"unit": unit, "loss": None, "figures": figures, "data": None}
    record = report_fixture.record(run, 10.0 * batch, device=A100) | beside
    record["work"] = work.of(asked, 10.0 * batch, 1, A100, {"matmul_flops_per_s": 250e12})
    path = root / f"{run['benchmark']}/bz{batch}_{precision}/torch/1n1g/run1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    root = tmp_path_factory.mktemp("reached")
    paths = [
        write(root, "matmul", 1, "fp16", {}, [one("matmul", 8192, 230.0), one("matmul", 2048, 240.0)]),
        write(root, "vector", 1, "fp32", {}, [
            one("vector", 2**22, 0.202), one("vector_memory", 2**22, 1616.0, "GB/s")
        ]),
        *(
            write(root, "bert-layer", batch, "fp16", {"sequence_length": 128}, [
                one("forward", None, forward), one("forward_backward", None, both)
            ])
            for batch, forward, both in ((2, 20.0, 30.0), (128, 110.0, 136.0))
        ),
    ]  # fmt: skip
    return root, Results({path.parents[2].with_suffix(".json"): summary.summarize([path], repeats=1) for path in paths})


def test_a_workload_that_trains_nothing_is_called(results: tuple[Path, Results]) -> None:
    groups = [group for group in cells.groups(results[1].present.values()) if group.benchmark in ("matmul", "vector")]
    assert answers.headline(Scope(groups)).startswith("torch calls matmul at 10.00 calls/s")


def test_shares_are_those_of_the_published_table(results: tuple[Path, Results]) -> None:
    found = {one.name: one for one in best(reached(cells.groups(results[1].present.values())))}
    for name, (value, theory) in PUBLISHED.items():
        assert (found[name].value, found[name].theory, found[name].product) == (value, theory, 250.0)
        assert found[name].share == pytest.approx(value / theory)
    assert found["matmul"].size == 8192, "the largest size, not the fastest"
    assert found["forward"].size == 128, "the fastest batch"
    memory = found["vector_memory"]
    known = gpus.find("A100-SXM4-80GB")
    assert known and memory.theory == known.memory_bytes_per_s / 1e9 == 2039  # type: ignore[operator]
    assert (memory.product, found["vector"].theory, found["vector"].share_of_product) == (None, None, None)
    assert found["matmul"].intensity == pytest.approx(2 * 8192**3 / (3 * 8192**2 * 2))
    assert found["vector"].intensity == pytest.approx(1 / 8)
    flops = 128 * (24 * 128 * 1024**2 + 4 * 128**2 * 1024)
    assert found["forward"].intensity == pytest.approx(flops / (2 * (12 * 1024**2 + 2 * 128 * 128 * 1024)))
    assert found["forward_backward"].intensity is None


@pytest.mark.slow
def test_tables_and_curves_in_files(results: tuple[Path, Results]) -> None:
    root, found = results
    groups = [group for group in cells.groups(found.present.values()) if group.benchmark == "bert_layer"]
    write_tables(Scope(groups, groups), root / "tables")
    write_plots(Scope(groups, groups), root / "plots")
    with (root / "tables/reached.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["figure"], row["size"], row["value"], row["theory"]) for row in rows[:2]] == [
        ("forward", "2", "20.0", "312.0"), ("forward_backward", "2", "30.0", "312.0")
    ]  # fmt: skip
    assert "| 136.0 | TFLOPS | 312.0 | 44 % | 54 % |" in (root / "tables/reached.md").read_text()
    drawn = (root / "plots/reached_TFLOPS.svg").stat().st_size
    assert drawn > 3000 and not list((root / "plots").glob("*forward*"))


def test_the_device_stands_once_on_the_page(results: tuple[Path, Results]) -> None:
    root, found = results
    groups = cells.groups(found.present.values())
    own = [group for group in groups if group.benchmark == "matmul"]
    others = [group for group in groups if group.benchmark == "vector"]
    first = device(Scope(own, groups))
    assert first and len(first.lines) == 5 and device(Scope(others, groups)) is None
    assert len(list(rooflines(Scope(own, groups)))) == 1 and not list(rooflines(Scope(others, groups)))
    text = page.render(found, [], None, root / "report.html")
    assert text.count("<summary><b>The device in one table</b>") == 1 and 'id="benchmark-bert_layer-reached"' in text
    assert "benchmark-matmul-roofline_0-title" in text and "loss" not in text.partition("<main")[2]


def trained(root: Path, speed: float, **changes: Any) -> cells.Group:
    """Return BERT-base on the same card with `speed` samples per second."""
    run = report_fixture.spec(benchmark="bert", precision="fp16", batch=96, **changes)
    asked = read_spec(json.dumps({**run, "repeat": 1}))
    run = asked.values()
    record = report_fixture.record(run, speed, device=A100)
    counted = {"real_token_share": 0.8, "real_pair_share": 0.7}
    record["work"] = work.of(asked, speed, 1, A100, {"counted": counted})
    path = root / "bert/bz96_fp16/torch/1n1g/run1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    (group,) = cells.groups([summary.summarize([path], repeats=1)])
    return group


def test_a_step_beside_its_layers(results: tuple[Path, Results], tmp_path: Path) -> None:
    everything = cells.groups(results[1].present.values())
    group = trained(tmp_path, 1000.0)
    (one,) = parts([group], everything)
    assert (one.layer.model, one.layer.size, one.layer.value) == ("bert-layer", 128, 136.0), "not the batch of 2"
    (cell,) = group.measured
    assert cell.record.work and one.share == pytest.approx(cell.record.work.flops_per_s / 136e12)  # type: ignore[operator]
    shown = parts_topic.table(Scope([group], everything))
    assert shown
    (row,) = table_files.printed(shown)[1]
    assert row[4:] == [
        f"{one.tflops:.2f}",
        "136.0",
        f"{100 * one.share:.0f} %",
        "128",
        "sdpa",
        "bert_layer",
    ]


@pytest.mark.parametrize(
    "changes", [{"sequence_length": 512}, {"options": {"dropout": 0.0}}, {"options": {"remove_padding": True}}]
)
def test_what_is_unlike_is_not_compared(results: tuple[Path, Results], tmp_path: Path, changes: dict[str, Any]) -> None:
    assert not parts([trained(tmp_path, 1000.0, **changes)], cells.groups(results[1].present.values()))

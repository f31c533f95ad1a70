"""Workloads that measure iterations: runs that differ in one number are plotted over it; both batches; synthetic
data."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import page_of, record, scoped, spec, write_record
from throughline.records import Summary
from throughline.report import topics
from throughline.report.analysis import cells, summary
from throughline.report.render.plots import LIGHT
from throughline.report.topics.sweeps import SHOWN, Sweep, sweeps
from throughline.study.runs import read_spec

WIDE = {
    "model": "wide-deep", "vocabulary": 1000, "embedding": 16, "hidden": 2, "table": "rows", "update": "lazy",
    "corpus": None,
}  # fmt: skip


def points(sweep: Sweep, name: str, quantity: str) -> list[tuple[float, float | None]]:
    return [(value, SHOWN[quantity][1](cell)) for value, cell in sweep.lines[name]]


def written(root: Path, benchmark: str, batch: int, latency_ms: float, **changes: Any) -> Summary:
    """Make the summary of runs on one and two devices."""
    figure = {"name": "latency", "unit": "ms", "better": "less", "at": "median", "value": latency_ms}
    paths = []
    for topology, speed in (("1n1g", 100.0), ("1n2g", 180.0)):
        run = spec(benchmark=benchmark, batch=batch, topology=topology, **{**WIDE, **changes})
        del run["sequence_length"], run["predictions"]
        value = record(read_spec(json.dumps(run)).values(), speed, memory=int(latency_ms * 1e9))
        paths.append(write_record(root, value | {"figures": [figure], "data": None}))
    return summary.summarize(paths, repeats=1)


@pytest.mark.slow
def test_a_sweep_has_the_cells_that_differ_in_one_number_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summaries = [
        *(written(tmp_path, "batches", batch, batch / 64, embedding=8) for batch in (256, 64, 128)),
        *(written(tmp_path, f"v{size}", 64, size / 1000, vocabulary=size) for size in (4000, 1000, 2000)),
        written(tmp_path, "other_table", 64, 9.0, vocabulary=8000, table="columns"),
        written(tmp_path, "other_rate", 64, 9.0, vocabulary=16000, optimizer={"learning_rate": 0.5}),
    ]
    by_batch, by_vocabulary = sweeps(cells.groups(summaries))
    assert (by_batch.key, by_batch.benchmark, by_vocabulary.key) == ("batch", "batches", "vocabulary")
    for name in ("torch 1n1g", "torch 1n2g"):
        assert points(by_batch, name, "latency") == [(64, 1), (128, 2), (256, 4)]
        assert points(by_vocabulary, name, "latency") == [(1000, 1), (2000, 2), (4000, 4)]
        assert points(by_vocabulary, name, "memory") == [(1000, 1), (2000, 2), (4000, 4)]
    text = page_of(tmp_path, *summaries)
    for name in ("latency", "memory"):
        assert f"{name} over vocabulary: wide-deep, fp32, batch 64 per device" in text
    monkeypatch.setattr(topics, "TOPICS", [topics.sweeps.TOPIC])  # the other topics would draw for seconds
    topics.write_plots(scoped(*summaries[:3]), tmp_path / "plots")
    names = {path.stem for path in (tmp_path / "plots").iterdir()}
    assert names == {"latency_over_batch_0", "memory_over_batch_0"}


def test_two_points_are_no_sweep(tmp_path: Path) -> None:
    assert not sweeps(cells.groups([written(tmp_path, "two", batch, 1.0) for batch in (1, 2)]))


@pytest.mark.slow
@pytest.mark.parametrize("data", ["synthetic", "real"])
def test_every_table_and_plot_says_that_data_are_synthetic(tmp_path: Path, data: str) -> None:
    summaries = [written(tmp_path, "b", batch, 2.0, options={"data": data}) for batch in (64, 128, 256)]
    scope = scoped(*summaries)
    topics.write_tables(scope, tmp_path / "tables")
    files = sorted((tmp_path / "tables").iterdir())
    assert {path.stem for path in files} >= {"throughput", "figures", "memory"}
    for path in files:
        marked = ("synthetic_data" if path.suffix == ".csv" else topics.SYNTHETIC) in path.read_text()
        assert marked == (data == "synthetic"), path.name
    plots = [one.draw(LIGHT) for topic in topics.TOPICS for one in topics.drawings(topic, scope)]
    assert len(plots) > 6
    for plot in plots:
        assert (topics.SYNTHETIC in [text.get_text() for text in plot.texts]) == (data == "synthetic")
    listed = page_of(tmp_path, *summaries).count(f"<li>{topics.SYNTHETIC}</li>")
    assert (listed > 2) == (data == "synthetic")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scaling", "batches"), [("weak", ["64 / 64", "64 / 128"]), ("strong", ["64 / 64", "32 / 64"])]
)
def test_tables_state_the_batch_of_a_device_and_the_global_one(
    tmp_path: Path, scaling: str, batches: list[str]
) -> None:
    found = written(tmp_path, "b", 64, 2.0, scaling=scaling)
    topics.write_tables(scoped(found), tmp_path / "tables")
    for name in ("throughput", "figures"):
        table = (tmp_path / f"tables/{name}.md").read_text()
        assert "batch per device / global batch" in table
        assert [line for line in batches if f"| {line} |" in table] == batches
    text = page_of(tmp_path, found)
    assert all(f"<td>{line}</td>" in text and f", {line}</span>" in text for line in batches)

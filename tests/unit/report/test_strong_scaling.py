"""Strong scaling in everything that a person reads: the batch is a total, and the speedups are called strong."""

from pathlib import Path

import pytest

from report_fixture import group_of, page_of, read_csv, write_series, write_summary
from throughline.console import plan
from throughline.records import read_summary
from throughline.report.analysis import cells, summary
from throughline.report.topic import Scope
from throughline.report.topics import throughput, write_tables
from throughline.report.topics.off_and_on import cases
from throughline.study import runs

SPEEDS = {"1n1g": 100.0, "1n2g": 180.0, "1n4g": 440.0}
GOALS = {"goals": {"efficiency": {"from_nodes": 1, "at_least": 0.95}}}


def place(root: Path, **changes: object) -> Path:
    """Write the summary of one repeat on each topology; return its path."""
    records = write_series(root, {name: [speed] for name, speed in SPEEDS.items()}, **changes)
    return write_summary(records, repeats=1, terms=summary.read_terms(runs.canonical(GOALS)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    place(root, scaling="strong", options={"gradient_accumulation": 2})
    return root


@pytest.fixture(scope="module")
def group(root: Path) -> cells.Group:
    return group_of(read_summary(root / "bert/bz32_fp32.json"))


def test_the_summary_has_the_total_and_the_batch_of_a_device(root: Path) -> None:
    found = read_summary(root / "bert/bz32_fp32.json")
    assert (found.scaling, found.batch, found.batch_size_per_device) == ("strong", 32, None)
    assert "batch is of all replicas together" in found.reasons["batch_size_per_device"]
    series = found.frameworks["torch"]
    assert {cell.global_batch for cell in series.values()} == {64}
    assert [cell.batch_size_per_device for cell in series.values()] == [32, 16, 8]
    assert [cell.efficiency for cell in series.values()] == pytest.approx([1.0, 0.9, 1.1])
    assert "or smaller batches are faster here (strong scaling)" in series["1n4g"].warnings[0]


def test_tables_name_it_and_show_the_batch_of_a_replica(root: Path, group: cells.Group) -> None:
    write_tables(Scope([group]), root / "tables")
    text = (root / "tables/throughput.md").read_text(encoding="utf-8")
    assert "**Total batch size = 32, fp32, strong scaling, W/O compile" in text
    assert "| framework | node_num | gpu_num | batch per replica | samples/s | speedup (strong scaling) |" in text
    assert "| torch | 1 | 4 | 8 | 440.00 | 4.40 |" in text
    last = read_csv(root / "tables/throughput.csv")[-1]
    names = ("batch", "scaling", "batch_per_replica", "global_batch_size")
    assert [last[name] for name in names] == ["32", "strong", "8", "64"]


def test_page_plots_and_closing_lines_name_it(root: Path, group: cells.Group) -> None:
    text = page_of(root, group.summary)
    for words in (
        "on 4 devices (1n4g) in fp32 with total batch 32, strong scaling.",
        "4.40 times one device on 4 devices (1n4g), with strong scaling",
        "strong-scaling speedup over one device",
        "speedup<small>strong scaling</small>",
        "batch<small>per replica</small>",
        "strong-scaling efficiency of at least 95 %",
    ):
        assert words in text
    titles = [drawing.title for drawing in throughput.drawings(Scope([group]))]
    assert titles == [f"bert: {what}, fp32, total batch 32, strong scaling" for what in ("throughput", "speedup")]
    assert "strong-scaling speedup 1.80" in "".join(plan._medians(root / "bert/bz32_fp32.json"))


def test_cases_are_named_by_the_batch_of_a_replica(tmp_path: Path) -> None:
    group = group_of(read_summary(place(tmp_path, model="gpt2-small", scaling="strong")))
    assert [case.name for case in cases(group.measured, [])] == ["1n_1g_dp_32bs", "1n_2g_dp_16bs", "1n_4g_dp_8bs"]


def test_a_weak_and_a_strong_benchmark_are_no_pair(tmp_path: Path, root: Path) -> None:
    """They differ in more than the one option, although their names are alike."""
    strong = read_summary(root / "bert/bz32_fp32.json")
    weak = read_summary(place(tmp_path))
    assert weak.scaling == "weak"
    assert runs.switch(weak, strong) is None
    assert runs.switch(weak, strong.model_copy(update={"scaling": "weak"})) == ("gradient_accumulation", 1, 2)

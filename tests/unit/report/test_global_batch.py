"""A stated global batch: the micro-batches differ from topology to topology, and all of them are one summary."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import group_of, read_csv, record, scoped, spec, world_of, write_record, write_summary
from throughline.archive import compare
from throughline.files import UserError
from throughline.records import Summary, read_summary
from throughline.report.analysis import differences, titles
from throughline.report.topic import Scope
from throughline.report.topics import throughput, write_tables
from throughline.spec import StepSize
from throughline.study import runs
from throughline.study.config import load
from throughline.study.targets import Targets

SAMPLES = 768
SPEEDS = {"1n1g": 100.0, "1n2g": 190.0, "1n8g": 700.0}


def asked(topology: str, benchmark: str = "bert", batch: int = 32, **changes: Any) -> dict[str, Any]:
    """Return a specification whose micro-batches make SAMPLES samples."""
    accumulated = {"gradient_accumulation": SAMPLES // (world_of(topology) * batch), **changes.pop("options", {})}
    stated = {"benchmark": benchmark, "batch": batch, "global_batch": SAMPLES, "options": accumulated}
    return spec(topology=topology, **stated | changes)


def summarized(root: Path, *specs: dict[str, Any], **options: Any) -> Summary:
    paths = [write_record(root, record(run, SPEEDS[run["topology"]])) for run in specs]
    return read_summary(write_summary(paths, repeats=1, **options))


def test_all_topologies_are_one_summary_that_names_the_global_batch(tmp_path: Path) -> None:
    found = summarized(tmp_path, *map(asked, SPEEDS), asked=runs.read_spec(json.dumps(asked("1n2g"))))
    assert (found.global_batch, found.options.gradient_accumulation) == (SAMPLES, 1)
    assert {cell.global_batch for cell in found.frameworks["torch"].values()} == {SAMPLES}
    group = group_of(found)
    assert [cell.size for cell in group.measured] == [StepSize(1, 32, 24), StepSize(2, 32, 12), StepSize(8, 32, 3)]
    assert [row.gradient_accumulation for row in Scope([group]).results.values()] == [24, 12, 3]
    assert "W/ accumulation to 768 samples" in titles.title(group) and "accumulation of" not in titles.title(group)


def test_all_batches_are_one_table_with_the_runs_without_accumulation_beside_it(tmp_path: Path) -> None:
    batches = ("fp32", 32), ("fp32", 48), ("fp16", 96)
    found = [
        summarized(tmp_path, *(asked(topology, batch=batch, precision=precision) for topology in ("1n1g", "1n2g")))
        for precision, batch in batches
    ]
    alone, other = (
        [summarized(tmp_path, spec(topology="1n8g", benchmark=name, batch=batch, **changes)) for batch in (32, 64)]
        for name, changes in (("alone", {"steps": {"timed": 9}}), ("other", {"options": {"compile": True}}))
    )
    write_tables(scoped(*found, *alone, *other), tmp_path / "tables")
    assert [list(line.values()) for line in read_csv(tmp_path / "tables/global_batch.csv")] == [
        ["torch", "1n1g", "1", "768 samples", "100.0", "100.0", "100.0"],
        ["torch", "1n2g", "2", "768 samples", "190.0", "190.0", "190.0"],
        ["torch", "1n8g", "8", "no accumulation", "700.0", "", ""],
    ]
    text = (tmp_path / "tables/global_batch.md").read_text(encoding="utf-8")
    assert "fp32, batch 32 (samples/s) | fp32, batch 48 (samples/s) | fp16, batch 96 (samples/s) |" in text
    assert throughput.by_batch(scoped(*alone, *found, *other)) is None


def test_another_machine_with_a_constant_accumulation_differs_in_it(tmp_path: Path) -> None:
    both = summarized(tmp_path / "a", asked("1n2g")), summarized(tmp_path / "b", spec(topology="1n2g"))
    (fact,) = differences.between(*(compare._facts(group_of(found).measured[0]) for found in both))
    assert (fact.name, fact.here, fact.there) == ("options.gradient_accumulation", "12", "1")
    assert "global_batch" not in json.loads((tmp_path / "b/bert/bz32_fp32.json").read_text())


def test_the_files_of_a_block_are_made_with_the_block_without_accumulation() -> None:
    blocks = {
        "b": {"sequence_length": 32, "batch": {"fp32": [8, 16]}, "global_batch": 64},
        "alone": {"sequence_length": 32, "batch": {"fp32": [8]}, "steps": {"timed": 7}},
        "other": {"sequence_length": 32, "batch": {"fp32": [8]}, "options": {"clip": "norm"}},
    }
    config = load([], {"benchmarks": blocks})
    targets = Targets(config, runs.expand(config), {}, {}, {})
    assert targets.compared("b") == ["results/alone/bz8_fp32.json"]
    assert targets.compared("alone") == []


def test_another_global_batch_is_another_configuration(tmp_path: Path) -> None:
    twice = asked("1n2g", global_batch=2 * SAMPLES, options={"gradient_accumulation": 24})
    with pytest.raises(UserError, match=f"global_batch = {2 * SAMPLES}"):
        summarized(tmp_path, asked("1n1g"), twice)
    constant = spec(topology="1n2g", options={"gradient_accumulation": 24})
    with pytest.raises(UserError, match=r"global_batch = None|options.gradient_accumulation = 24"):
        summarized(tmp_path, asked("1n1g"), constant)


def test_pairs_are_told_by_what_the_block_states(tmp_path: Path) -> None:
    """The accumulation of the first topology is no option that the block has switched on."""
    off, on = (
        runs.read_spec(json.dumps(asked(topology, options={"compile": compile})))
        for topology, compile in (("1n1g", False), ("1n8g", True))
    )
    assert runs.switch(off, on) == ("compile", False, True)
    summaries = [
        summarized(tmp_path, asked(topology, benchmark, options={"compile": compile}))
        for benchmark, topology, compile in (("off", "1n1g", False), ("on", "1n8g", True))
    ]
    assert runs.switch(*summaries) == ("compile", False, True)
    assert runs.switch(off, runs.read_spec(json.dumps(spec(options={"compile": True})))) is None

"""Pairs: what is called a difference, and what the machine cannot tell."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report_fixture import jitter, write_series
from throughline.records import Summary
from throughline.report.analysis import cells, comparisons, summary
from throughline.report.analysis.values import Value
from throughline.report.render.topics import write_tables
from throughline.report.render.topics.comparisons import TOPIC
from throughline.report.topics import Finding, Scope

FLOOR = comparisons.Floor("torch", 0.03, 4)


def found(root: Path, speeds: dict[str, list[float]], **changes: Any) -> Summary:
    return summary.summarize(write_series(root, speeds, **changes), repeats=5)


def aa(root: Path, one: float, other: float, **changes: Any) -> list[Summary]:
    return [
        found(root, {"1n1g": jitter(speed)}, benchmark=name, **changes)
        for name, speed in (("base", one), ("base__aa", other))
    ]


def verdicts(groups: list[cells.Group], everything: list[cells.Group] | None = None) -> dict[str, str]:
    return {pair.what: pair.verdict for pair in comparisons.judge(groups, everything or groups)}


def findings(
    groups: list[cells.Group], everything: list[cells.Group] | None = None, floor: comparisons.Floor | None = None
) -> list[Finding]:
    scope = Scope(groups, everything or groups)
    if floor:
        scope.__dict__["pairs"] = [replace(pair, floor=floor) for pair in scope.pairs]
    return list(TOPIC.findings(scope))


def test_a_a_runs_set_the_smallest_difference(tmp_path: Path) -> None:
    two = found(tmp_path / "two", {"1n1g": jitter(100.0), "1n2g": jitter(150.0)}, benchmark="base")
    (pair,) = comparisons.judge(cells.groups([two]), cells.groups([two, aa(tmp_path, 100.0, 102.7)[1]]))
    floor = pair.floor
    assert floor and (floor.what, floor.share, floor.compared) == ("torch", pytest.approx(0.027), 1)
    assert "2.7 %" in floor.text and "once in 2 comparisons" in floor.text


def test_below_it_there_is_no_difference(tmp_path: Path) -> None:
    """Two frameworks 2 % apart: their repeats never overlap, and the same configuration differs by 2.7 % here."""
    records = [
        path for name, speed in (("torch", 100.0), ("mxnet-horovod", 102.0))
        for path in write_series(tmp_path, {"1n1g": jitter(speed)}, framework=name, benchmark="base")
    ]  # fmt: skip
    alone = cells.groups([summary.summarize(records, repeats=5)])
    assert verdicts(alone) == {"mxnet-horovod over torch": "faster"}
    everything = cells.groups([summary.summarize(records, repeats=5), aa(tmp_path, 100.0, 102.7)[1]])
    here = [group for group in everything if group.benchmark == "base"]
    assert verdicts(here, everything) == {"mxnet-horovod over torch": "no difference"}
    texts = [finding.text for finding in findings(here, everything)]
    assert any(text.startswith("No difference between") and "2.7 % of A/A runs" in text for text in texts)
    assert not any("faster than" in text for text in texts)


def test_ranks_decide_where_no_a_a_run_does(tmp_path: Path) -> None:
    wide = [100.0, 90.0, 111.0, 96.0, 104.0]
    mixed = found(tmp_path, {"1n1g": wide, "1n2g": [value * 1.01 for value in reversed(wide)]})
    assert verdicts(cells.groups([mixed])) == {"1n2g over 1n1g": "not told apart"}
    few = found(tmp_path / "few", {"1n1g": [100.0, 101.0], "1n2g": [200.0, 201.0]})
    (pair,) = comparisons.judge(cells.groups([few]))
    assert (pair.verdict, pair.p) == ("not told apart", None)
    assert "no rank test" in pair.why
    assert pair.range == (200 / 101, 201 / 100)


def test_a_precision_within_the_noise_gains_nothing(tmp_path: Path) -> None:
    full = found(tmp_path, {"1n1g": jitter(100.0)})
    half = found(tmp_path, {"1n1g": jitter(102.0)}, precision="fp16", batch_per_device=64)
    groups = cells.groups([full, half])
    assert not any(finding.loss for finding in findings(groups))
    (loss,) = [finding.text for finding in findings(groups, groups, FLOOR) if finding.loss]
    assert "fp16 gains nothing here: 1.02 times" in loss


def test_a_precision_that_only_seems_faster_is_not_told_apart(tmp_path: Path) -> None:
    full = found(tmp_path, {"1n1g": [100.0, 60.0, 130.0, 90.0, 110.0]})
    half = found(tmp_path, {"1n1g": [120.0, 70.0, 140.0, 80.0, 125.0]}, precision="fp16", batch_per_device=64)
    (text,) = [finding.text for finding in findings(cells.groups([full, half]))]
    assert "fp16 and fp32 cannot be told apart on one device" in text and "ratio is 1.20, p = 0." in text


def test_devices_within_the_noise_gain_nothing(tmp_path: Path) -> None:
    groups = cells.groups([found(tmp_path, {"1n1g": jitter(100.0), "1n2g": jitter(102.0)})])
    assert not any(finding.loss for finding in findings(groups))
    assert any("additional devices gain nothing" in f.text for f in findings(groups, groups, FLOOR) if f.loss)


@pytest.mark.parametrize(("gain", "said"), [(1.0, True), (1.3, False)])
def test_compile_is_compared_with_the_block_that_goes_without(tmp_path: Path, gain: float, said: bool) -> None:
    plain = found(tmp_path, {"1n1g": jitter(100.0)}, benchmark="plain")
    compiled = found(tmp_path, {"1n1g": jitter(100.0 * gain)}, benchmark="compiled", options={"compile": True})
    other = found(tmp_path, {"1n1g": jitter(70.0)}, benchmark="other", options={"compile": True, "clip": "norm"})
    everything = cells.groups([plain, compiled, other])
    here = [group for group in everything if group.benchmark == "compiled"]
    assert set(verdicts(here, everything)) == {"compile over none"}
    rest = verdicts([group for group in everything if group.benchmark != "compiled"], everything)
    assert set(rest) == {"clip norm over none"}
    losses = [finding.text for finding in findings(here, everything) if finding.loss]
    assert bool(losses) is said
    assert not said or "compile gains nothing" in losses[0]


def test_comparisons_as_a_file(tmp_path: Path) -> None:
    base, again = aa(tmp_path, 100.0, 102.7)
    two = found(tmp_path / "two", {"1n1g": jitter(100.0), "1n2g": jitter(150.0)}, benchmark="base")
    groups = cells.groups([two])
    write_tables(Scope(groups, [*groups, *cells.groups([again])]), tmp_path)
    with (tmp_path / "comparisons.csv").open(encoding="utf-8", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["compared"], row["verdict"], row["a_a_pairs"]) == ("1n2g over 1n1g", "faster", "1")
    assert float(row["ratio"]) == pytest.approx(1.5)
    assert float(row["smallest_difference"]) == pytest.approx(0.027)
    write_tables(Scope(cells.groups([base])), tmp_path / "none")
    assert (tmp_path / "none/comparisons.csv").read_text().startswith("compared,where,ratio")


def test_a_value_that_was_not_measured_here_is_compared_and_named(tmp_path: Path) -> None:
    """A pair takes values, whoever has them; without repeats there is no rank test."""
    published = Value("published", 150.11, source="published: DLPerf")
    mine = Value("torch", 156.0, (155.0, 156.0, 157.0))
    pair = comparisons.Pair("torch over published", "1n1g", published, mine)
    assert (pair.ratio, pair.range, pair.verdict) == (pytest.approx(156 / 150.11), None, "not told apart")
    from throughline.report.render.topics.comparisons import _row

    assert _row(pair)[2] == "156.0 against 150.1 (published: DLPerf)"

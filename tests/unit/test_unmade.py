"""What is said of a target that nothing makes, and of an input that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from throughline import unmade, workflow_call
from throughline.launch.auto_topologies import AutoTopologies
from throughline.study.presets import WORKFLOW

VALUES: dict[str, Any] = {
    "benchmarks": {"b": {"sequence_length": 32, "batch": {"fp32": [8], "fp16": [64]}, "topologies": ["1n1g", "1n2g"]}}
}
RULES = ["all", "corpus", "report"]


@pytest.fixture(scope="module")
def call() -> workflow_call.WorkflowCall:
    return workflow_call.read([], VALUES, WORKFLOW, False, print, AutoTopologies())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "why", "next_step"),
    [
        ("results/b/bz64_fp61.json", "fp61 is no precision; allowed: fp32, tf32, bf16", "results/b/bz64_fp16.json"),
        ("results/b/bz64_fp16/torch/1n2/run1.json", "1n2 is no topology", "results/b/bz64_fp16/torch/1n2g/run1.json"),
        ("results/report.htm", "neither", "results/report.html"),
        ("result/b/tables", "neither", "results/b/tables"),
        ("corpsu", "neither", "corpus?"),
        ("b", "neither", "results/b/bz8_fp32.json or results/b/bz64_fp16.json?"),
        ("data/sample/seq32/training_00.hdf5", "neither", "data/sample/seq32/training_0000.hdf5"),
    ],
)
def test_a_target_gets_the_nearest_ones(
    call: workflow_call.WorkflowCall, target: str, why: str, next_step: str
) -> None:
    error = unmade.no_rule(call, RULES, target)
    assert error.what == f"nothing makes {target}"
    assert error.why and error.why.startswith(why)
    assert error.next_step and error.next_step.startswith("did you mean ") and next_step in error.next_step


def test_a_target_without_a_similar_one_is_answered_with_where_they_are_listed(
    call: workflow_call.WorkflowCall,
) -> None:
    assert unmade.no_rule(call, RULES, "zzzz").next_step == unmade.LIST


def test_an_input_is_answered_with_the_key_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/wiki.xml").touch()
    values = {"corpus": {"dump": ["texts/wki.xml", {"text": ["texts/books.txt"]}]}}
    said = str(unmade.no_input(values, "data/x/dump/parts.json", ["texts/wki.xml"]))
    assert said.startswith("texts/wki.xml is not there, and data/x/dump/parts.json is made of it")
    assert "corpus.dump names it; there is texts/wiki.xml" in said and "next: correct corpus.dump" in said
    said = str(unmade.no_input(values, "made", ["texts/books.txt", "texts/wki.xml"]))
    assert "(and 1 more)" in said and "corpus.dump.text names it" in said
    assert unmade.no_input(values, "made", ["data/x/seq32/verified/training_0000.json"]) is None

"""What is said of a target that nothing makes, and what the jobs of a call are handed."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from throughline import files, handover
from throughline.files import UserError
from throughline.installation import choose
from throughline.launch import nodes
from throughline.launch.auto_topologies import AutoTopologies
from throughline.launch.request import is_strict
from throughline.study.presets import WORKFLOW
from throughline.workflow import call
from throughline.workflow.call import WorkflowCall

BLOCK = {"sequence_length": 32, "batch": {"fp32": [8], "fp16": [64]}, "topologies": ["1n1g", "1n2g"]}
VALUES: dict[str, Any] = {
    "benchmarks": {"b": BLOCK, "far": BLOCK | {"hosts": ["indigo", "violet"], "strict": True}},
    "corpus": {"mirrors": ["https://mirror.example"]},
}
RULES = ["all", "corpus", "report"]


@pytest.fixture(scope="module")
def asked() -> WorkflowCall:
    return call.read([], VALUES, WORKFLOW, AutoTopologies())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "next_step"),
    [
        ("results/b/bz64_fp61.json", "results/b/bz64_fp16.json"),
        ("results/b/bz64_fp16/torch/1n2", "results/b/bz64_fp16/torch/1n2g/run1.json"),
        ("results/report.htm", "results/report.html"),
        ("corpsu", "corpus?"),
        ("b", "results/b/bz8_fp32.json or results/b/bz64_fp16.json?"),
        ("data/sample/seq32/training_00.hdf5", "data/sample/seq32/training_0000.hdf5"),
        ("zzzz", call.LIST),
    ],
)
def test_a_target_gets_the_nearest_ones(asked: WorkflowCall, target: str, next_step: str) -> None:
    with pytest.raises(UserError, match=f"nothing makes {target}") as caught:
        asked.check_targets([target], RULES)
    assert next_step in str(caught.value.next_step)


def test_jobs_are_handed_what_decides_no_result_and_keep_it(
    asked: WorkflowCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(handover.VARIABLE, "")
    monkeypatch.setenv(choose.WANTED, "cuda12")
    inside: Any = SimpleNamespace(is_main=True, given=(["x.yaml"], {}), snakefile=None)
    call.hand_over(asked.config, inside)
    monkeypatch.delenv(choose.WANTED)
    assert nodes.configured("far__aa") == ["indigo", "violet"] and nodes.configured("b") == []
    assert is_strict("far") and not is_strict("b")
    assert choose.wanted() == "cuda12" and choose.deciding() == choose.facts()
    assert files.snakemake("all") == "snakemake all --configfile x.yaml"
    assert handover.get("mirrors") == ["https://mirror.example"] and handover.get("devices", 7) == 7
    document = os.environ[handover.VARIABLE]
    inside.is_main, inside.given = False, ([], {})  # a submitted job
    call.hand_over(asked.config, inside)
    assert os.environ[handover.VARIABLE] == document
    handover.add(devices={"torch": "{}"})
    assert handover.get("devices") == {"torch": "{}"} and is_strict("far")

"""`compile: auto` and `remove_padding: auto`: a rank decides by its device, framework and length of the run.

The specification keeps `auto`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from throughline import frameworks
from throughline.checks import equivalence
from throughline.launch import machine
from throughline.rank.run import Run
from throughline.spec import Steps
from throughline.spec.job import EpochsJob
from throughline.workloads import bert
from training_fixtures import plan, spec

pytest.importorskip("torch")

SHORT = {"steps": Steps(warmup=2, timed=5, max_total_seconds=10)}
JOB = {"framework": "hf-trainer", "precision": "bf16"}
RECOMPUTED = {"options": {"activation_checkpointing": True}}
RECORDED = {"options": {"cuda_graph": "step"}}
CASES: list[tuple[str, str, dict[str, Any], bool, str]] = [
    ("compile", "cuda", {}, True, "compiled: the device is a GPU, and the run is long enough"),
    ("compile", "cpu", {}, False, "not compiled: on a CPU, it gains little"),
    ("compile", "cuda", {"framework": "tensorflow"}, True, "compiled: the device"),
    ("compile", "cuda", {"framework": "paddle"}, True, "compiled: the device"),
    ("compile", "cuda", {"framework": "jax"}, False, "compiled in any case: jax compiles every step"),
    ("compile", "cuda", {"framework": "mxnet-horovod"}, False, "not compiled: mxnet-horovod cannot compile bert-tiny"),
    ("compile", "cuda", {"framework": "paddle", **RECOMPUTED}, False, "not compiled: in a compiled"),
    ("compile", "cuda", RECOMPUTED, True, "compiled: the device"),
    ("compile", "cuda", SHORT, False, "not compiled: all steps may take 10 s, and compiling takes about 30 s"),
    ("compile", "cuda", SHORT | RECORDED, False, "not compiled: all steps may take 10 s"),
    ("compile", "cuda", JOB | {"job": EpochsJob(samples=320, epochs=2)}, False, "not compiled: the job has"),
    ("compile", "cuda", JOB | {"job": EpochsJob(samples=32_000_000, epochs=2)}, True, "compiled: the device"),
    ("remove_padding", "cuda", {}, True, "left out: the device is a GPU"),
    ("remove_padding", "cuda", RECORDED, False, "computed: a CUDA graph has one shape"),
    ("remove_padding", "cuda", {"framework": "jax"}, False, "computed: jax cannot leave it out for bert-tiny"),
    ("remove_padding", "cuda", {"model": "gpt2-tiny"}, False, "computed: torch cannot leave it out for gpt2-tiny"),
    ("remove_padding", "cpu", {}, False, "computed: on a CPU"),
]


@pytest.mark.parametrize(("option", "kind", "changes", "chosen", "words"), CASES)
def test_the_device_the_framework_and_the_length_decide(
    option: str, kind: str, changes: dict[str, Any], chosen: bool, words: str
) -> None:
    objects = {name: value for name, value in changes.items() if name in ("steps", "job")}
    rest = {name: value for name, value in changes.items() if name not in objects}
    asked = replace(spec(**{**rest, "options": {**rest.get("options", {}), option: "auto"}}), **objects)
    assert f'"{option}":"auto"' in asked.canonical.replace(" ", ""), "the record keeps what was asked"
    assert getattr(frameworks.resolved(asked, kind).options, option) is chosen
    why = frameworks.reasons(asked, kind)["compiling"] if option == "compile" else frameworks.padding(asked, kind)[1]
    assert why.startswith(words)
    assert option not in frameworks.needs(asked), "no framework has to refuse it"
    for value in (True, False):
        decided = replace(asked, options=replace(asked.options, **{option: value}))
        assert frameworks.resolved(decided, kind) is decided


def test_a_rank_compiles_what_was_decided_and_its_record_says_why() -> None:
    for kind, compiled in (("cpu", False), ("cuda", True)):
        run = Run(plan(run={"options": {"compile": "auto"}}, kind=kind), 0, Mock())
        assert run.options.compile is run.framework.options.compile is compiled
        assert run.chosen["compiling"].startswith("compiled" if compiled else "not compiled")


def test_a_rank_leaves_padding_out_as_was_decided_and_its_record_says_why() -> None:
    rows = {stored: np.ones((2, 5 if stored.startswith("masked") else 32), "i4") for stored, _ in bert.ARRAYS.values()}
    rows["next_sentence_labels"] = np.zeros(2, "i4")
    for value, kind, packed in (("auto", "cpu", False), (True, "cpu", True), (False, "cpu", False)):
        run = Run(plan(run={"options": {"remove_padding": value}}, kind=kind), 0, Mock())
        assert ("lengths" in run.workload.batch(rows, run.options)) is packed
        assert ("padding" in run.chosen) is (value == "auto")


def test_a_node_needs_a_compiler_only_if_the_run_would_compile_there() -> None:
    asked = spec(options={"compile": "auto"})
    assert machine.needs_compiler(asked)
    assert not machine.needs_compiler(replace(asked, **SHORT))
    assert not machine.needs_compiler(spec(framework="tensorflow", options={"compile": "auto"}))


def test_an_equivalence_check_computes_as_the_measured_run_does() -> None:
    """An equivalence check has a few steps and no job, so its own length must not decide."""
    asked = spec(options={"compile": "auto"})
    for measured in (asked, replace(asked, **SHORT), replace(asked, job=EpochsJob(samples=320, epochs=2))):
        compiled = frameworks.resolved(measured, "cuda").options.compile
        assert frameworks.resolved(equivalence.settings(measured), "cuda").options.compile is compiled

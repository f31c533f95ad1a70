"""`compile: auto`: the device, the framework and the length of the run decide. The specification keeps `auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from throughline import frameworks
from throughline.checks import equivalence
from throughline.launch import machine
from throughline.rank.run import Run
from throughline.spec import Steps
from throughline.spec.job import EpochsJob
from training_fixtures import plan, spec

SHORT = {"steps": Steps(warmup=2, timed=5, max_total_seconds=10)}
JOB = {"framework": "hf-trainer", "precision": "bf16"}


@pytest.mark.parametrize(
    ("kind", "changes", "compiled", "words"),
    [
        ("cuda", {}, True, "compiled: the device is a GPU, and the run is long enough"),
        ("cpu", {}, False, "not compiled: on a CPU, it gains little"),
        ("cuda", {"framework": "tensorflow"}, True, "compiled: the device"),
        ("cuda", {"framework": "paddle"}, True, "compiled: the device"),
        ("cuda", {"framework": "jax"}, False, "compiled in any case: jax compiles every step"),
        ("cuda", {"framework": "mxnet-horovod"}, False, "not compiled: mxnet-horovod cannot compile bert-tiny"),
        (
            "cuda",
            {"framework": "paddle", "options": {"activation_checkpointing": True}},
            False,
            "not compiled: in a compiled",
        ),
        ("cuda", {"options": {"activation_checkpointing": True}}, True, "compiled: the device"),
        ("cuda", SHORT, False, "not compiled: all steps may take 10 s, and compiling takes about 30 s"),
        ("cuda", SHORT | {"options": {"cuda_graph": "step"}}, False, "not compiled: all steps may take 10 s"),
        ("cuda", JOB | {"job": EpochsJob(samples=320, epochs=2)}, False, "not compiled: the job has"),
        ("cuda", JOB | {"job": EpochsJob(samples=32_000_000, epochs=2)}, True, "compiled: the device"),
    ],
)
def test_the_device_the_framework_and_the_length_decide(
    kind: str, changes: dict[str, Any], compiled: bool, words: str
) -> None:
    objects = {name: value for name, value in changes.items() if name in ("steps", "job")}
    rest = {name: value for name, value in changes.items() if name not in objects}
    asked = replace(spec(**{**rest, "options": {**rest.get("options", {}), "compile": "auto"}}), **objects)
    assert '"compile":"auto"' in asked.canonical.replace(" ", ""), "the record keeps what was asked"
    assert frameworks.resolved(asked, kind).options.compile is compiled
    assert frameworks.reasons(asked, kind)["compiling"].startswith(words)
    assert "compile" not in frameworks.needs(asked), "no framework has to refuse it"
    for value in (True, False):
        decided = replace(asked, options=replace(asked.options, compile=value))
        assert frameworks.resolved(decided, kind) is decided
        assert frameworks.reasons(decided, kind) == {}


def test_a_rank_compiles_what_was_decided_and_its_record_says_why() -> None:
    for kind, compiled in (("cpu", False), ("cuda", True)):
        run = Run(plan(run={"options": {"compile": "auto"}}, kind=kind), 0, Mock())
        assert run.options.compile is run.framework.options.compile is compiled
        assert run.chosen["compiling"].startswith("compiled" if compiled else "not compiled")


def test_a_node_needs_a_compiler_only_if_the_run_would_compile_there() -> None:
    asked = spec(options={"compile": "auto"})
    assert machine.needs_compiler(asked)
    assert not machine.needs_compiler(replace(asked, **SHORT))
    assert machine.needs_compiler(spec(framework="hf-trainer", options={"compile": True}))
    assert not machine.needs_compiler(spec(options={"compile": False}))
    assert not machine.needs_compiler(spec(framework="tensorflow", options={"compile": "auto"}))


def test_a_proof_computes_as_the_measured_run_does() -> None:
    """An equivalence check has a few steps and no job, so its own length must not decide."""
    asked = spec(options={"compile": "auto"})
    for measured in (asked, replace(asked, **SHORT), replace(asked, job=EpochsJob(samples=320, epochs=2))):
        compiled = frameworks.resolved(measured, "cuda").options.compile
        assert frameworks.resolved(equivalence.settings(measured), "cuda").options.compile is compiled

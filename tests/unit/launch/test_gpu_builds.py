"""What is asked about GPUs before data are made, and that no framework is put on a CPU beside others on GPUs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from throughline import recipes, variants
from throughline.files import UserError
from throughline.launch import gpu_builds, machine
from throughline.launch.request import lacks_environment
from throughline.spec import RunSpec, Topology
from throughline.variants import Card, Facts
from training_fixtures import spec

H100 = Facts((Card("NVIDIA H100", (9, 0)),) * 2, "580.95.05")


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (variants.WANTED, variants.MACHINE, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(variants, "facts", lambda: H100)
    monkeypatch.setattr(recipes, "torch_cuda", lambda: "13.0")


def run_of(framework: str, device: str = "auto", topology: str = "1n1g") -> RunSpec:
    return replace(spec(), framework=framework, device=device, topology=Topology.parse(topology))


def test_a_framework_that_sees_no_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\necho '{"count": 0, "name": null, "fp16": null}'\n""")
    python.chmod(0o755)
    monkeypatch.setattr(machine, "DEVICE_FILES", {"cuda": ("/dev/null",)})
    with pytest.raises(UserError, match=r"jax sees no GPU, and this machine has 2 \(NVIDIA H100\)") as error:
        machine.gpus("jax", str(python), os.environ)
    assert "make frameworks" in str(error.value.next_step) and "runs.device: cpu" in str(error.value.next_step)
    assert machine.gpus("jax", str(python), os.environ, "cpu") == machine.NO_GPUS
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpus("jax", str(python), os.environ) == machine.NO_GPUS
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv(variants.WANTED, "none")
    assert machine.gpus("jax", str(python), os.environ) == machine.NO_GPUS


def test_a_framework_without_a_build_for_these_gpus_is_no_result_of_a_cpu() -> None:
    reason = lacks_environment(run_of("mxnet-horovod"), "/its/own/python")
    assert reason and "code up to 8.6 only" in reason and "runs.device: cpu measures it on the CPU" in reason
    assert lacks_environment(run_of("mxnet-horovod", "cpu"), "/its/own/python") is None
    assert lacks_environment(run_of("jax"), "/its/own/python") is None


def test_before_anything_is_made_missing_builds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_builds.check_here([run_of("jax"), run_of("torch"), run_of("hf-loop")]) == []
    (line,) = gpu_builds.check_here([run_of("jax"), run_of("mxnet-horovod", topology="1n2g")])
    assert line.startswith("mxnet-horovod has no build") and line.endswith("its runs say n/a")
    monkeypatch.setattr(recipes, "torch_cuda", lambda: "")
    with pytest.raises(UserError, match=r"torch-horovod gets the build for CPUs, and this machine has a GPU \(NV"):
        gpu_builds.check_here([run_of("jax"), run_of("torch-horovod")])
    assert gpu_builds.check_here([run_of("torch-horovod", "cpu")]) == []


@pytest.mark.parametrize(("visible", "there"), [(None, 2), ("1", 1)])
def test_before_anything_is_made_a_topology_with_too_many_gpus_is_refused(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, there: int
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_builds.check_here([run_of("jax", topology=f"1n{there}g")]) == []
    with pytest.raises(UserError, match=f"topology 1n4g needs 4 GPUs a machine, and there are {there}"):
        gpu_builds.check_here([run_of("jax", topology="1n4g")])
    assert gpu_builds.check_here([run_of("jax", "cpu", "1n4g")]) == []


def test_a_cluster_is_told_what_its_head_node_cannot_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "facts", Facts)
    (line,) = gpu_builds.doubts_elsewhere(["jax", "jax", "torch"])
    assert "jax gets the build for CPUs (this machine has no NVIDIA GPU)" in line and "GPU=cuda13" in line
    monkeypatch.setenv(variants.WANTED, "cuda13")
    assert gpu_builds.doubts_elsewhere(["jax", "torch"]) == []

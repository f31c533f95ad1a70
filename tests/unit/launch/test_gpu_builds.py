"""What is asked about GPUs before data are made, and that no framework is put on a CPU beside others on GPUs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from throughline import handover
from throughline.files import UserError
from throughline.installation import choose
from throughline.installation.choose import Card, Facts
from throughline.launch import gpu_builds, lock, machine
from throughline.launch.request import lacks_environment
from throughline.spec import RunSpec, Topology
from training_fixtures import spec

H100 = Facts((Card("NVIDIA H100", (9, 0)),) * 2, "580.95.05")


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (choose.WANTED, handover.VARIABLE, "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(choose, "facts", lambda: H100)
    monkeypatch.setattr(choose, "torch_cuda", lambda: "13.0")
    for name, folder in {"XDG_CACHE_HOME": "cache", "THROUGHLINE_LOCKS": "locks"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv(handover.VARIABLE, "")
    monkeypatch.setattr(machine, "DEVICE_FILES", {"cuda": ("/dev/null",)})


def environment(monkeypatch: pytest.MonkeyPatch, framework: str, count: int) -> Path:
    """Build a framework's environment, whose Python says that it sees `count` devices. Return the file in which it
    counts how often it was asked."""
    marker = choose.ready(framework)
    folder = marker.parent if marker else Path(sys.prefix)
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    (folder / "lib/python3.11/site-packages").mkdir(parents=True, exist_ok=True)
    asked = folder / "asked"
    answer = json.dumps({"count": count, "name": "NVIDIA H100" if count else None, "fp16": True})
    python.write_text(f"#!/bin/sh\necho asked >> '{asked}'\necho '{answer}'\n")
    python.chmod(0o755)
    if marker:
        marker.touch()
    else:
        monkeypatch.setattr(sys, "executable", str(python))
    return asked


def run_of(framework: str, device: str = "auto", topology: str = "1n1g") -> RunSpec:
    return replace(spec(), framework=framework, device=device, topology=Topology.parse(topology))


def test_a_framework_that_sees_no_gpu_or_has_no_build_is_no_result_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = lacks_environment(run_of("mxnet-horovod"), "/its/own/python")
    assert reason and "code up to 8.6 only" in reason and "runs.device: cpu measures it on the CPU" in reason
    assert lacks_environment(run_of("mxnet-horovod", "cpu"), "/its/own/python") is None
    assert lacks_environment(run_of("jax"), "/its/own/python") is None
    python = str(environment(monkeypatch, "jax", 0).parent / "bin/python")
    with pytest.raises(UserError, match=r"jax sees no GPU, and this machine has 2 \(NVIDIA H100\)(.|\n)*runs\.device"):
        machine.gpus("jax", python, os.environ)
    assert machine.gpus("jax", python, os.environ, "cpu") == machine.NO_GPUS


def test_before_anything_is_made_missing_builds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, "torch", 2)
    assert gpu_builds.check_here([run_of("jax"), run_of("torch"), run_of("hf-loop")]) == []
    none, nodes = gpu_builds.check_here([run_of("mxnet-horovod", topology="1n4g"), run_of("jax", "cpu", "2n4g")])
    assert none.startswith("mxnet-horovod has no build") and none.endswith("its runs say n/a")
    assert nodes.startswith("topologies of several nodes (2n4g): this machine is one, so their runs (1) will fail")
    monkeypatch.setattr(choose, "torch_cuda", lambda: "")
    with pytest.raises(UserError, match=r"torch-horovod gets the build for CPUs, and this machine has a GPU \(NV"):
        gpu_builds.check_here([run_of("jax"), run_of("torch-horovod")])
    assert gpu_builds.check_here([run_of("torch-horovod", "cpu")]) == []


@pytest.mark.parametrize(("visible", "there"), [(None, 2), ("1", 1)])
def test_before_anything_is_made_a_topology_with_too_many_gpus_is_refused(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, there: int
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_builds.check_here([run_of("jax", topology=f"1n{there}g"), run_of("jax", "cpu", "1n4g")]) == []
    with pytest.raises(UserError, match=f"topology 1n4g needs 4 GPUs a machine, and there are {there}"):
        gpu_builds.check_here([run_of("jax", topology="1n4g"), run_of("jax")])


def test_a_cluster_is_told_what_its_head_node_cannot_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "facts", Facts)
    (line,) = gpu_builds.doubts_elsewhere(["jax", "jax", "torch"])
    assert "jax gets the build for CPUs (this machine has no NVIDIA GPU)" in line and "GPU=cuda13" in line
    monkeypatch.setenv(choose.WANTED, "cuda13")
    assert gpu_builds.doubts_elsewhere(["jax", "torch"]) == []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert gpu_builds.check_here([run_of("jax", "cuda", "2n4g")]) == [], "the nodes of a job are not this machine"


def test_a_framework_that_sees_too_few_devices_is_refused_before_data_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good answer is kept until the environment changes. A bad one is not kept."""
    two = [run_of("jax", topology="1n1g"), run_of("jax", topology="1n2g")]
    assert gpu_builds.check_here(two) == [], "it is not built, and asked later"
    asked = environment(monkeypatch, "jax", 1)
    gpu_builds.check_built("paddle")
    with pytest.raises(UserError, match="topology 1n2g needs 2 devices a machine, and jax sees 1"):
        gpu_builds.check_built("jax")
    with pytest.raises(UserError, match=r"1n2g needs 2 devices a machine, and jax sees 1\n.*nvidia-smi shows 2"):
        gpu_builds.check_here(two)
    assert gpu_builds.check_here(two[:1]) == [] and asked.read_text().count("asked") == 1
    environment(monkeypatch, "jax", 2)
    (asked.parent / "lib/python3.11/site-packages/installed").touch()
    assert [gpu_builds.check_here(two) for _ in range(3)] == [[], [], []]
    assert asked.read_text().count("asked") == 2
    environment(monkeypatch, "jax", 0)
    (asked.parent / "lib/python3.11/site-packages/installed").unlink()
    for times in (3, 4):
        with pytest.raises(UserError, match=r"jax sees no GPU, and this machine has 2"):
            gpu_builds.check_here(two)
        assert asked.read_text().count("asked") == times


def test_nobody_is_asked_while_another_run_has_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = environment(monkeypatch, "jax", 0)
    with lock.device("results/other.json", lambda text: None):
        assert gpu_builds.check_here([run_of("jax")]) == []
    assert not asked.exists()


@pytest.mark.parametrize("built", [True, False])
def test_a_gpu_that_is_asked_for_and_not_there_is_noticed_before_data_are_made(
    monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    monkeypatch.setattr(choose, "facts", Facts)
    monkeypatch.setattr(machine, "DEVICE_FILES", {"cuda": ("/dev/no/such/file",)})
    asked = environment(monkeypatch, "jax", 2) if built else None
    with pytest.raises(UserError, match=r"runs\.device is cuda, but the framework sees no GPU here"):
        gpu_builds.check_here([run_of("jax", "cuda")])
    assert gpu_builds.check_here([run_of("jax")]) == [] and not (asked and asked.exists())

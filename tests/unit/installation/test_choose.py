"""Which build of each framework a machine gets, decided from facts about machines that we do not have."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from throughline import frameworks, handover
from throughline.files import UserError
from throughline.installation import choose, horovod, recipe
from throughline.installation.choose import Card, Facts

H100 = Facts((Card("NVIDIA H100 80GB HBM3", (9, 0)),) * 8, "580.95.05")
OLD_DRIVER = Facts((Card("NVIDIA A100-SXM4-40GB", (8, 0)),), "550.90.07")
V100 = Facts((Card("Tesla V100-SXM2-16GB", (7, 0)),), "580.95.05")
A40 = Facts((Card("NVIDIA A40", (8, 6)),), "580.95.05")
B200 = Facts((Card("NVIDIA B200", (10, 0)),), "580.95.05")
K80 = Facts((Card("Tesla K80", (3, 7)),), "470.82.01")
NOTHING = Facts()

NEW = {"jax": "cuda13", "tensorflow": "cuda12", "paddle": "cuda13", "torch": "cuda13"}
HOROVOD = {"mxnet-horovod": "cuda112"}
OLD = HOROVOD | {"jax": "cuda12", "tensorflow": "cuda12", "paddle": "cuda126", "torch": "cuda126"}
EXPECTED = {
    ("auto", H100): NEW, ("auto", B200): NEW, ("auto", A40): NEW | HOROVOD, ("auto", OLD_DRIVER): OLD,
    ("auto", V100): OLD, ("auto", K80): HOROVOD, ("auto", NOTHING): {}, ("none", H100): {},
    ("cuda13", NOTHING): NEW | HOROVOD, ("cuda12", H100): OLD,
}  # fmt: skip
"""Map what the user wants and the facts to the build of each framework; the others get the CPU build."""


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (choose.WANTED, handover.VARIABLE, "CUDA_VISIBLE_DEVICES", "HOROVOD_GPU_OPERATIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    machine(monkeypatch, NOTHING, None)


def machine(monkeypatch: pytest.MonkeyPatch, facts: Facts, torch: str | None = None) -> None:
    """Let this machine have other GPUs, and the workflow's torch be for another CUDA."""
    monkeypatch.setattr(choose, "facts", lambda: facts)
    monkeypatch.setattr(choose, "torch_cuda", lambda: torch)


def builds(framework: str) -> list[recipe.Build]:
    return recipe.read(framework).builds


@pytest.mark.parametrize(("wants", "facts"), EXPECTED, ids=lambda value: getattr(value, "driver", value) or "no GPU")
def test_every_framework_gets_the_newest_build_that_runs(wants: str, facts: Facts) -> None:
    for framework in ("jax", "tensorflow", "paddle", "torch", "mxnet-horovod"):
        chosen, reason = choose.choose(builds(framework), wants, facts)
        assert (chosen.name if chosen else None) == EXPECTED[wants, facts].get(framework), reason
        assert reason
    assert all(builds(name) for name in frameworks.NAMES)


def test_why_there_is_no_build_is_said_with_the_figures() -> None:
    _, hopper = choose.choose(builds("mxnet-horovod"), "auto", H100)
    assert "compute capability 9.0" in hopper and "CUDA 11.2 have code up to 8.6 only" in hopper
    _, old = choose.choose(builds("jax"), "auto", K80)
    assert "CUDA 13 needs driver 580 or newer, and 470.82.01 is installed" in old and "driver 525" in old
    chosen, blackwell = choose.choose(builds("torch"), "auto", Facts(B200.cards, "570.1"))
    assert chosen is None and "CUDA 12.6 have code up to 9.0 only" in blackwell
    assert blackwell.endswith("install NVIDIA's driver 580 or newer") and "install" not in hopper


def test_finished_environments_keep_their_names() -> None:
    before = {
        "jax": "b46c9d2e09b7", "tensorflow": "003e75bf3c7f", "paddle": "75b992321139",
        "mxnet-horovod": "9785da5d9a18", "torch-horovod": "ec06645ab4de", "hf-loop": "684d32edf72d",
    }  # fmt: skip
    found = {name: environment for name in before if (environment := choose.environment(name))}
    assert {name: environment.build for name, environment in found.items()} == dict.fromkeys(before)
    pins = {name: environment.pins for name, environment in found.items()}
    assert pins == before, "a change of pins makes every environment again: then change the digest here"
    gpus = {"jax": "5d1b7ae1ac66", "paddle": "cbef60e00430", "mxnet-horovod": "d42d0fcd507f"}
    assert {name: recipe.read(name).for_gpus(builds(name)[0]).pins for name in gpus} == gpus


def test_what_the_user_wants_and_which_machine_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `make` was told stays. Jobs on other machines choose what the first machine chose."""
    assert choose.wanted() == "auto"
    monkeypatch.setenv(handover.VARIABLE, handover.packed(cards=choose.packed(H100)))
    assert choose.deciding() == H100 and choose.build_of("jax")[0] == "cuda13"
    (tmp_path / "gpu").write_text("cuda12\n")
    assert choose.wanted() == "cuda12" and choose.build_of("jax")[0] == "cuda12"
    monkeypatch.setenv(choose.WANTED, "0")
    with pytest.raises(UserError, match=r"GPU=0 is no choice(.|\n)*GPU=auto, none, cuda12 or cuda13"):
        choose.wanted()


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("printf 'NVIDIA H100, 580.95.05, 81559 MiB, 9.0\\nNVIDIA H100, 580.95.05, 81559 MiB, 9.0\\n'",
         Facts((Card("NVIDIA H100", (9, 0), "81559 MiB"),) * 2, "580.95.05")),
        ("case $1 in *cap*) echo 'not a valid field' >&2; exit 2;; esac; echo 'Tesla K80, 470.1, 11441 MiB'",
         Facts((Card("Tesla K80", (), "11441 MiB"),), "470.1")),
        ("echo 'NVIDIA-SMI has failed' ; exit 9", NOTHING),
    ],
)  # fmt: skip
def test_the_drivers_program_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, facts: Facts
) -> None:
    monkeypatch.undo()
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert choose.facts.__wrapped__() == facts


def test_a_framework_without_a_build_says_so_only_beside_others_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, H100)
    assert "mxnet-horovod has no build for this machine's GPUs" in str(choose.no_build("mxnet-horovod"))
    assert choose.no_build("jax") is None and choose.no_build("hf-loop") is None
    for name, value in (("CUDA_VISIBLE_DEVICES", ""), (choose.WANTED, "none")):
        with monkeypatch.context() as hidden:
            hidden.setenv(name, value)
            assert choose.no_build("mxnet-horovod") is None
    machine(monkeypatch, K80)  # too old for every framework of today, so it is a machine of CPUs
    assert choose.no_build("jax") is None and choose.unused_gpus() is None


@pytest.mark.parametrize(
    ("build", "torch", "nvcc", "lacks"),
    [
        ("cuda126", "12.6", None, "needs CUDA's compiler nvcc 12, and there is no nvcc here"),
        ("cuda126", "12.6", "13.0", "this machine has nvcc 13.0"),
        ("cuda126", "12.6", "12.4", None),
        ("cuda13", "13.0", None, None),  # its compiler is among the pins
        ("none", "13.2", None, "torch-horovod for CUDA 13.2 needs CUDA's compiler nvcc 13"),
        ("none", "", None, None),
        ("none", "11.8", "11.8", None),
    ],
)
def test_all_on_torch_follows_the_workflows_torch_and_a_missing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, build: str, torch: str, nvcc: str | None, lacks: str | None
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    monkeypatch.setattr(choose, "interpreter", lambda version: sys.executable)
    monkeypatch.setattr(horovod, "nvcc_version", lambda: nvcc)
    monkeypatch.setattr(horovod, "_nvcc", lambda: nvcc and "/usr/local/cuda/bin/nvcc")
    machine(monkeypatch, H100, torch)
    assert choose.build_of("torch-horovod")[0] == choose.build_of("hf-loop")[0] == build
    assert torch or "make run GPU=auto" in choose.build_of("torch-horovod")[1]
    reason = choose.lacking("torch-horovod")
    assert lacks in reason if lacks and reason else lacks is reason is None

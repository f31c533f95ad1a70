"""What the installation does for GPUs: which torch, and CUDA's compiler and NCCL out of Python packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from throughline.files import UserError
from throughline.installation import choose, horovod, recipe, torch_build
from throughline.installation.build import _install_torch, _link_libraries
from throughline.installation.choose import Card, Facts

PIN = "torch==2.13.0"
INDEX = "https://download.pytorch.org/whl"


def test_the_driver_and_the_card_decide_which_torch() -> None:
    h100, v100 = Facts((Card("", (9, 0)),), "580.1"), Facts((Card("", (7, 0)),), "580.1")
    asked = (("auto", h100), ("auto", v100), ("none", h100), ("auto", Facts()), ("auto", Facts(h100.cards, "470.1")))
    assert [torch_build.label(*words) for words in asked] == ["", "cu126", "cpu", None, None]


@pytest.mark.parametrize(
    ("workflow", "build", "index", "tried"),
    [
        (("cpu", ""), None, "", [f"{PIN}+cpu", f"--extra-index-url {INDEX}/cpu {PIN}+cpu"]),
        (("cpu", ""), None, "https://x/cpu", [f"--extra-index-url https://x/cpu {PIN}+cpu"]),
        (("cpu", ""), "cuda126", "", [f"{PIN}+cu126", f"--extra-index-url {INDEX}/cu126 {PIN}+cu126"]),
        (("", "13.0"), None, "", ["torch===2.13.0"]),
        ((None, None), "cuda13", "https://x/cu", ["--extra-index-url https://x/cu torch===2.13.0"]),
        ((None, None), None, "", [PIN]),
    ],
)
def test_an_environment_gets_the_torch_of_the_workflow_and_the_usual_indexes_are_tried_first(
    monkeypatch: pytest.MonkeyPatch, workflow: tuple[Any, Any], build: str | None, index: str, tried: list[str]
) -> None:
    """Every attempt fails here, so all of them are made, and the last one's error is raised."""
    monkeypatch.setattr(choose, "torch_label", lambda: workflow[0])
    monkeypatch.setattr(choose, "torch_cuda", lambda: workflow[1])
    monkeypatch.setenv("TORCH_INDEX", index)
    asked: list[str] = []

    def run(*command: str) -> None:
        asked.append(" ".join(command).rpartition(".txt ")[2])
        raise UserError(f"no {asked[-1]}")

    runner: Any = run
    runner.python, runner.recipe = "python", recipe.read("torch-horovod")
    for one in runner.recipe.builds:
        runner.recipe = runner.recipe.for_gpus(one) if one.name == build else runner.recipe
    with pytest.raises(UserError, match="no ") as caught:
        _install_torch(runner, PIN)
    assert asked == tried and str(caught.value.what) == f"no {tried[-1]}"


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.fixture(autouse=True)
def no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(horovod, "builds_mpi", lambda: True)


def test_packages_get_the_shape_of_a_toolkit(tmp_path: Path) -> None:
    nvidia = tmp_path / "environment/lib/python3.11/site-packages/nvidia"
    files(nvidia / "cu13", "bin/nvcc", "bin/crt/link.stub", "include/cuda.h", "nvvm/bin/cicc", "lib/libcudart.so.13")
    files(nvidia / "nccl", "include/nccl.h", "lib/libnccl.so.2")
    flags = horovod.flags(tmp_path / "environment", "13", tmp_path / "work", nccl=True)
    home = Path(flags["HOROVOD_CUDA_HOME"])
    assert home == tmp_path / "work/cuda" and flags["CUDA_HOME"] == str(home) and flags["HOROVOD_WITH_MPI"] == "1"
    assert not (home / "bin/nvcc").is_symlink() and (home / "bin/crt/link.stub").is_file()
    assert (home / "include/cuda.h").is_file() and (home / "nvvm/bin/cicc").is_file()
    assert (home / "lib64/libcudart.so").read_text() == "lib/libcudart.so.13"
    assert flags["HOROVOD_GPU_OPERATIONS"] == "NCCL" and flags["HOROVOD_NCCL_LINK"] == "SHARED"
    assert Path(flags["HOROVOD_NCCL_HOME"], "include/nccl.h").is_file()
    assert Path(flags["HOROVOD_NCCL_LIB"], "libnccl.so").is_file()


def test_without_the_compiler_among_the_packages_the_machines_toolkit_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path / "lib/python3.11/site-packages/nvidia/cublas", "lib/libcublas.so.12")
    monkeypatch.setattr(horovod, "toolkit", lambda cuda: "/usr/local/cuda")
    monkeypatch.setattr(horovod, "builds_mpi", lambda: False)
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "GLOO")
    flags = {"HOROVOD_WITHOUT_MPI": "1", "HOROVOD_CPU_OPERATIONS": "GLOO"}
    assert horovod.flags(tmp_path, "", tmp_path / "work", nccl=True) == flags
    homes = {"HOROVOD_CUDA_HOME": "/usr/local/cuda", "CUDA_HOME": "/usr/local/cuda"}
    assert horovod.flags(tmp_path, "12.6", tmp_path / "work", nccl=False) == flags | homes


def test_a_package_finds_nvidias_libraries_in_its_own_folder(tmp_path: Path) -> None:
    packages = tmp_path / "lib/python3.11/site-packages"
    files(packages, "mxnet/libmxnet.so", "nvidia/cudnn/lib/libcudnn.so.8", "nvidia/cuda_runtime/lib/libcudart.so.11.0")
    for _ in range(2):
        _link_libraries(tmp_path, "mxnet")
    linked = {path.name for path in (packages / "mxnet").iterdir() if path.is_symlink() and path.is_file()}
    assert linked == {"libcudnn.so.8", "libcudart.so.11.0"}

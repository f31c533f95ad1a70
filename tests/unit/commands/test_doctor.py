"""`make doctor` says what is here and how to get what is missing, even on a machine that has nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from throughline import handover
from throughline.commands import doctor
from throughline.installation import choose, recipe
from throughline.installation.choose import Card, Facts
from throughline.launch import machine

FILE = Path(__file__).parents[3] / "src/throughline/commands/doctor.py"


def ask(python: str, path: str, home: Path) -> str:
    """Run it as `make doctor` does, without any package; check that the exit status is 0, and return the output."""
    variables = {"PATH": path, "HOME": str(home)}
    done = subprocess.run([python, "-I", "-S", str(FILE)], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def a_card(folder: Path) -> str:
    """Write an nvidia-smi that names one GPU, and return a path with its folder."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100, 580.95.05, 81559 MiB, 9.0'\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_what_is_missing_comes_with_the_command_that_installs_it(tmp_path: Path) -> None:
    text = ask(sys.executable, str(tmp_path), tmp_path)
    assert "no environment built yet: make frameworks" in text and "yes  make run: Python" in text
    assert len(text.splitlines()) < 40 and max(map(len, text.splitlines())) < 200
    lines = [line for line in text.splitlines() if line.startswith("  no ")]
    assert len(lines) >= 6
    assert all(re.search(r": .+ missing; .*install \S+", line) for line in lines), lines
    assert any("Horovod over MPI: mpicxx, mpirun missing" in line for line in lines)
    if not any(Path("/dev").glob("nvidia[0-9]*")) and "hf-loop" not in text:  # all on PyTorch's CUDA build have lines
        assert "  all: for CPUs, this machine has no NVIDIA GPU\n" in text


def test_every_framework_has_a_line_with_its_build_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also says how many GPUs the framework sees. Here none of them has a device file."""
    monkeypatch.setattr(choose, "facts", lambda: Facts((Card("NVIDIA H100", (9, 0)),), "580.95.05"))
    for name in (choose.WANTED, handover.VARIABLE, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    marker = choose.ready("jax")
    assert marker
    (marker.parent / "bin").mkdir(parents=True)
    for file in (marker, marker.parent / "bin" / "python"):
        file.touch()
    text = ask(sys.executable, a_card(tmp_path), tmp_path)
    seen = "; it sees 0 of 1 GPUs" if not any(map(os.path.exists, machine.DEVICE_FILES["cuda"])) else ""
    for line in (
        r"  frameworks +jax-cuda13",
        r"  yes  make run: its programs",
        r"  GPU +NVIDIA H100, 81559 MiB, driver 580\.95\.05, compute capability 9\.0",
        rf"  jax +cuda13: NVIDIA H100, driver 580\.95\.05{seen}",
        r"  paddle +cuda13: NVIDIA H100, driver 580\.95\.05",  # it is not built
        r"  mxnet-horovod +for CPUs: NVIDIA H100 has compute capability 9\.0, .* up to 8\.6 only",
    ):
        assert re.search(rf"\n{line}\n", text), line


SMI = """#!{python}
import sys
known = ["name", "driver_version", "memory.total"] + {more}
asked = sys.argv[1].removeprefix("--query-gpu=").split(",")
for field in asked:
    if field not in known:
        sys.exit(f'Field "{{field}}" is not a valid field to query.')
for row in {rows}:
    print(", ".join(dict(zip(known, row))[field] for field in asked))
"""
"""An nvidia-smi that answers as `nvidia-smi --help-query-gpu` describes. Older drivers know fewer fields."""
MACHINES = {
    "V100": (
        ["compute_cap", "mig.mode.current"],
        [["Tesla V100-SXM2-32GB", "535.183.01", "32768 MiB", "7.0", "[N/A]"]] * 8,
        "Tesla V100-SXM2-32GB, 32768 MiB, driver 535.183.01, compute capability 7.0",
        "cuda126",
    ),
    "old driver": (
        [],
        [["Tesla V100-SXM2-16GB", "440.33.01", "16160 MiB"]],
        "Tesla V100-SXM2-16GB, 16160 MiB, driver 440.33.01, compute capability unknown",
        None,
    ),
    "A100": (
        ["compute_cap"],
        [["NVIDIA A100-SXM4-80GB", "525.147.05", "81920 MiB", "8.0"]] * 4,
        "NVIDIA A100-SXM4-80GB, 81920 MiB, driver 525.147.05, compute capability 8.0",
        "cuda126",
    ),
    "H100 with MIG": (
        ["compute_cap", "mig.mode.current"],
        [["NVIDIA H100 80GB HBM3", "580.95.05", "81559 MiB", "9.0", "Enabled"]],
        "NVIDIA H100 80GB HBM3, 81559 MiB, driver 580.95.05, compute capability 9.0, in MIG mode: choose a "
        "slice with CUDA_VISIBLE_DEVICES=MIG-... (nvidia-smi -L lists them)",
        "cuda13",
    ),
    "B200": (
        ["compute_cap", "mig.mode.current"],
        [["NVIDIA B200", "570.133.20", "183359 MiB", "10.0", "Disabled"]] * 8,
        "NVIDIA B200, 183359 MiB, driver 570.133.20, compute capability 10.0",
        None,
    ),
    "GB10": (
        ["compute_cap", "mig.mode.current"],
        [["NVIDIA GB10", "580.95.05", "[N/A]", "12.1", "[N/A]"]],
        "NVIDIA GB10, memory not stated, driver 580.95.05, compute capability 12.1",
        "cuda13",
    ),
}
"""Fields that the driver knows beside the oldest, the answers of all GPUs, the doctor's line about a GPU, and the build
of PyTorch."""


@pytest.mark.parametrize("machine", MACHINES)
def test_what_nvidia_smi_says_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    more, rows, line, build = MACHINES[machine]
    (tmp_path / "nvidia-smi").write_text(SMI.format(python=sys.executable, more=more, rows=rows))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert doctor.gpus() == [line] * len(rows)
    chosen, reason = choose.choose(recipe.read("torch").builds, "auto", choose.nvidia_smi())
    assert (chosen and chosen.name) == build, reason
    assert build or "driver" in reason


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (None, "none: runs are on the CPU"),
        ("echo 'No devices were found'; exit 6", "nvidia-smi fails: No devices were found"),
        ("echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"; exit 9",
         "nvidia-smi fails: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
    ],
)  # fmt: skip
def test_a_machine_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, line: str
) -> None:
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    elif any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.gpus() == [line]


def test_another_python_is_told_which_ones_can_run_the_workflow(tmp_path: Path) -> None:
    others = [f"/usr/bin/python3.{minor}" for minor in (7, 8, 9, 10, 14)]
    others += map(str, Path.home().glob(".pyenv/versions/3.[789].*/bin/python"))
    other_python = next((python for python in others if Path(python).is_file()), None)
    if other_python is None:
        pytest.skip("there is no Python here that cannot run the workflow")
    text = ask(other_python, os.environ["PATH"], tmp_path)
    assert "Throughline needs Python 3.11, 3.12 or 3.13" in text or "Python 3.11, 3.12 or 3.13 missing" in text

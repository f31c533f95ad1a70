"""Which GPUs a framework sees. If the question fails, an error repeats its words; the CPU is never used silently."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from throughline.files import UserError
from throughline.launch import machine
from throughline.messages import Gpus, Question


@pytest.fixture(autouse=True)
def a_machine_that_may_have_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DEVICE_FILES", {"cuda": ("/dev/null",)})


def python(folder: Path, script: str) -> str:
    """Make a false Python of a framework's environment: it runs `script`, whatever it is asked to run."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def asked(path: str, framework: str = "torch") -> Gpus:
    return machine.gpus(framework, path, os.environ)


def test_what_a_framework_prints_before_its_answer_is_not_in_the_way(tmp_path: Path) -> None:
    answer = """echo hello; echo '{"count": 2, "name": "H100", "fp16": true}'"""
    assert asked(python(tmp_path, answer)) == Gpus("cuda", 2, "H100", True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Traceback ...' >&2; echo 'RuntimeError: the driver is too old' >&2; exit 1", "the driver is too old"),
        ("exit 3", "its process ended with status 3"),
        ("kill -SEGV $$", "its process ended with status -11"),
        ("echo no answer", "its process ended with status 0"),
        ("true", "its process ended with status 0"),
        ("exec sleep 30", "it did not answer within 1 s"),
    ],
)
def test_a_question_that_fails_is_an_error_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(machine, "PROBE_S", 1.0 if "sleep" in script else 60.0)
    with pytest.raises(UserError, match="torch could not say which GPUs there are") as error:
        asked(python(tmp_path, script))
    assert words in str(error.value.why) and "runs.device: cpu" in str(error.value.next_step)


BROKEN = """
import sys, torch, warnings
torch.cuda.is_available = lambda: bool(warnings.warn("CUDA initialization: Error 803"))
exec(sys.argv[1])
"""


@pytest.mark.slow
def test_a_driver_that_fails_is_no_machine_without_gpus(tmp_path: Path) -> None:
    """PyTorch only prints a warning in this case, and answers that there is no GPU."""
    pytest.importorskip("torch")
    with pytest.raises(UserError) as error:
        asked(python(tmp_path, f'exec {sys.executable} -c {shlex.quote(BROKEN)} "$2"'))
    assert "CUDA initialization: Error 803" in str(error.value.why)


@pytest.mark.slow
def test_a_real_framework_without_gpus_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert asked(sys.executable) == machine.NO_GPUS


@pytest.mark.slow
def test_a_node_whose_gpus_cannot_be_asked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seen").touch()
    monkeypatch.setattr(sys, "executable", python(tmp_path, "echo 'RuntimeError: no driver' >&2; exit 1"))
    question = Question(
        framework="torch", model="bert-tiny", device="auto", seen=str(tmp_path / "seen"),
        record=str(tmp_path / "run1.json"), ranks=1, threads=1, strict=False, rank_bytes=0,
    )  # fmt: skip
    refused = machine.answer(question).refused
    assert refused is not None and refused.why == "RuntimeError: no driver"


@pytest.mark.parametrize(
    ("devices", "given", "variables"),
    [
        (None, {"CUDA_VISIBLE_DEVICES": "0,1"}, {}),
        ((5,), {}, {"CUDA_VISIBLE_DEVICES": "5"}),
        ((1,), {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"}, {"CUDA_VISIBLE_DEVICES": "GPU-b"}),
        ((0, 2), {"HIP_VISIBLE_DEVICES": "4,5,6"}, {"HIP_VISIBLE_DEVICES": "4,6"}),
    ],
)
def test_a_run_sees_only_its_devices(
    devices: tuple[int, ...] | None, given: dict[str, str], variables: dict[str, str]
) -> None:
    assert machine.only(devices, given) == variables


def test_a_device_that_is_hidden_cannot_be_measured() -> None:
    with pytest.raises(UserError, match="GPU 2 is to be measured, and this process sees 2"):
        machine.only((2,), {"CUDA_VISIBLE_DEVICES": "0,1"})

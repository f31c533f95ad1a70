"""What a node answers about itself: the GPUs that a framework sees, and whether it can compile for them.

If the question fails, an error repeats its words. The CPU is never used silently.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

import training_fixtures
from throughline import gpus as cards
from throughline.files import UserError
from throughline.launch import machine, survey
from throughline.messages import Gpus, Question
from throughline.processes import output
from unit.launch.conftest import Program

CARDS = Gpus(kind="cuda", count=1, name="NVIDIA H100", fp16=True)


@pytest.fixture(autouse=True)
def a_machine_that_may_have_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DEVICE_FILES", {"cuda": ("/dev/null",)})


def gpus(python: str) -> Gpus:
    return machine.gpus("torch", python, os.environ)


def test_what_a_framework_prints_before_its_answer_is_not_in_the_way(program: Program) -> None:
    python = program("python", """echo hello; echo '{"count": 2, "name": "H100", "fp16": true}'""")
    assert gpus(python) == Gpus("cuda", 2, "H100", True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Traceback ...' >&2; echo 'RuntimeError: the driver is too old' >&2; exit 1", "the driver is too old"),
        ("kill -SEGV $$", "its process ended with status -11"),
        ("echo no answer", "its process ended with status 0"),
        ("exec sleep 30", "it did not answer within 1 s"),
    ],
)
def test_a_question_that_fails_is_an_error_with_its_words(
    program: Program, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(machine, "PROBE_S", 1.0 if "sleep" in script else 60.0)
    with pytest.raises(UserError, match="torch could not say which GPUs there are") as error:
        gpus(program("python", script))
    assert words in str(error.value.why) and "runs.device: cpu" in str(error.value.next_step)


BROKEN = """
import sys, torch, warnings
torch.cuda.is_available = lambda: bool(warnings.warn("CUDA initialization: Error 803"))
exec(sys.argv[1])
"""


@pytest.mark.slow
def test_a_driver_that_fails_is_no_machine_without_gpus(program: Program) -> None:
    """PyTorch only prints a warning in this case, and answers that there is no GPU."""
    torch = pytest.importorskip("torch")
    with pytest.raises(UserError) as error:
        gpus(program("python", f'exec {sys.executable} -c {shlex.quote(BROKEN)} "$2"'))
    assert "CUDA initialization: Error 803" in str(error.value.why)
    if not torch.cuda.is_available():
        assert gpus(sys.executable) == machine.NO_GPUS


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
    assert survey.only_devices(devices, given) == variables
    with pytest.raises(UserError, match="GPU 2 is to be measured, and this process sees 2"):
        survey.only_devices((2,), {"CUDA_VISIBLE_DEVICES": "0,1"})
    with pytest.raises(UserError, match="GPU 0 is to be measured, and this process sees 0"):
        survey.only_devices((0,), {"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("names", "visible"),
    [
        (None, None),
        ("", []),
        ("NoDevFiles", []),
        ("2, 0", ["2", "0"]),
        ("1,-1,0", ["1"]),
        ("GPU-8932f937,MIG-8f21a", ["GPU-8932f937", "MIG-8f21a"]),
    ],
)
def test_visible_devices(names: str | None, visible: list[str] | None) -> None:
    assert cards.visible_devices(names) == visible


@pytest.mark.parametrize(
    ("missing", "variables", "what"),
    [
        (None, {}, None),
        ("gcc", {"CC": "cc-12 -O2"}, None),
        ("gcc", {}, "neither gcc nor clang"),
        (None, {"CC": "icc"}, "CC names icc"),
        ("Python.h", {}, "Python.h does not exist"),
        ("python", {}, "it does not say"),
    ],
)
def test_compiling_needs_a_compiler_and_headers(
    program: Program, tmp_path: Path, missing: str | None, variables: dict[str, str], what: str | None
) -> None:
    (tmp_path / "Python.h").touch()
    for name, body in {"gcc": "", "cc-12": "", "python": f"echo {tmp_path}"}.items():
        program(name, body)
    if missing:
        (tmp_path / missing).unlink()
    node = {"PATH": str(tmp_path), **variables}
    if what is None:
        machine.check_compiler(str(tmp_path / "python"), node)
        return
    with pytest.raises(UserError, match=what) as error:
        machine.check_compiler(str(tmp_path / "python"), node)
    assert "apt install gcc python3-dev" in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cards", "compiles", "why"),
    [(CARDS, True, "C compiler"), (CARDS, False, None), (machine.NO_GPUS, True, None), (None, False, "no driver")],
)
def test_a_node_says_in_its_answer_why_it_is_not_fit(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cards: Gpus | None,
    compiles: bool,
    why: str | None,
) -> None:
    """It is asked with the interpreter of the ranks. Without `cards`, they cannot be asked for."""
    assert output(sys.executable, "-c", machine.INCLUDE), "an interpreter says where its headers are"
    if cards is None:
        monkeypatch.setattr(sys, "executable", program("python", "echo 'RuntimeError: no driver' >&2; exit 1"))
    else:
        monkeypatch.setattr(machine, "gpus", lambda *_: cards)
    monkeypatch.setenv("CC", "no-such-compiler")
    (tmp_path / "seen").touch()
    question = Question(
        framework="torch", model="bert-tiny", device="auto", seen=str(tmp_path / "seen"), compiles=compiles,
        record=str(tmp_path / "run1.json"), ranks=1, threads=1,
    )  # fmt: skip
    refused = machine.answer(question).refused
    assert refused is None if why is None else refused and why in f"{refused.what} {refused.why}"


def test_without_padding_a_gpus_memory_grows_in_place_unless_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    grows = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    for value, kind in ((True, "cuda"), ("auto", "cuda"), (False, "cuda"), (True, "cpu")):
        expected = grows if value and kind == "cuda" else {}
        spec = training_fixtures.spec(options={"remove_padding": value})
        assert survey.allocator(spec, kind) == expected
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        with monkeypatch.context() as user:
            user.setenv(name, "max_split_size_mb:64")
            assert survey.allocator(training_fixtures.spec(options={"remove_padding": True}), "cuda") == {}

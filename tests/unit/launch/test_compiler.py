"""A node with GPUs that cannot compile is refused before a run, with what to install."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline.files import UserError
from throughline.launch import machine
from throughline.messages import Gpus, Question

CARDS = Gpus(kind="cuda", count=1, name="NVIDIA H100", fp16=True)


def program(folder: Path, name: str, text: str = "") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """The variables of a node with a compiler, and with a Python that has headers."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include/Python.h").touch()
    program(tmp_path, "gcc")
    program(tmp_path, "python", f"echo {tmp_path / 'include'}")
    return {"PATH": str(tmp_path)}


def test_a_node_that_can_compile(tmp_path: Path, node: dict[str, str]) -> None:
    machine.check_compiler(str(tmp_path / "python"), node)
    (tmp_path / "gcc").rename(tmp_path / "my-cc")
    machine.check_compiler(str(tmp_path / "python"), {**node, "CC": "my-cc -O2"})


@pytest.mark.parametrize(
    ("removed", "variables", "what"),
    [
        ("gcc", {}, "neither gcc nor clang"),
        (None, {"CC": "icc"}, "CC names icc"),
        ("include/Python.h", {}, "Python.h does not exist"),
        ("python", {}, "it does not say"),
    ],
)
def test_a_node_that_cannot(
    tmp_path: Path, node: dict[str, str], removed: str | None, variables: dict[str, str], what: str
) -> None:
    if removed:
        (tmp_path / removed).unlink()
    with pytest.raises(UserError, match=what) as error:
        machine.check_compiler(str(tmp_path / "python"), {**node, **variables})
    assert "apt install gcc python3-dev" in str(error.value)


@pytest.mark.parametrize(
    ("framework", "compiles", "needed"),
    [("torch", True, True), ("hf-trainer", True, True), ("torch", False, False), ("tensorflow", True, False)],
)
def test_who_needs_one(framework: str, compiles: bool, needed: bool) -> None:
    spec = training_fixtures.spec(framework=framework, options={"compile": compiles})
    assert machine.needs_compiler(spec) == needed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cards", "compiles", "refused"), [(CARDS, True, True), (CARDS, False, False), (machine.NO_GPUS, True, False)]
)
def test_a_node_says_so_in_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cards: Gpus, compiles: bool, refused: bool
) -> None:
    (tmp_path / "seen").touch()
    monkeypatch.setattr(machine, "gpus", lambda *_: cards)
    monkeypatch.setenv("CC", "no-such-compiler")
    given: dict[str, Any] = {"framework": "torch", "model": "bert-tiny", "device": "auto"}
    given |= {"record": str(tmp_path / "run1.json"), "ranks": 1, "threads": 1, "strict": False, "rank_bytes": 0}
    fault = machine.answer(Question(**given, seen=str(tmp_path / "seen"), compiles=compiles)).refused
    assert (fault is not None and "C compiler" in fault.what) == refused


def test_this_machine_is_asked_with_the_interpreter_of_the_ranks() -> None:
    assert machine._headers(sys.executable, os.environ) is not None

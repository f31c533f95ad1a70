"""Files are complete or absent. Nothing that we write names a machine: no nodes, addresses, users or tokens."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from throughline import files, handover


def test_what_is_written_is_whole(tmp_path: Path) -> None:
    files.write_json(tmp_path / "new" / "a.json", {"b": 1})
    assert files.read_json(tmp_path / "new" / "a.json") == {"b": 1}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError), files.atomic(path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_number_that_json_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", float("nan"))
    assert list(tmp_path.iterdir()) == []


def test_broken_json_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"b":')
    with pytest.raises(files.UserError, match="run snakemake again"):
        files.read_json(tmp_path / "a.json")


def test_a_user_error_ends_a_command_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise files.UserError("the disk is full", why="0 bytes are free", next_step="free some")

    with pytest.raises(SystemExit) as stopped:
        files.command_line(main)
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: the disk is full\n  why:  0 bytes are free\n  next: free some\n"


def test_a_command_names_the_configuration_that_the_workflow_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handover.VARIABLE, raising=False)
    assert files.started_with([], {}) == "" and files.snakemake("a b") == "snakemake 'a b'"
    given = files.started_with([Path("presets/x.yaml").absolute()], {"runs": {"hosts": ["secret"], "repeats": "3"}})
    monkeypatch.setenv(handover.VARIABLE, handover.packed(started_with=given))
    command = files.snakemake("--force", "results/a.json")
    words = ["--configfile", "presets/x.yaml", "--config", 'runs={"hosts": "...", "repeats": "3"}']
    assert shlex.split(command) == ["snakemake", "--force", "results/a.json", *words]


@pytest.fixture
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables of a user's session on the second of two nodes."""
    monkeypatch.setenv("HOME", "/gpfs/people/ada.l")
    monkeypatch.setenv("LOGNAME", "ada.l")
    monkeypatch.setenv(files.NODES, "gpu-07.cluster.example eve@gpu-12")
    monkeypatch.setenv("HF_TOKEN", "hf-secret-of-ada")
    monkeypatch.setenv("DB_PASSWORD", "correct horse")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("gpu-07 and gpu-12 and gpu-07.cluster.example:29500", "node0 and node1 and node0:29500"),
        ("gpu-12.cluster.example, gpu-12.local", "node1, node1"),
        ("gpu-120, my-gpu-12", "gpu-120, my-gpu-12"),
        ("/gpfs/people/ada.l/cache and '/gpfs/people/ada.l'", "~/cache and '~'"),
        ("/home/bob/x /Users/bob/y", "~/x ~/y"),
        ("run by ada.l. and eve@gpu-12", "run by USER. and USER@node1"),
        ("hf-secret-of-ada, correct horse!", "MASKED, MASKED!"),
        ("hf_aBcDeFgH12345678 ghp_0123456789abcdef", "MASKED MASKED"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer MASKED"),
        ("https://ada:pw@mirror.example/x", "https://MASKED@mirror.example/x"),
        ("WANDB_API_KEY=abc --password='p q' 'token': 'abcdefgh1'", None),
        ("10.1.2.3:80 fe80::1:2:3:4 02:42:ac:11:00:02", "ADDRESS:80 ADDRESS ADDRESS"),
    ],
)
def test_what_names_a_place_is_masked(somewhere: None, text: str, clean: str | None) -> None:
    if clean is None:
        assert not [secret for secret in ("abc", "'p") if secret in files.scrub(text)]
    else:
        assert files.scrub(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:29500 [::1] torch 2.13.0, std::move, at 12:30:45 1.2.3 s, 2026-11-20T12:00:00Z",
        "TOKENIZERS_PARALLELISM=false tokens: 131072, 5 tokens = 3 words",
        "data/sample/seq32/training_0001.hdf5 /usr/lib/x.so /opt/conda/bin/python",
        "user 1.2 s, system 0.3 s; torch.nn.functional",
    ],
)
def test_what_names_none_stays(somewhere: None, text: str) -> None:
    assert files.scrub(text) == text


def test_a_short_name_is_masked_as_a_word_if_it_is_no_word_of_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.NODES, "n1 me@g7 it 7 .")
    assert files.scrub("n1 and g7, n1.cluster.example:29500") == "node0 and node1, node0:29500"
    text = "n12, an1, n1-ib, n10 and 1n1g: it took 7 s. The end"
    assert files.scrub(text) == text


@pytest.mark.parametrize("name", ["n1", "workstation"])
def test_this_machine_is_the_first_node_where_no_other_is_known(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(files.NODES, raising=False)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=name))
    assert files.scrub(f"at {name} now") == "at node0 now"


def test_paths_of_the_project_become_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "it's here (1)"
    here.mkdir()
    monkeypatch.chdir(here)
    assert files.scrub(f"{here}/a.json: {here}, {here}2/b") == f"a.json: ., {here}2/b"


def test_values_are_scrubbed_but_for_what_is_named(somewhere: None) -> None:
    value = {"reason": "gpu-12 is lost", "ranks": [{"name": "ada.l"}, 1.5, None], "kernel": "5.15.0.1"}
    clean = {"reason": "node1 is lost", "ranks": [{"name": "USER"}, 1.5, None], "kernel": "5.15.0.1"}
    assert files.scrubbed(value, but=frozenset({"kernel"})) == clean


def test_a_command_names_no_machine_not_even_in_a_traceback(
    somewhere: None, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        print("on gpu-12")
        raise ValueError(f"{os.environ['HOME']}/x and {os.environ['HF_TOKEN']}")

    with pytest.raises(SystemExit) as stopped:
        files.command_line(main)
    printed = capsys.readouterr()
    assert stopped.value.code == 1
    assert printed.out == "on node1\n"
    assert "ValueError: ~/x and MASKED" in printed.err and "Traceback" in printed.err

"""Files are complete or absent, and a command is one that can be repeated."""

from __future__ import annotations

import shlex
from pathlib import Path

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

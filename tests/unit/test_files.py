"""Files are complete or absent, and text names no machine."""

from __future__ import annotations

import getpass
import shlex
import socket
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


def test_scrubbing_masks_what_names_a_machine() -> None:
    text = f"{Path.home()}/x at {socket.gethostname()} 10.1.2.3:80 fe80::1:2:3:4 02:42:ac:11:00:02"
    text += f" WANDB_TOKEN=abc by {getpass.getuser()}"
    clean = files.scrub(text)
    for secret in ("10.1.2.3", "fe80::1:2:3:4", "02:42:ac", "abc", str(Path.home()) + "/"):
        assert secret not in clean
    if getpass.getuser() != "root":
        assert getpass.getuser() not in clean
    kept = "127.0.0.1:29500 [::1] torch 2.13.0, std::move, at 12:30:45 1.2.3 s, 2026-11-20T12:00:00Z"
    assert files.scrub(kept) == kept


def test_a_command_names_the_configuration_that_the_workflow_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handover.VARIABLE, raising=False)
    assert files.started_with([], {}) == "" and files.snakemake("a b") == "snakemake 'a b'"
    given = files.started_with([Path("presets/x.yaml").absolute()], {"runs": {"hosts": ["secret"], "repeats": "3"}})
    monkeypatch.setenv(handover.VARIABLE, handover.packed(started_with=given))
    command = files.snakemake("--force", "results/a.json")
    words = ["--configfile", "presets/x.yaml", "--config", 'runs={"hosts": "...", "repeats": "3"}']
    assert shlex.split(command) == ["snakemake", "--force", "results/a.json", *words]

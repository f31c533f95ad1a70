"""The commands for results: they make the page from records, and give errors that a user can act on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from report_fixture import jitter, write_series
from throughline.command import loaded, run
from throughline.processes import START

ROOT = Path(__file__).parents[3]


def call(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: object) -> object:
    """Run a command in this process, which has loaded the drawing library already; return its status."""
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        run(loaded(str(ROOT / "workflow/scripts" / script)))
    return left.value.code


@pytest.mark.slow
def test_records_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    records = write_series(results, {"1n1g": jitter(100.0), "1n2g": jitter(190.0)})
    place = results / "bert/bz32_fp32.json"
    for command in (
        ("summarize.py", *records, "--asked", 5, "--remarks=- a remark", "--output", place),
        ("tables.py", place, "--output-dir", results / "bert/tables"),
        ("plots.py", place, "--output-dir", results / "bert/plots"),
        ("report.py", "--results", results, "--summaries", place, "--output", results / "report.html"),
    ):
        assert call(monkeypatch, *command) == 0
    assert {path.name for path in (results / "bert/plots").iterdir()} >= {
        "bz32_fp32_speedup.svg",
        "bz32_fp32_throughput.png",
    }
    assert "- a remark" in (results / "report.html").read_text(encoding="utf-8")


def test_errors_are_sentences(tmp_path: Path) -> None:
    program, output = ROOT / "workflow/scripts/summarize.py", tmp_path / "bert/bz32_fp32.json"
    done = subprocess.run(
        [sys.executable, START, program, tmp_path / "none.json", "--asked", "5", "--output", output],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert "none.json does not exist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", ["summarize.py", "tables.py", "plots.py", "report.py"])
def test_help(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, script, "--help") == 0
    assert "usage:" in capsys.readouterr().out

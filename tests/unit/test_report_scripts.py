"""The commands for results: they make the page from records, and give errors that a user can act on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from report_fixture import jitter, write_series

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "workflow/scripts" / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_records_to_report(tmp_path: Path) -> None:
    results = tmp_path / "results"
    records = write_series(results, {"1n1g": jitter(100.0), "1n2g": jitter(190.0)})
    place = results / "bert/bz32_fp32.json"
    for done in (
        run("summarize.py", *records, "--asked", 5, "--remarks=- a remark", "--output", place),
        run("tables.py", place, "--output-dir", results / "bert/tables"),
        run("plots.py", place, "--output-dir", results / "bert/plots"),
        run("report.py", "--results", results, "--summaries", place, "--output", results / "report.html"),
    ):
        assert done.returncode == 0, done.stderr
    assert {path.name for path in (results / "bert/plots").iterdir()} >= {"bz32_fp32_speedup.svg", "precisions.png"}
    assert "- a remark" in (results / "report.html").read_text(encoding="utf-8")


def test_errors_are_sentences(tmp_path: Path) -> None:
    done = run("summarize.py", tmp_path / "none.json", "--asked", 5, "--output", tmp_path / "bert/bz32_fp32.json")
    assert done.returncode == 1
    assert "none.json does not exist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", ["summarize.py", "tables.py", "plots.py", "report.py"])
def test_help(script: str) -> None:
    done = run(script, "--help")
    assert done.returncode == 0
    assert "usage:" in done.stdout

"""The commands for results: they make the page from records, and give errors that a user can act on."""

import subprocess
import sys
from pathlib import Path

import pytest

from report_fixture import jitter, run_script, write_series
from throughline.processes import START

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_records_to_report(tmp_path: Path) -> None:
    results = tmp_path / "results"
    records = write_series(results, {"1n1g": jitter(100.0), "1n2g": jitter(190.0)})
    place = results / "bert/bz32_fp32.json"
    run_script("summarize", *records, "--asked", 5, "--remarks=- a remark", "--output", place)
    run_script("plots", place, "--output-dir", results / "bert/plots")
    run_script("report", "--results", results, "--summaries", place, "--output", results / "report.html")
    plots = {path.name for path in (results / "bert/plots").iterdir()}
    assert plots >= {"bz32_fp32_speedup.svg", "bz32_fp32_throughput.png"}
    assert "- a remark" in (results / "report.html").read_text(encoding="utf-8")


def test_errors_are_sentences(tmp_path: Path) -> None:
    program, output = ROOT / "workflow/scripts/summarize.py", tmp_path / "bert/bz32_fp32.json"
    command = [sys.executable, START, program, tmp_path / "none.json", "--asked", "5", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "none.json does not exist" in done.stderr
    assert "Traceback" not in done.stderr

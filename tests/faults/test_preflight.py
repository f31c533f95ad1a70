"""Faults of a machine: found before a run, or marked in its record, with real processes, limits and disks."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from test_training_faults import Launched

import report_fixture
import training_fixtures
from process_helpers import mounted, psutil_that
from throughline import records

SPIN = "while True: pass"


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Keep every core of this machine busy with other work."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_busy_processor_is_refused_when_strict_and_marked_otherwise(tmp_path: Path, manifest: Path) -> None:
    with busy():
        strict = Launched(tmp_path, manifest, "--strict")
        errors = strict.end(1)
        assert "this machine is busy: other processes use " in errors and "runs.strict" in errors
        assert not strict.record.exists() and "Traceback" not in errors
        marked = Launched(tmp_path, manifest, steps={"timed": 10_000, "max_total_seconds": 2.5})
        marked.end(0)
    record = records.read_run(marked.record)
    warnings = record.warnings
    assert any(text.startswith("other processes use ") for text in warnings)
    assert any("used " in text and "within the window" in text for text in warnings)
    _has_figures_over_its_window(record)
    rows = list(csv.DictReader(marked.record.with_suffix(".telemetry.csv").open()))
    assert sum(row["in_window"] == "1" for row in rows) == record.telemetry[0].samples > 0  # type: ignore[index]


def _has_figures_over_its_window(record: records.RunRecord) -> None:
    """Check the counters that grow on every machine: all cores busy, the ranks at work, memory in use, the sampler's
    cost."""
    (node,) = record.telemetry
    machine, used = node.machine, node.processes
    assert machine["cpu_share"] is not None and machine["cpu_share"].mean > 0.5
    assert machine["cpu_others_share"] is not None and used["cpu_cores"] is not None and used["cpu_cores"].mean > 0
    assert used["memory_bytes"] is not None and used["memory_bytes"].max > 1 << 27
    assert node.cost_cpu_share is not None and 0 < node.cost_cpu_share < 1
    assert record.memory.device_used_bytes == machine["memory_used_bytes"].max
    assert record.memory.reserved_bytes == record.peak_memory_bytes and record.memory.needed_bytes is None
    assert "needed_bytes" in record.memory.reasons and node.reasons["devices"] == "the run is on the processor"


def test_too_little_memory_is_refused(tmp_path: Path, manifest: Path) -> None:
    run = Launched(tmp_path, manifest)
    limit = 300 << 20
    resource.prlimit(run.process.pid, resource.RLIMIT_DATA, (limit, limit))  # like `ulimit -d` in the user's shell
    errors = run.end(1)
    assert "too little memory: a process may have 0.3 GiB" in errors and "raise the limit" in errors
    assert not run.record.exists()


def test_too_little_memory_for_all_ranks_is_refused(tmp_path: Path, manifest: Path) -> None:
    run = Launched(tmp_path, manifest, topology="1n9000g", options={"data": "synthetic"})
    errors = run.end(1)
    assert "too little memory: " in errors and "9000 ranks need " in errors


def test_a_disk_without_room_is_refused(tmp_path: Path, manifest: Path) -> None:
    with mounted(tmp_path / "results", "size=4m"):
        run = Launched(tmp_path, manifest)
        errors = run.end(1)
        assert "too little disk: " in errors and "make room" in errors and not run.record.exists()


def test_a_changed_machine_is_refused_when_strict(tmp_path: Path, manifest: Path) -> None:
    run = training_fixtures.spec(repeat=1)
    earlier = tmp_path / run.record
    earlier.parent.mkdir(parents=True)
    environment = {"kernel": "5.4.0", "cpu_governor": "powersave"}
    data = {"content_digest": "0123456789abcdef", "rows": 9, "dumps": {"enwiki-latest": "enwiki-20261101"}}
    record = report_fixture.record(run.values(), 100.0) | {"environment": environment, "data": data}
    earlier.write_text(json.dumps(record))
    errors = Launched(tmp_path, manifest, "--strict", repeat=2).end(1)
    assert "this machine is not as it was for run1: " in errors and "kernel was 5.4.0 and is " in errors
    assert "the content of the data was 0123456789ab (enwiki-20261101) and is " in errors


def test_a_failed_sampler_costs_only_its_figures(tmp_path: Path, manifest: Path) -> None:
    broken = {"PYTHONPATH": psutil_that("raise OSError('no /proc here')", tmp_path / "psutil")}
    run = Launched(tmp_path, manifest, steps={"timed": 10_000, "max_total_seconds": 1.5}, variables=broken)
    run.end(0)
    record = records.read_run(run.record)
    assert record.status == "ok"
    reason = "its sampler failed (OSError: no /proc here)"
    assert record.telemetry[0].samples == 0 and reason in record.telemetry[0].reasons["telemetry"]
    assert record.memory.device_used_bytes is None and reason in record.memory.reasons["device_used_bytes"]
    assert any(text.startswith("node 0: there are no figures of this node") for text in record.warnings)
    assert run.record.with_suffix(".telemetry.csv").read_text() == "node,at_s,in_window\n"
    assert "[telemetry] OSError: no /proc here" in run.log.read_text()

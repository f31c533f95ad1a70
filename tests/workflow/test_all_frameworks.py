"""presets/frameworks.yaml, shortened: one model in every framework that there is, through the whole graph."""

from __future__ import annotations

import shutil

import pytest

from framework_lab import python
from throughline import frameworks
from throughline.records import read_run

from .conftest import ROOT, SMALL, Clone, job_counts

CELL = "results/frameworks/bz2_fp32"
RECORDS = [
    f"{CELL}/{name}/{topology}/run1.json" for name in frameworks.NAMES for topology in ("1n1g", "1n2g")
]  # fmt: skip


def shortened() -> str:
    """The preset's benchmark with shorter sequences, fewer of them, and one repeat, on the small job's corpus."""
    text = (ROOT / "presets/frameworks.yaml").read_text(encoding="utf-8").partition("\nbenchmarks:\n")[2]
    for long, short in (("sequence: 128", "sequence: 32"), ("fp32: [8]", "fp32: [2]")):
        assert text.count(long) == 1
        text = text.replace(long, short)
    return SMALL.partition("benchmarks:")[0].replace("repeats: 2", "repeats: 1") + f"benchmarks:\n{text}"


@pytest.mark.timeout(3600)  # sixteen runs, one after the other
def test_one_model_in_every_framework_on_one_and_two_devices(finished: tuple[Clone, str]) -> None:
    for name in frameworks.NAMES:
        python(name)  # skips where its environment is not built
    clone, _ = finished
    try:
        (clone.path / "small.yaml").write_text(shortened())
        process = clone.start(*RECORDS)
        said, _ = process.communicate(timeout=3000)
        assert process.returncode == 0, said
        assert job_counts(said) == {"run": len(RECORDS)}
        planned = job_counts(clone.made("--dry-run", "results/report.html").stdout)
        assert planned["equivalence"] == planned["summary"] == 1 and "run" not in planned
        for path in RECORDS:
            looks_whole(clone, path)
    finally:
        (clone.path / "small.yaml").write_text(SMALL)
        shutil.rmtree(clone.path / "results/frameworks", ignore_errors=True)


def looks_whole(clone: Clone, path: str) -> None:
    """A record of real data has what every framework has to measure and to state."""
    record = read_run(clone.path / path)
    world = int(record.spec.topology[2])
    assert (record.status, record.reason) == ("ok", None), path
    assert (record.steps_timed, record.warmup_steps, len(record.step_seconds), len(record.loss)) == (4, 2, 4, 4), path
    assert all(loss is not None and 4 < loss < 15 for loss in record.loss), path
    assert record.window_s and record.samples_per_s == pytest.approx(world * 2 * 4 / record.window_s), path
    assert [rank.rank for rank in record.ranks] == list(range(world)), path
    assert all(rank.cpu_seconds is not None and rank.peak_memory_bytes is not None for rank in record.ranks), path
    assert any(record.environment["framework"].values()), path
    assert record.environment["variables"]["OMP_NUM_THREADS"] == "1", path
    assert record.settings is not None and set(frameworks.SETTINGS) < set(record.settings), path
    assert [key for key in frameworks.SETTINGS if record.settings[key] is None] == ["clip_at"], path  # nothing clips
    flops = record.work and record.work.matmul_flops_per_s
    assert flops is not None and flops > 1e8, path

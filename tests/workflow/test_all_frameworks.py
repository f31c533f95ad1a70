"""A shortened copy of presets/frameworks.yaml: the graph trains one model in every environment, on two devices."""

import shutil

import pytest

from clones import ROOT, SMALL, Clone, job_counts
from framework_lab import python
from throughline import frameworks
from throughline.frameworks.rank import SETTINGS
from throughline.records import read_run

CELL = "results/frameworks/bz2_fp32"
APART = [name for name in frameworks.NAMES if name not in ("torch", "hf-loop", "hf-trainer")]
"""Frameworks with an environment of their own. The others run in that of the workflow, or add only transformers."""
RECORDS = [f"{CELL}/{name}/1n2g/run1.json" for name in APART]
SHORTER = {
    "sequence_length: 128": "sequence_length: 32",
    "fp32: [8]": "fp32: [2]",
    "    optimizer:": "    options: {gradient_accumulation: 2, clip: global_norm}\n    optimizer:",
}


def shortened() -> str:
    """The preset's benchmark with short sequences and small batches, once, on the small job's corpus.

    It gets what is hardest on several devices: two micro-batches a step, a norm over all gradients, and a limit of
    time, which rank 0 tells all other ranks.
    """
    text = (ROOT / "presets/frameworks.yaml").read_text(encoding="utf-8").partition("\nbenchmarks:\n")[2]
    for preset, short in SHORTER.items():
        assert text.count(preset) == 1
        text = text.replace(preset, short)
    common = SMALL.partition("benchmarks:")[0]
    common = common.replace("repeats: 2", "repeats: 1").replace("timed: 4", "timed: 4, max_total_seconds: 3600")
    return f"{common}benchmarks:\n{text}"


def test_one_model_in_every_environment(finished: tuple[Clone, str]) -> None:
    for name in APART:
        python(name)  # skips where its environment is not built
    clone, _ = finished
    try:
        (clone.path / "small.yaml").write_text(shortened())
        process = clone.start(*RECORDS)
        said, _ = process.communicate(timeout=560)
        assert process.returncode == 0, said
        assert job_counts(said) == {"run": len(RECORDS)}
        planned = job_counts(clone.made("--dry-run", "results/report.html").stdout)
        assert planned["equivalence"] == planned["summary"] == 1
        assert planned["run"] == 2 * len(frameworks.NAMES) - len(RECORDS)
        for path in RECORDS:
            looks_whole(clone, path)
    finally:
        (clone.path / "small.yaml").write_text(SMALL)
        shutil.rmtree(clone.path / "results/frameworks", ignore_errors=True)


def looks_whole(clone: Clone, path: str) -> None:
    """The record states all that every framework has to measure on real data."""
    record = read_run(clone.path / path)
    world = record.spec.topology.world
    assert (record.status, record.reason) == ("ok", None), path
    assert (record.steps_timed, record.warmup_steps, len(record.step_seconds), len(record.loss)) == (4, 2, 4, 4), path
    assert all(loss is not None and 4 < loss < 15 for loss in record.loss), path
    assert record.window_s and record.samples_per_s == pytest.approx(world * 2 * 2 * 4 / record.window_s), path
    assert [rank.rank for rank in record.ranks] == list(range(world)), path
    assert all(rank.cpu_seconds is not None and rank.peak_memory_bytes is not None for rank in record.ranks), path
    assert record.data is not None and record.data.rows > 100, path
    assert any(record.environment["framework"].values()), path
    assert record.environment["variables"]["OMP_NUM_THREADS"] == "1", path
    assert record.settings is not None and set(SETTINGS) < set(record.settings), path
    assert None not in [record.settings[key] for key in SETTINGS], path
    flops = record.work and record.work.matmul_flops_per_s
    assert flops is not None and flops > 1e8, path

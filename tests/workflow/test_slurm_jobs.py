"""What we request from Slurm: the real submissions of large topologies, with an sbatch that only writes them down."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clones import Clone, job_counts
from throughline.installation import choose
from throughline.study import config, runs

LARGE = """
corpus: {name: large, sequences: {32: 5}}
runs: {device: cuda, repeats: 1, threads: 2}
benchmarks: {big: {sequence_length: 32, topologies: [1n8g, 64n8g, 125n8g], batch: {fp32: [4]},
    options: {data: synthetic}}}
"""
SLURM = ("--profile", "slurm", "--slurm-init-seconds-before-status-checks", "1")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which a synthetic sbatch writes its arguments."""
    scripts = {
        "sbatch": f'echo "$@" >> {tmp_path}/asked; exit 1',
        "sinfo": "echo 'n1|main*|idle|gpu:8|64|x'",
        "squeue": ":",
        "scontrol": ":",
    }
    for name, body in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_runs_are_jobs_of_their_nodes_and_devices(clone: Callable[[str], Clone], asked: Path) -> None:
    big = clone(LARGE)
    dry = big.made("results/big/bz4_fp32.json", "--dry-run", *SLURM)
    assert job_counts(dry.stdout)["run"] == 3 and not asked.exists()
    big.snakemake("results/big/bz4_fp32.json", *SLURM)
    jobs = asked.read_text().splitlines()
    for nodes in (1, 64, 125):
        (job,) = [line for line in jobs if f"--nodes={nodes} " in line]
        for words in (f"--ntasks={nodes} ", "--cpus-per-task=64", "--ntasks-per-node=1 --gpus-per-node=8 --exclusive"):
            assert words in job
        assert "--mem 128000 " in job and "-t 60 " in job


def test_a_dry_run_looks_at_the_partition(clone: Callable[[str], Clone], asked: Path) -> None:
    answer = "printf 'n%s|main*|idle|gpu:8|64|x\\n' 1 2"
    (asked.parent / "sinfo").write_text(f"#!/bin/sh\n{answer}\n")
    auto = clone(LARGE.replace("[1n8g, 64n8g, 125n8g]", "auto"))
    dry = auto.made("results/big/bz4_fp32.json", "--dry-run", *SLURM)
    assert "topologies: auto is 1n1g, 1n2g, 1n4g, 1n8g, 2n8g: 2 nodes of the default partition" in dry.stdout
    assert "acceptance of 2 nodes: " in auto.made("accept", "--dry-run", *SLURM).stdout
    assert not (auto.path / "results/acceptance.local.json").exists()


@pytest.mark.parametrize(
    ("nodes", "options", "cores"),
    [
        ("n1|main*|idle|(null)|96|x", "--exclusive", 16),
        ("n1|main*|idle|gpu:a100:8,nvme:1|96|x", "--gpus-per-node=8 --exclusive", 96),
    ],
)
def test_auto_reserves_what_the_nodes_have(
    clone: Callable[[str], Clone], asked: Path, nodes: str, options: str, cores: int
) -> None:
    (asked.parent / "sinfo").write_text(f"#!/bin/sh\necho '{nodes}'\n")
    done = clone(LARGE.replace("device: cuda, ", "")).snakemake("results/big/bz4_fp32/torch/1n8g/run1.json", *SLURM)
    (job,) = asked.read_text().splitlines()
    assert f"--ntasks-per-node=1 {options} " in job and f"--cpus-per-task={cores} " in job
    assert f"runs reserve {'GPUs' if '--gpus' in options else 'no GPUs'}" in done.stdout
    assert f"--mem {8 * (16000 if '--gpus' in options else 1500)} " in job


def test_checks_on_gpus_get_all_cores_as_runs_do(
    clone: Callable[[str], Clone], asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(asked.parent))
    ready = Path(choose.ready("mxnet-horovod") or "")
    ready.parent.mkdir(parents=True)
    ready.touch()
    checked = LARGE.replace("64n8g, 125n8g", "1n4g").replace("batch: {", "frameworks: [torch, mxnet-horovod], batch: {")
    big = clone(checked.replace("options:", "extras: [max_batch], options:"))
    big.snakemake("results/big/equivalence.json", "results/big/max_batch_fp32.json", *SLURM)
    jobs = asked.read_text().splitlines()
    for rule in ("equivalence", "max_batch"):
        (job,) = [line for line in jobs if f"rule_{rule}_" in line]
        assert "--cpus-per-task=64" in job and "--gpus-per-node=" in job


def test_a_topology_gets_nodes_of_its_own(clone: Callable[[str], Clone], asked: Path) -> None:
    """The job gets as many cores as the command line says. A new place makes no run again, because the place is not a
    parameter of a run."""
    where = "slurm: {64n8g: {partition: fast, constraint: a100&ib}, 1n8g: {constraint: ib}}, threads"
    placed = clone(LARGE.replace("threads", where))
    said = ("--default-resources", "slurm_partition=slow", "--set-resources", "run:cpus_per_task=12")
    placed.snakemake("results/big/bz4_fp32.json", *SLURM, *said)
    options = {line.split("--nodes=")[1].split()[0]: line for line in asked.read_text().splitlines()}
    assert " -p fast " in options["64"] and " -C a100&ib" in options["64"]
    assert " -p slow " in options["1"] and " -C ib" in options["1"]
    assert " -p slow " in options["125"] and " -C " not in options["125"]
    assert all("--cpus-per-task=12" in line for line in options.values())
    assert all("slurm" not in spec.canonical for spec in runs.expand(config.load([placed.path / "small.yaml"])))

"""The whole workflow on a real Slurm cluster: data, runs on one to four nodes, medians; and no file names a node."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from slurm.conftest import OTHERS, TWO_NODES, Project, others, until
from throughline import records
from throughline.console.console import in_queue

TOPOLOGIES = {"1n1g": 1, "1n2g": 1, "2n2g": 2, "4n2g": 4}


def test_data_and_runs_on_up_to_four_nodes(finished: tuple[Project, str]) -> None:
    project, _ = finished
    for topology, nodes in TOPOLOGIES.items():
        record = records.read_run(project.record(topology, "quick"))
        assert record.status == "ok", record.reason
        assert {rank.node for rank in record.ranks} == set(range(nodes))
        assert len(record.ranks) == int(topology[0]) * int(topology[2])
        assert not list(project.record(topology, "quick").parent.glob(".*.claim"))
        assert not list(project.record(topology, "quick").parent.glob(".run1.work.*"))
    assert "4 ranks on the nodes of this Slurm job" in project.log("2n2g", "quick")
    summary = json.loads((project.path / "results/quick/bz4_fp32.json").read_text())
    assert list(summary["frameworks"]["torch"]) == list(TOPOLOGIES)
    assert all(cell["speedup"] for cell in summary["frameworks"]["torch"].values())


def test_the_jobs_ran_on_the_nodes(finished: tuple[Project, str]) -> None:
    project, output = finished
    submitted = set(re.findall(r"has been submitted with SLURM jobid (\d+)", output))
    ledger = (project.cluster.folder / "log" / "completed.txt").read_text().splitlines()
    completed = [line for line in ledger if line.partition("JobId=")[2].partition(" ")[0] in submitted]
    assert len(completed) == len(submitted) > 10
    assert all("JobState=COMPLETED" in line for line in completed)
    nodes = Counter(int(found[1]) for line in completed if (found := re.search(r"NodeCnt=(\d+)", line)))
    assert (nodes[2], nodes[4]) == (1 + len(TWO_NODES) + len(others()), 1)
    (accelerated,) = [line for line in completed if "Partition=gpu" in line]
    assert "NodeList=try5 " in accelerated, "runs.slurm puts 1n1g there"


def test_nothing_names_the_cluster(finished: tuple[Project, str]) -> None:
    project, _ = finished
    written = [path for folder in ("data", "results", "logs") for path in (project.path / folder).rglob("*")]
    assert len(written) > 30
    secret = rf"\btry[1-5]\b|\b{re.escape(socket.gethostname())}\b|\b10\.\d+\.\d+\.\d+\b"
    for path in written:
        if path.is_file():
            found = re.search(secret.encode(), path.read_bytes())
            assert not found or path.suffix in {".hdf5", ".bz2", ".jsonl", ".png"}, f"{path}: {found}"


def test_a_second_call_does_nothing(finished: tuple[Project, str]) -> None:
    project, _ = finished
    assert "Nothing to be done" in project.run("--dry-run", "results/quick/bz4_fp32.json")


def cores_of_ranks(record: records.RunRecord) -> set[int | None]:
    """Return the numbers of cores that the ranks could use."""
    return {len(bound["cores"]) for bound in (record.environment["binding"] or {}).values()} or {os.cpu_count()}


def test_a_rank_with_a_gpu_has_all_cores_of_its_node(finished: tuple[Project, str]) -> None:
    project, _ = finished
    assert cores_of_ranks(records.read_run(project.record("1n1g", "quick"))) == {2}


def test_a_model_split_over_two_nodes(finished: tuple[Project, str]) -> None:
    """In one run, everything is split over four ranks. In the other, the model is split over the two ranks of each
    node, and the optimizer's states over the nodes."""
    project, _ = finished
    split, crossed = (records.read_run(project.path / run) for run in TWO_NODES)
    for run in (split, crossed):
        assert (run.status, [rank.node for rank in run.ranks]) == ("ok", [0, 0, 1, 1]), run.reason
    assert (split.settings or {})["sharding"].startswith("weights, gradients")
    assert (crossed.settings or {})["sharding"].startswith("the optimizer's states")


def test_other_libraries_on_two_nodes(finished: tuple[Project, str]) -> None:
    """horovodrun reaches the second node through srun. All others use the addresses of their ranks. Slurm does not give
    a run more cores than it requests: without GPUs that is one for each thread."""
    project, _ = finished
    if len(others()) < len(OTHERS):
        pytest.skip("not all environments are built (make frameworks)")
    for run in others():
        record = records.read_run(project.path / run)
        assert (record.status, [rank.node for rank in record.ranks]) == ("ok", [0, 1]), record.reason
        assert cores_of_ranks(record) == {1}


def test_auto_is_what_the_partition_has(project: Project) -> None:
    """The partition is looked at before anything is submitted. If it has nodes with and without GPUs, an error names
    the key."""
    one = ("results/long/bz4_fp32/torch/1n1g/run1.json", "--default-resources")
    refused = project.run(*one, "slurm_partition=all", status=1)
    assert "runs.device is auto, and partition all has nodes with GPUs (1) and without (4)" in refused
    assert "Slurm names no node of partition none" in project.run(*one, "slurm_partition=none", status=1)
    assert "has been submitted" not in refused


def test_snakemake_as_a_job_of_its_own(finished: tuple[Project, str]) -> None:
    project, _ = finished
    if not Path(sys.prefix, "main.ready").exists():
        pytest.skip("these tests do not run in an environment that make has set up")
    (project.path / ".venv").unlink(missing_ok=True)
    (project.path / ".venv").symlink_to(sys.prefix)
    command = ["make", "submit", "SBATCH=--time=5"]
    command += ["TARGETS=results/quick/bz4_fp32.json --configfile cluster.yaml"]
    variables = os.environ | project.cluster.variables
    submitted = subprocess.run(
        command, cwd=project.path, env=variables, capture_output=True, text=True, check=True
    ).stdout
    (job,) = re.findall(r"Submitted batch job (\d+)", submitted)
    ledger = project.cluster.folder / "log" / "completed.txt"
    until(lambda: f"JobId={job} " in ledger.read_text(), 300)
    assert re.search(rf"JobId={job} .*Name=throughline JobState=COMPLETED", ledger.read_text())
    assert "Nothing to be done" in (project.path / "logs" / f"submit-{job}.log").read_text()


def test_the_console_says_what_waits_and_what_runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in project.cluster.variables.items():
        monkeypatch.setenv(name, value)
    submit = ["sbatch", "--parsable", "--output=/dev/null", "--nodes=4", "--exclusive", "--job-name=asked"]
    jobs = [project.cluster.ask(*submit, "--wrap=sleep 600") for _ in range(2)]
    try:
        until(lambda: in_queue("asked") == "Slurm: 1 queued, 1 running")
    finally:
        project.cluster.ask("scancel", *jobs)
    until(lambda: in_queue("asked") == "Slurm: 0 queued, 0 running")

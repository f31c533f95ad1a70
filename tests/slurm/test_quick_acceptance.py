"""A quick acceptance on a real Slurm cluster: a node that hangs, one that does not answer, one that is slow and one
whose disk is slow are named in time, and pairs are measured among the others only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm import slow
from slurm.conftest import Cluster, Project, copied, until
from throughline.study import acceptance

QUICK = """accept:
  {quick: true, repeats: 1, threads: 1, min_seconds: 0.05, step_s: 1.5, device: cpu, pairs: PAIRS,
   sizes: {matmul: [256], memory: [1048576], all_reduce: [1024, 1048576], disk: [2000000]}}
"""
LACKING, HANGING, SLOW, SILENT = "try1", "try2", "try3", "try4"


@pytest.fixture(scope="module")
def project(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copied(tmp_path_factory.mktemp("quick") / "project", cluster)


@contextlib.contextmanager
def silent(cluster: Cluster, name: str) -> Iterator[None]:
    """Stop the daemon of an idle node, so that it answers nobody. Slurm notices that much later."""
    # The end of a job needs the daemon. There is a line for each partition.
    until(lambda: {*cluster.ask("sinfo", "-h", "-N", "-n", name, "-o", "%T").split()} == {"idle"})
    (pid,) = [pid for pid in cluster.processes(name) if Path(f"/proc/{pid}/comm").read_text() == "slurmd\n"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def lacking(cluster: Cluster, name: str) -> Iterator[None]:
    """Take a node out as Slurm does if it finds fewer devices than it should."""
    reason = "Reason=gres/gpu count reported lower than configured"
    cluster.ask("scontrol", "update", f"NodeName={name}", "State=DRAIN", reason)
    try:
        yield
    finally:
        cluster.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")


def accepted(project: Project, pairs: str) -> tuple[dict[str, str], str, float]:
    """Measure everything again. Return who has not passed and why, the excluded nodes, and the seconds."""
    (project.path / "quick.yaml").write_text(QUICK.replace("PAIRS", pairs))
    start = time.monotonic()
    project.run("accept", "--configfile", "quick.yaml", "--forcerun", "accept_quick")
    seconds = time.monotonic() - start
    bad = json.loads((project.path / acceptance.QUICK).read_text())["not_passed"]
    return bad, (project.path / acceptance.EXCLUDE).read_text().strip(), seconds


def test_a_node_that_hangs_and_one_that_is_slow_are_named(project: Project) -> None:
    with slow.hanging(project.cluster, HANGING), slow.node(project.cluster, SLOW):
        bad, excluded, _ = accepted(project, "all")
    assert excluded == f"{HANGING},{SLOW}" and bad.keys() == {"1", "2"}
    assert "has not ended its check" in bad["1"] and "no progress for 90 s" in bad["1"]
    assert "slower than" in bad["2"]
    pairs = {path.parent.name for path in (project.path / acceptance.FOLDER).glob("pair_*/visit1.json")}
    assert pairs == {"pair_0_3"}
    found = json.loads((project.path / acceptance.RESULT).read_text())
    assert found["verdict"] == "outliers" and {tuple(run["place"]["nodes"]) for run in found["missing"]} == {(1,)}


def test_a_node_without_a_device_and_one_that_does_not_answer_are_named_in_time(project: Project) -> None:
    with silent(project.cluster, SILENT), lacking(project.cluster, LACKING):
        bad, excluded, seconds = accepted(project, "none")
    assert bad["0"] == "it is away, because Slurm says that it is drained"
    assert "has not ended its check" in bad["3"] and {LACKING, SILENT} <= {*excluded.split(",")}
    assert seconds < 300, "a check may take 180 s, and 30 s to start"


def test_a_node_with_a_slow_disk_is_named(project: Project) -> None:
    with slow.disk(project.cluster, SLOW):
        bad, excluded, _ = accepted(project, "none")
    assert SLOW in excluded.split(",")  # the nodes share the processor with other tests, so another may be slow, too
    assert bad["2"].startswith("node 2: disk ") and "without training, too (disk read, disk write)" in bad["2"]

"""The quick check of nodes, with real processes in place of their node jobs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from throughline import records
from throughline.files import write_json
from throughline.launch import quick_check
from throughline.launch.quick_check import Checks, srun_options
from throughline.records.acceptance import Broken, Failure, unfinished
from throughline.study import acceptance
from throughline.study.acceptance import Fleet, Plan
from throughline.study.config import load

JOB = """
import sys, time
from pathlib import Path
def main(visit: str, output: Path, hang_after_s: float) -> None:
    node = output.parts[2]
    print("begun", flush=True)
    if node == "node1":
        time.sleep(600)
    if node == "node2":
        sys.exit("it has no GPU")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("{}")
"""


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Checks of four nodes of which node 1 hangs, and node 2 fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(quick_check, "LIMIT_ON_CPU_S", 3.0)
    (tmp_path / "job.py").write_text(JOB)
    config = load([], {"accept": {"quick": True, "pairs": "none"}})
    return Checks(acceptance.asked(config, Fleet((0, 1, 2, 3), 1, "cpu", hosts="ssh")), tmp_path / "job.py")


def reasons(asked: Plan, node: int) -> set[str]:
    note = records.read_unfinished(unfinished(acceptance.VISIT.format(place=f"node{node}", repeat=1)))
    assert set(note.failed) == {one.record for one in asked.measurements() if one.place.nodes == (node,)}
    return {failure.reason for failure in note.failed.values()}


def test_a_node_that_hangs_is_ended_and_named_and_the_others_do_not_wait(checks: Checks) -> None:
    lines: list[str] = []
    start = time.monotonic()
    checks.run({3: "it is down"}, lines.append)
    assert time.monotonic() - start < 60
    assert sorted(line.partition(" (")[0] for line in lines) == [
        "node 0: checked",
        "node 1: no answer within 3 s: begun",
        "node 2: exit status 1: it has no GPU",
    ]
    assert reasons(checks.asked, 1) == {"no answer within 3 s: begun"}
    assert reasons(checks.asked, 2) == {"exit status 1: it has no GPU"}
    assert Path("results/acceptance/node1/quick.log").read_text() == "begun\n"


def test_a_fault_that_is_known_better_is_kept(checks: Checks) -> None:
    file, visit = next(iter(checks.asked.visits.items()))
    fault = Broken(node=0, device=1, fault="has 3 uncorrected ECC errors")
    known = Failure(reason="GPU 1 has 3 uncorrected ECC errors", broken=[fault])
    content = {"schema": records.SCHEMA, "records": [], "failed": {visit[0].record: known.model_dump()}}
    write_json(unfinished(file), content)
    quick_check.NodeCheck(visit, Path(file), (), 1.0).blame("exit status 1")
    assert records.read_unfinished(unfinished(file)).failed == {visit[0].record: known}


def test_slurm_starts_a_check_on_its_node_or_says_soon_that_it_cannot() -> None:
    words = srun_options("--gpus-per-node=8 --exclusive", "gpu", None, 64, 128000)
    assert words[:5] == ["--partition=gpu", "--cpus-per-task=64", "--mem=128000M", "--gpus-per-node=8", "--exclusive"]


@pytest.mark.parametrize(
    ("told", "faults"), [(f"srun: error: {quick_check.BUSY}: Requested nodes are busy", 0), ("x", 1)]
)
def test_a_node_that_is_busy_is_not_broken(checks: Checks, told: str, faults: int) -> None:
    file, visit = next(iter(checks.asked.visits.items()))
    quick_check.NodeCheck(visit, Path(file), (), 1.0).blame(told)
    failed = records.read_unfinished(unfinished(file)).failed
    assert {(failure.reason, len(failure.broken)) for failure in failed.values()} == {(told, faults)}

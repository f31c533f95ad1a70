"""Long jobs on a cluster: the search for the largest batch, and the convergence check."""

from __future__ import annotations

import json
from pathlib import Path

from slurm.conftest import Project, until
from throughline import records
from throughline.report.topics import checks

LARGEST = "results/limit/max_batch_fp32.json"
CHECK = "results/both/convergence_bz4_fp32_torch_2n1g"


def checkpoints(project: Project) -> int:
    state = project.path / CHECK / "curve.checkpoints" / "state.json"
    return len(json.loads(state.read_text())["checkpoints"]) if state.exists() else 0


def test_the_largest_batch_and_a_check_of_two_nodes_that_is_cancelled(finished: tuple[Project, str]) -> None:
    """Both run at once. The second call continues the cancelled check from its last checkpoint."""
    project, _ = finished
    process = project.start(LARGEST, f"{CHECK}.json")
    until(lambda: checkpoints(project) > 0, 450)
    listed = project.cluster.ask("squeue", "-h", "-t", "RUNNING", "-o", "%A %D %k").splitlines()
    (job,) = [line.split()[0] for line in listed if "rule_convergence_" in line and line.split()[1] == "2"]
    project.cluster.ask("scancel", job)
    process.communicate(timeout=800)
    assert process.returncode == 1 and not (project.path / CHECK / "curve.json").exists()
    assert "stopped from outside" in (project.path / CHECK / "curve.log").read_text()
    assert checkpoints(project) > 0

    output = project.run(LARGEST, f"{CHECK}.json")
    assert output.count("has been submitted with SLURM jobid") == 1  # the finished search is not made again
    curve = records.read_curve(project.path / CHECK / "curve.json")
    assert (curve.status, len(curve.loss)) == ("ok", 120)
    assert curve.resumed_after_step and curve.resumed_after_step % 10 == 0
    assert sorted(path.name for path in (project.path / CHECK).iterdir()) == ["curve.json", "curve.log", "last"]
    verdict = checks.read(Path(project.path, f"{CHECK}.json")).verdict
    assert verdict.verdict == "not judged" and verdict.last and verdict.last.figures["mlm_accuracy"] is not None

    largest = records.read_max_batch(project.path / LARGEST).frameworks["torch"]
    assert largest.status == "ok" and largest.largest_batch_per_device and largest.smallest_out_of_memory
    assert largest.smallest_out_of_memory == largest.largest_batch_per_device + 1
    assert not list((project.path / "results").rglob(".*.claim"))

"""On a cluster: what the user is told, what is left, and that the next call makes only what is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal

from process_helpers import alive
from slurm.conftest import Project, until
from throughline import records
from throughline.report.topics import checks

LARGEST = "results/limit/max_batch_fp32.json"
CHECK = "results/both/convergence_bz4_fp32_torch_2n1g"


def target(topology: str, benchmark: str = "long") -> str:
    return f"results/{benchmark}/bz4_fp32/torch/{topology}/run1.json"


def test_a_killed_rank_a_cancelled_job_and_a_time_limit(finished: tuple[Project, str]) -> None:
    """Three runs at the same time fail in three ways. None of them leaves a record or a process."""
    project, _ = finished
    process = project.start(*map(target, ("2n1g", "1n1g", "1n2g")))
    limited, cancelled, killed = (project.job(topology) for topology in ("1n2g", "1n1g", "2n1g"))
    ranks = [pid for name in ("2n1g", "1n1g", "1n2g") for pid in project.ranks("long", name).values()]
    assert len(ranks) == 5 and len(project.cluster.nodes_of(killed)) == 2
    project.cluster.ask("scontrol", "update", f"JobId={limited}", "TimeLimit=1")
    project.rest("1n2g")
    os.kill(project.ranks("long", "2n1g")[1], signal.SIGKILL)
    project.cluster.ask("scancel", cancelled)
    process.communicate(timeout=800)
    assert process.returncode == 1
    assert not any(alive(pid) for pid in ranks)
    for topology in ("2n1g", "1n1g", "1n2g"):
        assert not project.record(topology).exists()
        folder = project.record(topology).parent
        assert [path.name for path in folder.iterdir()] == ["run1.log"]
    assert re.search(r"rank 1 in (warm-up|training), step \d+ of \d+: killed by signal 9", project.log("2n1g"))
    assert "stopped from outside" in project.log("1n1g") and "stopped from outside" in project.log("1n2g")
    completed = (project.cluster.folder / "log" / "completed.txt").read_text()
    for job, state in ((killed, "FAILED"), (cancelled, "CANCELLED"), (limited, "TIMEOUT")):
        assert re.search(rf"JobId={job} .*JobState={state}", completed)


def test_a_failed_shard_alone_again(finished: tuple[Project, str]) -> None:
    project, _ = finished
    shard = project.path / "data/little/seq32/training_0001.hdf5"
    tokens = project.path / "data/little/tokens/training_0001.hdf5"
    good, stat = tokens.read_bytes(), tokens.stat()
    tokens.write_bytes(good[: len(good) // 2])
    os.utime(tokens, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    shard.unlink()
    project.run("data/little/seq32/training_0001.hdf5", status=1)
    assert not shard.exists()
    tokens.write_bytes(good)
    os.utime(tokens, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    output = project.run("data/little/seq32/training_0001.hdf5")
    assert shard.exists() and output.count("has been submitted with SLURM jobid") == 1


def test_a_requeued_job_and_a_node_that_goes_down(finished: tuple[Project, str]) -> None:
    """Slurm starts the requeued job again by itself. The other job fails at once, its log says where, and the next call
    makes it again."""
    project, _ = finished
    for topology in ("1n1g", "2n1g"):
        shutil.rmtree(project.record(topology, "capped").parent, ignore_errors=True)
    process = project.start(*(target(topology, "capped") for topology in ("1n1g", "2n1g")))
    project.cluster.ask("scontrol", "requeue", project.job("1n1g", "capped"))
    lost = project.cluster.nodes_of(project.job("2n1g", "capped"))[1]
    ranks = project.ranks("capped", "2n1g")
    project.cluster.take_down(lost)
    process.communicate(timeout=800)
    assert process.returncode == 1 and not any(alive(pid) for pid in ranks.values())
    assert re.search(r"2n1g/run1.json: rank 1 in .*: no word from it any more: its node", project.log("2n1g", "capped"))
    assert "down" in project.cluster.ask("sinfo", "-h", "-N", "-n", lost, "-o", "%T")
    project.cluster.bring_back(lost)
    assert project.run(target("2n1g", "capped")).count("has been submitted with SLURM jobid") == 1
    for topology in ("1n1g", "2n1g"):
        assert records.read_run(project.record(topology, "capped")).status == "ok"
        names = sorted(path.name for path in project.record(topology, "capped").parent.iterdir())
        assert names == ["run1.json", "run1.log", "run1.telemetry.csv"]
    assert "idle" in project.cluster.ask("sinfo", "-h", "-N", "-n", lost, "-o", "%T")


def test_snakemake_killed_and_started_again_while_its_job_runs(finished: tuple[Project, str]) -> None:
    """The second Snakemake does not write the record, and says what to do. Then Ctrl-C cancels jobs in the queue."""
    project, _ = finished
    first = project.start(target("1n1g"))
    job = project.job("1n1g")
    (pid,) = project.rest("1n1g")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert alive(pid), "its job goes on"
    assert "--unlock" in project.run(target("1n1g"), status=1)
    project.run("--unlock")
    output = project.run(target("1n1g"), status=1)
    assert alive(pid) and not project.record("1n1g").exists()
    refusal = re.search(r"is being measured by Slurm job (\d+) since .*?next: [^\n]*scancel (\d+)", output, re.DOTALL)
    assert refusal and refusal[1] == refusal[2] == job, output
    project.cluster.ask("scancel", job)
    until(lambda: not alive(pid))

    second = project.start(target("1n1g"))
    job = project.job("1n1g")
    pid = project.ranks("long", "1n1g")[0]
    os.killpg(second.pid, signal.SIGINT)
    second.communicate(timeout=400)
    assert second.returncode != 0
    until(lambda: not alive(pid))
    assert job not in project.cluster.ask("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()
    assert not project.record("1n1g").exists()
    json.loads((project.path / "results/quick/bz4_fp32.json").read_text())


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
    verdict = checks.read(project.path / f"{CHECK}.json").verdict
    assert verdict.verdict == "not judged" and verdict.last and verdict.last.figures["mlm_accuracy"] is not None

    largest = records.read_max_batch(project.path / LARGEST).frameworks["torch"]
    assert largest.status == "ok" and largest.largest_batch_per_device and largest.smallest_out_of_memory
    assert largest.smallest_out_of_memory == largest.largest_batch_per_device + 1
    assert not list((project.path / "results").rglob(".*.claim"))

"""Programs of somebody else on two nodes of a real Slurm cluster: once on every node, and once with its own srun."""

from __future__ import annotations

import re
import sys

from slurm.conftest import Project
from throughline import processes, records

TRAIN = """
import os, sys, time
node, world = sys.argv[1:]
process = os.environ.get("SLURM_PROCID")
print("on", node, "of", world, "as", process, flush=True)
if "0" in (node, process):
    for step in range(10**6):
        time.sleep(0.01)
        with open(os.environ["THROUGHLINE_MARKS"], "a") as file:
            print(time.monotonic(), step, 4, file=file)
time.sleep(600)
"""
PYTHON = sys.executable
CONFIGURATION = f"""
runs: {{repeats: 1, steps: {{warmup: 3, timed: 20}}}}
programs:
  everywhere: {{command: [{PYTHON}, train.py, "{{node}}", "{{world}}"], timing: marks, per_step: "2 * {{nodes}}"}}
  itself:
    command: [sh, -c, 'cat {{hostfile}}; exec srun --overlap --ntasks-per-node=1 {PYTHON} train.py all {{world}}']
    start: job
    timing: marks
    per_step: "2 * {{nodes}}"
benchmarks:
  own: {{programs: [everywhere, itself], topologies: [2n1g]}}
"""


def test_a_program_on_two_nodes(project: Project) -> None:
    """Each way trains on both nodes, and no process is left on them."""
    (project.path / "train.py").write_text(TRAIN)
    (project.path / "programs.yaml").write_text(CONFIGURATION)
    folder = "results/own/bzprogram_program"
    project.run(
        *(f"{folder}/{name}/2n1g/run1.json" for name in ("everywhere", "itself")), "--configfile", "programs.yaml"
    )
    logs = {}
    for name in ("everywhere", "itself"):
        path = project.path / folder / name / "2n1g" / "run1.json"
        record, logs[name] = records.read_run(path), path.with_suffix(".log").read_text()
        assert (record.status, record.steps_timed) == ("ok", 20), record.reason
        assert [node.node for node in record.telemetry] == [0, 1]
        assert not re.search(r"\btry[1-5]\b", logs[name])
    assert sorted(re.findall(r"on (\S+) of 2 as", logs["everywhere"])) == ["0", "1"]
    assert sorted(re.findall(r"on all of 2 as (\d)", logs["itself"])) == ["0", "1"]
    assert re.search(r"node0 slots=1\n.*node1 slots=1\n", logs["itself"])
    left = [processes.command_line(pid) for name in project.cluster.names for pid in project.cluster.processes(name)]
    assert left and not [words for words in left if b"train.py" in words]

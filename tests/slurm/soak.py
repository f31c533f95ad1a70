"""A soak test: a workflow of an hour on a real Slurm cluster. Nodes go down, and the controller is killed.

    sudo slurm/try/start.sh /tmp/cluster
    sudo python tests/slurm/soak.py /tmp/cluster --minutes 60        (--minutes 3 to try it)
    sudo slurm/try/stop.sh /tmp/cluster

The workflow makes data, runs on one and two nodes, a convergence check, and medians. Every few minutes a busy node
loses its power (everything on it is killed) or is set DOWN (`scontrol`), and comes back later. Twice the controller,
which is the snakemake process, is killed (SIGKILL). Then it is started again as a person would do it: wait until its
earlier jobs are over, call `--unlock`, and repeat the same command. While there is time left, the workflow asks for
more repeats. At the end nothing may be lost; `faults` lists what is. The script prints JSON, and its exit status is 1
if there is a fault. It tests survival and measures no speed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from slurm.conftest import Nodes  # noqa: E402
from throughline import files, records  # noqa: E402
from throughline.study import runs  # noqa: E402
from throughline.study.config import load  # noqa: E402

CONFIGURATION = """
corpus: {{name: little, parts: 2, shards: {{training: 2, test: 1}}, sequences: {{32: 5}}, masking: {{dupe_factor: 1}}}}
runs: {{device: cpu, repeats: {repeats}, steps: {{warmup: 2, timed: 100000, max_total_seconds: 6}}}}
benchmarks:
  soak: {{model: bert-tiny, sequence_length: 32, topologies: [1n1g, 1n2g, 2n1g], batch: {{fp32: [4]}}}}
  long:
    {{model: bert-tiny, sequence_length: 32, topologies: [2n1g], batch: {{fp32: [4]}}, repeats: 1,
     convergence: {{steps: {steps}, evaluate_every: 100, samples: 8}}}}
"""
FINISHED = (
    "results/**/run*.json",
    "results/**/[!.]*.telemetry.csv",
    "results/**/curve.json",
    "data/**/tokens/[!.]*.hdf5",
    "data/**/verified/[!.]*.json",
)
"""Files that must never be made again once they exist: the last files of Slurm's jobs. A job that was lost with its
node begins again, so a shard may be made twice before it is verified."""
AWAY_S = 20.0
"""How many seconds a node is down."""
DOWN_WORDS = ("power", "scontrol")


class Losing(Nodes):
    """The cluster, whose nodes go down by a loss of power or by an order of `scontrol`."""

    def busy(self) -> list[str]:
        """Return the nodes that have a job; the nodes of jobs on several nodes come first."""
        listed = self.ask("squeue", "--noheader", "--states", "RUNNING", "--format", "%D %N").splitlines()
        nodes = [line.split()[1] for line in sorted(listed, reverse=True)]
        return [name for several in nodes for name in self.ask("scontrol", "show", "hostnames", several).split()]

    def lose(self, name: str, how: str) -> None:
        if how == "scontrol":
            self.ask("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=soak")
        else:
            self.take_down(name)

    def find(self, name: str, how: str) -> None:
        if how == "scontrol":
            with contextlib.suppress(AssertionError):  # it is back already
                self.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
        else:
            self.bring_back(name)


class Soak:
    def __init__(self, cluster: Losing, minutes: float, repeats: int) -> None:
        self.cluster, self.minutes, self.more = cluster, minutes, repeats
        self.path = cluster.folder / "soak" / "project"
        self.temporary = cluster.folder / "soak" / "tmp"
        self.temporary.mkdir(parents=True)
        self.variables = os.environ | cluster.variables | {
            "TMPDIR": str(self.temporary), "THROUGHLINE_LOCKS": str(cluster.folder / "soak" / "locks"),
            "THROUGHLINE_CONSOLE": "snakemake",
        }  # fmt: skip
        subprocess.run(["git", "clone", "--quiet", ROOT, self.path], check=True)
        self.start = time.monotonic()
        whole = minutes * 60
        lost_nodes = max(2, int(minutes / 5))  # a node goes down every five minutes
        self.node_times = [whole * (number + 1) / (lost_nodes + 1) for number in range(lost_nodes)]
        self.kill_times = [whole / 3, whole * 2 / 3]
        self.away: tuple[str, str, float] | None = None
        self.seen: dict[Path, str] = {}
        self.twice: set[str] = set()
        self.lost: list[str] = []
        self.killed = self.calls = 0

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def say(self, text: str) -> None:
        print(f"{self.elapsed():7.0f} s  {text}", file=sys.stderr, flush=True)

    def run(self) -> dict[str, Any]:
        repeats = self.more
        while True:
            steps = int(self.minutes * 40)
            (self.path / "soak.yaml").write_text(CONFIGURATION.format(repeats=repeats, steps=steps))
            self.complete(repeats)
            if self.elapsed() > self.minutes * 60:
                break
            repeats += self.more
        self.come_back(wait=True)
        found = faults(self.path)
        found += [f"made twice: {name}" for name in sorted(self.twice)]
        self.begin_on_every_node()
        found += [f"left in the temporary folder: {path.name}" for path in self.temporary.glob("throughline*")]
        found += [f"left running: process {words}" for words in self.left_running()]
        if "Nothing to be done" not in self.call("--dry-run")[1]:
            found.append("one more call would make something again")
        ledger = (self.cluster.folder / "log" / "completed.txt").read_text()
        return {
            "minutes": round(self.elapsed() / 60, 1), "runs": len(list(self.path.glob("results/**/run*.json"))),
            "nodes_lost": Counter(self.lost), "controllers_killed": self.killed, "calls_of_snakemake": self.calls,
            "jobs": Counter(re.findall(r"JobState=(\w+)", ledger)), "faults": found,
        }  # fmt: skip

    def complete(self, repeats: int) -> None:
        """Repeat the same command until everything is there."""
        self.say(f"{repeats} repeats")
        failures = 0
        while True:
            status, output = self.call()
            if status == 0:
                return
            lost_before = len(self.lost)
            if status == -signal.SIGKILL:
                while self.cluster.ask("squeue", "--noheader"):  # the jobs of the killed controller end by themselves
                    self.events(None)
                    time.sleep(1)
                self.call("--unlock")
                continue
            failures = failures + 1 if len(self.lost) == lost_before else 0
            self.say("not everything could be made: " + "; ".join(re.findall(r"failed: \S+", output)))
            if failures > 20:
                sys.exit(f"it makes no headway:\n{output}")

    def call(self, *arguments: str) -> tuple[int, str]:
        """Run Snakemake until it ends or is killed; return its exit status and output."""
        command = [sys.executable, "-m", "snakemake", "--cores", "all", "--profile", "slurm"]
        command += ["--jobs", "2", "--slurm-init-seconds-before-status-checks", "6", "--configfile"]
        command += ["soak.yaml", *arguments]
        log = self.path.parent / "snakemake.log"
        with log.open("a+") as stream:
            stream.seek(0, os.SEEK_END)
            begin = stream.tell()
            process = subprocess.Popen(
                command, cwd=self.path, env=self.variables, stdout=stream, stderr=stream, process_group=0
            )
            while process.poll() is None:
                if not arguments:
                    self.events(process)
                self.watch()
                time.sleep(2)
            self.watch()
            stream.seek(begin)
            output = stream.read()
        self.calls += not arguments
        return process.returncode, output

    def events(self, controller: subprocess.Popen[bytes] | None) -> None:
        """Do what is due: bring a node back, take one down, or kill the controller. All of this while jobs run."""
        self.come_back()
        if self.node_times and self.elapsed() > self.node_times[0] and not self.away and (busy := self.cluster.busy()):
            self.node_times.pop(0)
            how = DOWN_WORDS[len(self.lost) % 2]
            name = busy[len(self.lost) // 2 % 2 % len(busy)]  # the first node of a run, or its second
            self.say(f"{name} goes down ({how})")
            self.cluster.lose(name, how)
            self.lost.append(how)
            self.away = name, how, time.monotonic()
        elif self.kill_times and controller and self.elapsed() > self.kill_times[0] and self.cluster.busy():
            self.kill_times.pop(0)
            self.say("the controller is killed")
            os.killpg(controller.pid, signal.SIGKILL)
            controller.wait()
            self.killed += 1

    def come_back(self, wait: bool = False) -> None:
        if self.away and (wait or time.monotonic() - self.away[2] > AWAY_S):
            self.cluster.find(*self.away[:2])
            self.away = None

    def watch(self) -> None:
        """Note which files are finished, and which finished files have been replaced or removed since."""
        there: set[Path] = {
            path for pattern in FINISHED for path in self.path.glob(pattern) if not path.name.startswith(".")
        }
        for path in there | set(self.seen):
            try:
                now = files.sha256(path)
            except FileNotFoundError:
                now = "removed"
            if self.seen.setdefault(path, now) != now:
                self.twice.add(str(path.relative_to(self.path)))

    def begin_on_every_node(self) -> None:
        """Do on every node what every run does first: remove what a run left behind when the node went down."""
        begin = f"import sys; sys.path.insert(0, {str(self.path / 'src')!r})\n"
        begin += "from throughline import temporary\nwith temporary.folder(): pass"
        for name in self.cluster.names:
            command = ["srun", "--nodelist", name, "--quiet", sys.executable, "-c", begin]
            subprocess.run(command, env=self.variables, check=True)

    def left_running(self) -> Iterator[str]:
        """Yield the processes whose working folder belongs to this soak. The nodes' own daemons are not among them."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if Path(os.readlink(entry / "cwd")).is_relative_to(self.path):
                    yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def faults(project: Path) -> list[str]:
    """List what is wrong with a finished workflow's files: lost, partial or invalid files, and wrong medians."""
    config = load([project / "soak.yaml"])
    found, speeds = [], dict[tuple[str, str, str], list[float]]()
    for spec in runs.expand(config):
        try:
            record = records.read_run(project / spec.record)
            if record.status != "ok" or record.samples_per_s is None:
                found.append(f"{spec.record}: {record.status}, {record.reason}")
            else:
                speeds.setdefault((spec.summary, spec.framework, str(spec.topology)), []).append(record.samples_per_s)
            lines = (project / spec.record).with_suffix(".telemetry.csv").read_text().splitlines()
            if len({line.count(",") for line in lines if not line.startswith("#")}) != 1:
                found.append(f"{spec.record}: telemetry is not whole")
        except (files.UserError, OSError) as error:
            found.append(f"lost: {error}")
    for (summary, framework, topology), values in speeds.items():
        try:
            cell = records.read_summary(project / summary).frameworks[framework][topology]
            if cell.median_speed != statistics.median(values) or cell.n_ok != len(values):
                found.append(f"{summary}: the median of {framework} {topology} is not that of its records")
        except (files.UserError, KeyError) as error:
            found.append(f"lost: {error}")
    curves = [records.read_curve(path) for path in (project / "results").glob("*/convergence_*/curve.json")]
    if [len(curve.loss) == curve.spec.steps.timed for curve in curves] != [True]:
        found.append("lost: the curve of the convergence check")
    for manifest in (project / "data").glob("*/seq*/manifest.json"):
        for shard in files.read_json(manifest)["shards"]:
            if files.sha256(manifest.parent / shard["file"]) != shard["sha256"]:
                found.append(f"{manifest.parent.name}/{shard['file']} is not what the manifest says")
    for folder in ("data", "results"):
        for path in (project / folder).rglob("*"):
            if path.name == ".snakemake_timestamp":  # Snakemake puts this file into every folder that is an output
                continue
            if path.name.startswith(".") or (path.is_file() and path.stat().st_size == 0):
                found.append(f"left over: {path.relative_to(project)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", type=Path, help="the folder that start.sh was given")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--repeats", type=int, default=6, help="how many repeats the workflow asks for at a time")
    given = parser.parse_args()
    result = Soak(Losing(given.cluster.resolve()), given.minutes, given.repeats).run()
    print(json.dumps(result, indent=1))
    return int(bool(result["faults"]))


if __name__ == "__main__":
    sys.exit(main())

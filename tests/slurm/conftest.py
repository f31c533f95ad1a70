"""A real Slurm cluster of four nodes on this machine (slurm/try), a copy of the checkout, and Snakemake on both.

The tests need root, slurm-wlm and munge. Without them they are skipped with the reason. With
THROUGHLINE_REQUIRE_SYSTEM=1 they fail instead.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest

import process_helpers
from clones import ROOT, checkout
from framework_lab import built
from throughline.rank import heartbeat
from throughline.spec import Topology

until = functools.partial(process_helpers.until, every_s=0.5)  # Slurm is asked each time
AT_WORK = ("warm-up", "training")
TRY = ROOT / "slurm" / "try"

CONFIGURATION = """
corpus:
  name: little
  parts: 1
  shards: {training: 2, test: 1}
  sequences: {32: 5, 512: 80}
  masking: {dupe_factor: 1}
runs: {repeats: 1, steps: {warmup: 2, timed: 4}}
benchmarks:
  quick: {model: bert-tiny, sequence_length: 32, topologies: [1n1g, 1n2g, 2n2g, 4n2g], batch: {fp32: [4]},
          slurm: {1n1g: {partition: gpu}, 1n2g: {constraint: plain}}}
  split:
    {model: gpt2-tiny, sequence_length: 32, topologies: [2n2g], batch: {fp32: [4]}, steps: {warmup: 1, timed: 2},
     options: {data: synthetic, sharding: full_shard}}
  crossed:
    {model: gpt2-tiny, sequence_length: 32, topologies: [2n2g], batch: {fp32: [4]}, steps: {warmup: 1, timed: 2},
     options: {data: synthetic, sharding: zero1, tensor_parallel: 2}}
  others:
    {model: bert-tiny, sequence_length: 32, frameworks: [mxnet-horovod, paddle, tensorflow, jax], topologies: [2n1g],
     batch: {fp32: [4]}}
  long: {model: bert-tiny, sequence_length: 32, topologies: [1n1g, 1n2g, 2n1g], batch: {fp32: [4]},
      steps: {timed: 500000}}
  capped:
    {model: bert-tiny, sequence_length: 32, topologies: [1n1g, 2n1g], batch: {fp32: [4]}, steps: {timed: 99999,
        max_total_seconds: 15}}
  limit:
    {model: bert-tiny, sequence_length: 512, topologies: [1n1g, 2n1g], batch: {fp32: [4]}, extras: [max_batch],
     options: {data: synthetic, memory_limit_mb: 700}}
  both:
    {model: bert-tiny, sequence_length: 32, topologies: [2n1g], batch: {fp32: [4]},
     convergence: {steps: 120, evaluate_every: 10, samples: 8}}
"""

SNAKEMAKE = """
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 2, lambda self, seconds: None)
main()
"""
"""Snakemake, which asks Slurm every two seconds. By itself, it would ask ten seconds later each time."""


def missing() -> str | None:
    """Return why this machine cannot have a cluster; None if it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "a cluster on one machine needs Linux and root (network namespaces)"
    programs = [name for name in ("slurmctld", "slurmd", "munged", "ip", "unshare") if not shutil.which(name)]
    if programs:
        return f"{', '.join(programs)} is not installed (apt-get install slurm-wlm munge iproute2)"
    probe = f"tltest{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if added.returncode:
        return f"no network namespaces here: {added.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return None


class Nodes:
    """The nodes of a cluster that slurm/try/start.sh has made in a folder. Each has a network namespace of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.variables = folder, {"SLURM_CONF": str(folder / "etc" / "slurm.conf")}
        network = dict(line.split("=") for line in (folder / "network").read_text().split())
        numbers = range(1, 1 + int(network["nodes"]))
        self.names = [f"try{number}" for number in numbers]
        self.namespaces = [f"{network['tag']}-{number}" for number in numbers]
        self.down: set[str] = set()

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | self.variables, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def nodes_of(self, job: str) -> list[str]:
        return self.ask("scontrol", "show", "hostnames", self.ask("squeue", "-h", "-j", job, "-o", "%N")).split()

    def space(self, name: str) -> str:
        """Return the network namespace of a node."""
        return self.namespaces[self.names.index(name)]

    def address(self, name: str) -> str:
        lines = (self.folder / "etc" / "hosts").read_text().splitlines()
        return next(line.split()[0] for line in lines if name in line.split()[1:])

    def processes(self, name: str) -> list[int]:
        """Return the ids of all processes on a node."""
        found = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def take_down(self, name: str) -> None:
        """End everything on the node at once, like a power failure."""
        self.down.add(name)
        for pid in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def bring_back(self, name: str) -> None:
        self.down.discard(name)
        subprocess.run([TRY / "node.sh", self.folder, name.removeprefix("try")], check=True)


class Cluster(Nodes):
    """A cluster of four nodes with two cores, and one node with a pretended GPU."""

    def __init__(self, folder: Path) -> None:
        variables = os.environ | {"NODES": "4", "GPU_NODES": "1", "CORES": "2", "MEMORY_MB": "16000"}
        # The shell starts the cluster and waits for the end of its input, which also comes if this process is killed.
        commands = (
            '"$0/start.sh" "$1" > "$1.log" 2>&1 && trap "" PIPE && echo started && cat; "$0/stop.sh" "$1" >> "$1.log"'
        )
        self.guard = subprocess.Popen(
            ["sh", "-c", commands, TRY, folder], env=variables, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        started = self.guard.stdout.readline()
        assert started, folder.with_name(f"{folder.name}.log").read_text()
        super().__init__(folder)

    def stop(self) -> None:
        self.guard.communicate()
        assert self.guard.returncode == 0


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = missing()
    process_helpers.needs(reason is None, str(reason))
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@dataclass
class Project:
    """A copy of the tracked files, in which Snakemake uses the cluster."""

    path: Path
    cluster: Cluster
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `snakemake ... --profile slurm` in its own process group, with both streams in stdout."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE")}
        command = [sys.executable, "-c", SNAKEMAKE, "--cores", "all", "--profile", "slurm", *arguments]
        if "--configfile" not in arguments:
            command += ["--configfile", "cluster.yaml"]
        variables |= self.cluster.variables
        process = subprocess.Popen(
            command, cwd=self.path, env=variables, stdout=PIPE, stderr=STDOUT, text=True, process_group=0
        )
        self.started.append(process)
        return process

    def clear(self) -> None:
        """End what a failed test has left behind, so that it cannot make the next test fail."""
        for name in sorted(self.cluster.down):
            self.cluster.bring_back(name)
        running = [process for process in self.started if process.poll() is None]
        self.started.clear()
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        # Also without a Snakemake: Ctrl-C cancels no job whose state Snakemake asks for at this moment.
        if jobs := self.cluster.ask("squeue", "-h", "-o", "%A").split():
            self.cluster.ask("scancel", *jobs)
            until(lambda: not self.cluster.ask("squeue", "-h", "-o", "%A"))
        if running:
            shutil.rmtree(self.path / ".snakemake" / "locks", ignore_errors=True)

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run Snakemake until it ends with `status`; return what it printed."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=1200)
        assert process.returncode == status, output
        return output

    def job(self, topology: str, benchmark: str = "long") -> str:
        """Wait until a run's Slurm job is running and all of its ranks have begun; return the job's number."""
        jobs: list[str] = []
        name = f"rule_run_wildcards_{benchmark}_4_fp32_torch_{topology}_1"

        def running() -> bool:
            assert self.started[-1].poll() is None, self.started[-1].communicate()[0]
            listed = self.cluster.ask("squeue", "-h", "-t", "RUNNING", "-o", "%A %k").splitlines()
            jobs[:] = [line.split()[0] for line in listed if line.split()[1] == name]
            return bool(jobs) and len(self.ranks(benchmark, topology)) == Topology.parse(topology).world

        until(running, 450)  # five ranks that start beside other tests are slow
        return jobs[0]

    def ranks(self, benchmark: str, topology: str) -> dict[int, int]:
        """Map each rank of this project's run that has begun to its process id, on all nodes."""
        return {
            worker.rank: worker.pid
            for worker in workers(int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
            if worker.project == self.path
            and [worker.spec["benchmark"], worker.spec["topology"]] == [benchmark, topology]
            and worker.phase in AT_WORK
        }

    def rest(self, topology: str) -> list[int]:
        """Stop the ranks of a run, so that they leave the processor to others. Return their process ids."""
        ranks = list(self.ranks("long", topology).values())
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        return ranks

    def record(self, topology: str, benchmark: str = "long") -> Path:
        return self.path / f"results/{benchmark}/bz4_fp32/torch/{topology}/run1.json"

    def log(self, topology: str, benchmark: str = "long") -> str:
        return self.record(topology, benchmark).with_suffix(".log").read_text()


@dataclass(frozen=True)
class Worker:
    """A rank that runs. project: its checkout; spec: that of its run."""

    pid: int
    rank: int
    phase: str
    project: Path
    spec: dict[str, Any]


def workers(pids: Iterable[int]) -> Iterator[Worker]:
    """Yield the ranks among these processes."""
    for pid in pids:
        folder = Path("/proc", str(pid))
        with contextlib.suppress(OSError, KeyError):  # it has just ended, or it is another program
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"throughline.rank.worker" not in words[2:4]:  # in horovodrun's command line, the name comes later
                continue
            variables = (folder / "environ").read_bytes().split(b"\0")
            environment = dict(os.fsdecode(variable).partition("=")[::2] for variable in variables)
            rank = int(environment["RANK"])
            beat = heartbeat.read(Path(environment["THROUGHLINE_NODE"], f"rank_{rank}.beat"))
            start = next((word for word in words if word.endswith(b"/src/start.py")), b"/src/start.py")
            spec = json.loads(Path(os.fsdecode(words[-2])).read_text())["spec"]
            yield Worker(pid, rank, beat.phase, Path(os.fsdecode(start)).parents[1], spec)


@pytest.fixture(scope="session")
def project(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copied(tmp_path_factory.mktemp("slurm") / "project", cluster)


def copied(path: Path, cluster: Cluster) -> Project:
    checkout(path)
    (path / "cluster.yaml").write_text(CONFIGURATION)
    return Project(path, cluster)


@pytest.fixture(autouse=True)
def cleared(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "project" in request.fixturenames:
        request.getfixturevalue("project").clear()


OTHERS = ("mxnet-horovod", "paddle", "tensorflow", "jax")
TWO_NODES = [f"results/{name}/bz4_fp32/torch/2n2g/run1.json" for name in ("split", "crossed")]
"""Runs of a model that is split over two nodes."""


def others() -> list[str]:
    """Return the runs of the other libraries whose environments are built."""
    return [f"results/others/bz4_fp32/{name}/2n1g/run1.json" for name in built(OTHERS)]


@pytest.fixture(scope="session")
def finished(project: Project) -> tuple[Project, str]:
    """The project after the quick benchmark with its summary and tables and after all other runs that nothing disturbs,
    and what Snakemake printed."""
    return project, project.run("results/quick/bz4_fp32.json", "results/quick/tables", *TWO_NODES, *others())

"""Hosts behind ssh and nodes of a Slurm job are checked before a run. Real sshd and slurmd run on their nodes."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from framework_lab import RUN_TRAINING, arguments
from process_helpers import mounted, needs, psutil_that
from slurm.conftest import Cluster, until
from throughline import processes, records
from throughline.installation import choose, recipe

PORT = 2222
LITTLE = 300 << 20
"""Bytes of data that a process may have: just enough to report that this is too little."""
LIMITED = "too little memory: a process may have 0.3 GiB"


class Hosts:
    """An sshd on each of the cluster's first two nodes, each on its own core, and an `ssh` that finds them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder, self.core = folder, max(os.sched_getaffinity(0))
        self.names = ("try1", "try2")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
        settings = "".join(f"Host {name}\n  HostName {cluster.address(name)}\n" for name in self.names)
        settings += f"Host *\n  Port {PORT}\n  IdentityFile {folder}/key\n  StrictHostKeyChecking no\n"
        (folder / "ssh_config").write_text(settings + "  UserKnownHostsFile /dev/null\n")
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        (self.bin / "ssh").chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)
        cores = (min(os.sched_getaffinity(0)), self.core)
        self.daemons = [
            self._start(cluster.namespaces[node], name, cores[node]) for node, name in enumerate(self.names)
        ]
        until(lambda: all(self._answers(name) for name in self.names))

    def _start(self, space: str, name: str, core: int) -> subprocess.Popen[bytes]:
        (self.folder / name).mkdir()
        config = self.folder / f"{name}.conf"
        config.write_text(
            f"Port {PORT}\nHostKey {self.folder}/key\nAuthorizedKeysFile {self.folder}/key.pub\nStrictModes no\n"
            "UsePAM no\nPidFile none\nPermitRootLogin yes\n"
            f"SetEnv TMPDIR={self.folder / name} PATH={self.bin}:{os.environ['PATH']}\n"
        )
        daemon = f"hostname {name}; exec taskset -c {core} {shutil.which('sshd')} -D -e -f {shlex.quote(str(config))}"
        return subprocess.Popen(
            ["ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", daemon], stderr=subprocess.DEVNULL
        )

    def _answers(self, name: str) -> bool:
        return subprocess.run([self.bin / "ssh", name, "true"], capture_output=True).returncode == 0

    def stop(self) -> None:
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


@pytest.fixture(scope="module")
def hosts(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    needs(shutil.which("sshd") is not None and shutil.which("taskset") is not None, "sshd (openssh-server)")
    made = Hosts(cluster, tmp_path_factory.mktemp("hosts"))
    yield made
    made.stop()


class Run:
    """A call of run_training.py on two nodes, in a folder that both nodes see."""

    def __init__(self, folder: Path, *before: str, **changes: Any) -> None:
        manifest, spec = training_fixtures.corpus(folder / "data"), training_fixtures.spec(topology="2n1g", **changes)
        self.folder, self.record = folder, folder / spec.record
        self.command = [*before, *RUN_TRAINING, *arguments(spec, folder, manifest)]

    def ends(self, status: int, *options: str, **variables: str) -> str:
        """Make the call, which must end with `status`; return its stderr."""
        done = subprocess.run(
            [*self.command, *options], cwd=self.folder, env=os.environ | variables, capture_output=True, text=True,
            timeout=200,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr


@contextlib.contextmanager
def limited(pid: int) -> Iterator[None]:
    """Limit the memory of `pid` and of all processes that it starts."""
    before = resource.prlimit(pid, resource.RLIMIT_DATA, (LITTLE, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_DATA, before)


def horovod_run(folder: Path, *before: str, **changes: Any) -> Run:
    """Return a call with torch-horovod, of a window that is long enough to be sampled."""
    marker = Path(choose.ready("torch-horovod") or "")
    needs(marker.is_file() and shutil.which("mpirun") is not None, "mpirun, and make frameworks")
    changes = {"steps": {"timed": 20, "min_window_seconds": 3.0}} | changes
    run = Run(folder, *before, framework="torch-horovod", **changes)
    run.command += ["--python", recipe.python_of(recipe.name_of(marker))]
    return run


def sampled_nodes(run: Run) -> list[int]:
    """Return the nodes whose processes the record's telemetry has seen at work."""
    record = records.read_run(run.record)
    assert (record.status, [rank.node for rank in record.ranks]) == ("ok", [0, 1]), record.reason
    return [node.node for node in record.telemetry or () if (cores := node.processes["cpu_cores"]) and cores.mean > 0.1]


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_horovod_takes_its_variables_to_the_second_host(hosts: Hosts, tmp_path: Path, controller: str) -> None:
    """Without them, a rank on the second host does not find its libraries. Each host has a sampler, and a log of it."""
    run = horovod_run(tmp_path, hosts="ssh", options={"controller": controller})
    run.ends(0, "--hosts", *hosts.names, PATH=f"{hosts.bin}:{os.environ['PATH']}")
    assert sampled_nodes(run) == [0, 1]
    log = run.record.with_suffix(".log").read_text()
    assert "[rank 0] seconds: " in log and "[rank 1] seconds: " in log


def test_a_sampler_that_fails_and_a_launcher_that_is_killed(hosts: Hosts, tmp_path: Path) -> None:
    """The run goes on without the figures of a node, and says so. The end of the launcher ends all on both hosts."""
    run = horovod_run(tmp_path, hosts="ssh", steps={"timed": 20, "min_window_seconds": 8.0})
    command = [*run.command, "--hosts", *hosts.names]
    fails = psutil_that("import sys\nif sys.argv[2:3] == ['1']: raise OSError('no /proc here')", tmp_path / "psutil")

    def started() -> subprocess.Popen[bytes]:
        environment = os.environ | {"PATH": f"{hosts.bin}:{os.environ['PATH']}", "PYTHONPATH": fails}
        made = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        until(lambda: len(at_work(tmp_path, "launch.agent")) == 2 and bool(at_work(tmp_path, "rank.worker")), 180)
        return made

    first = started()
    assert first.wait(120) == 0 and sampled_nodes(run) == [0]
    record = records.read_run(run.record)
    reason = "node 1: there are no figures of this node, because its sampler failed (OSError: no /proc here)"
    assert any(text.startswith(reason) and text.endswith("covers only node 0") for text in record.warnings)
    second = started()
    second.kill()
    second.wait()
    until(lambda: not at_work(tmp_path, "launch.agent") and not at_work(tmp_path, "rank.worker"), 30)


def at_work(folder: Path, module: str) -> list[int]:
    """Return the process ids of the agents or the ranks of the run in `folder`."""
    words = {pid: processes.command_line(pid).split(b"\0") for pid in processes.descendants(1)}
    ours = [pid for pid, line in words.items() if f"throughline.{module}".encode() in line[2:3]]
    return [pid for pid in ours if os.fsdecode(words[pid][3]).startswith(str(folder))]


def test_a_run_over_ssh_and_what_refuses_it_on_the_second_host(hosts: Hosts, tmp_path: Path) -> None:
    run = Run(tmp_path, hosts="ssh")
    path, options = f"{hosts.bin}:{os.environ['PATH']}", ("--hosts", *hosts.names)
    with limited(hosts.daemons[1].pid):
        assert f"entry 2 of runs.hosts: {LIMITED}" in run.ends(1, *options, PATH=path)
    with mounted(hosts.folder / "try2", "size=4m", "nsenter", "-t", str(hosts.daemons[1].pid), "-m"):  # temporary files
        assert "entry 2 of runs.hosts: too little disk: " in run.ends(1, *options, PATH=path)
    other = subprocess.Popen(["taskset", "-c", str(hosts.core), sys.executable, "-c", "while True: pass"])
    try:
        assert "of runs.hosts: this machine is busy: " in run.ends(1, "--strict", *options, PATH=path)
        assert not run.record.exists()
        run.ends(0, *options, PATH=path)
    finally:
        other.kill()
        other.wait()
    record = records.read_run(run.record)
    assert (record.status, [rank.node for rank in record.ranks]) == ("ok", [0, 1])
    assert any(text.startswith("node 1: other processes use ") for text in record.warnings)
    hosts.daemons[1].send_signal(signal.SIGTERM)
    hosts.daemons[1].wait()
    assert "entry 2 of runs.hosts cannot be reached through ssh" in run.ends(1, *options, PATH=path)


def test_a_node_of_a_slurm_job_that_is_not_fit_is_named(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(tmp_path, "salloc", "--quiet", "--nodes=2", "--exclusive", "--nodelist=try1,try2")
    with limited(int((cluster.folder / "run" / "try2.pid").read_text())):
        assert f"node 1: {LIMITED}" in run.ends(1, **cluster.variables)


def test_horovod_in_a_slurm_job_has_a_sampler_on_each_node(cluster: Cluster, tmp_path: Path) -> None:
    run = horovod_run(tmp_path, "salloc", "--quiet", "--nodes=2", "--exclusive", "--nodelist=try1,try2")
    run.ends(0, **cluster.variables)
    assert sampled_nodes(run) == [0, 1]

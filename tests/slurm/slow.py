"""Make a part of the test cluster slow, as real faults do: a node or its disk by a control group, a link by tc.

with node(cluster, "try2"): ...              its ranks get little processor time
with disk(cluster, "try2"): ...              its ranks write to and read from the disk slowly
with link(cluster, "try1", "try3"): ...      only what these two send to each other is slow
with network(cluster, "try4"): ...           everything that this node sends is slow
with hanging(cluster, "try2"): ...           its ranks stand still
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from process_helpers import needs
from slurm.conftest import Cluster, workers

RATE = "20mbit"
PERIOD_US, QUOTA_US = 100_000, 4_000
"""A rank at work gets 4 % of one core."""
DISK_BYTES_PER_S = 2_000_000
CONTROLLERS = Path("/sys/fs/cgroup")
STARTING = ("start", "join", "device", "model", "data", "optimizer")
LOOK_EVERY_S = 0.2


@contextlib.contextmanager
def node(cluster: Cluster, name: str) -> Iterator[None]:
    """Give the ranks on a node little processor time while they work. They start at full speed, to save time."""
    with _limited(cluster, name, "cpu", {"cpu.cfs_period_us": f"{PERIOD_US}", "cpu.cfs_quota_us": f"{QUOTA_US}"}):
        yield


@contextlib.contextmanager
def disk(cluster: Cluster, name: str) -> Iterator[None]:
    """Let the ranks on a node write to, and read from, the disk of the temporary folder slowly while they work."""
    number = os.stat(tempfile.gettempdir()).st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    whole = device.parent if (device / "partition").exists() else device
    needs((whole / "dev").exists(), "a temporary folder on a disk")
    limit = f"{(whole / 'dev').read_text().strip()} {DISK_BYTES_PER_S}"
    keys = ("blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device")
    with _limited(cluster, name, "blkio", dict.fromkeys(keys, limit)):
        yield


@contextlib.contextmanager
def hanging(cluster: Cluster, name: str) -> Iterator[None]:
    """Stop the ranks of a node for ever, as a call that hangs in a driver does."""
    with _at_work(cluster, name, lambda pid: os.kill(pid, signal.SIGSTOP)):
        yield


@contextlib.contextmanager
def _limited(cluster: Cluster, name: str, controller: str, limits: dict[str, str]) -> Iterator[None]:
    """Put the ranks on a node that are at work into a control group with these limits."""
    root = CONTROLLERS / controller
    needs((root / next(iter(limits))).exists(), f"control groups of version 1 with {next(iter(limits))}")
    group = root / cluster.space(name)
    group.mkdir()
    for key, limit in limits.items():
        (group / key).write_text(limit)
    try:
        with _at_work(cluster, name, lambda pid: (group / "cgroup.procs").write_text(str(pid))):
            yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        group.rmdir()


@contextlib.contextmanager
def _at_work(cluster: Cluster, name: str, do: Callable[[int], object]) -> Iterator[None]:
    """Call `do` once with the process id of every rank on a node that is at work."""
    over, done = threading.Event(), set[int]()

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            for worker in workers(cluster.processes(name)):
                if worker.pid not in done and worker.phase not in STARTING:
                    with contextlib.suppress(OSError):
                        do(worker.pid)
                        done.add(worker.pid)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def link(cluster: Cluster, one: str, other: str) -> Iterator[None]:
    """Slow down what two nodes send to each other, and nothing else."""
    with contextlib.ExitStack() as stack:
        for here, there in ((one, other), (other, one)):
            stack.enter_context(_shaped(cluster, here, f"{cluster.address(there)}/32"))
        yield


@contextlib.contextmanager
def network(cluster: Cluster, name: str) -> Iterator[None]:
    """Slow down everything that a node sends to other nodes. Slurm's controller is not one of them."""
    others = [other for other in cluster.names if other != name]
    with _shaped(cluster, name, *(f"{cluster.address(other)}/32" for other in others)):
        yield


@contextlib.contextmanager
def _shaped(cluster: Cluster, name: str, *destinations: str) -> Iterator[None]:
    """Limit what a node sends to these addresses. The other traffic has a class without a limit."""
    there = ["tc", "-n", cluster.space(name)]
    on = ["dev", "eth0"]
    subprocess.run([*there, "qdisc", "add", *on, "root", "handle", "1:", "htb"], check=True)
    try:
        limit = ["htb", "rate", RATE, "burst", "32k", "quantum", "1514"]
        subprocess.run([*there, "class", "add", *on, "parent", "1:", "classid", "1:1", *limit], check=True)
        chosen = [*there, "filter", "add", *on, "parent", "1:", "protocol", "ip", "u32"]
        for destination in destinations:
            subprocess.run([*chosen, "match", "ip", "dst", destination, "flowid", "1:1"], check=True)
        yield
    finally:
        subprocess.run([*there, "qdisc", "delete", *on, "root"], check=True)

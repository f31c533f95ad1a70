"""Give up Slurm's jobs that wait for a node which has gone down, so that an acceptance ends without that node.

Slurm keeps such jobs in its queue until the node is back, which may take days. A node job that is given up fails like
any other: its figures are missing in the verdict, and the next call makes it. A node that was down before Snakemake
started has no jobs (fleet.py).
"""

import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from throughline.files import UserError
from throughline.launch import slurm_partition

LOOK_EVERY_S = 30.0
WAITING = ["squeue", "--me", "--noheader", "--states", "PENDING", "--format", "%A|%Z|%k|%n"]


def watch(
    names: Mapping[int, str], partition: str | None, say: Callable[[str], None], folder: Path | None = None
) -> threading.Event:
    """Look for lost nodes from time to time, in a thread, until the returned event is set.

    names: of the nodes by their number; folder: the one in which Snakemake works.
    """
    over = threading.Event()
    here = str(folder or Path.cwd())

    def look() -> None:
        before: set[str] = set()
        while not over.wait(LOOK_EVERY_S):
            with suppress(UserError, OSError, subprocess.SubprocessError):  # Slurm is busy: it is asked again
                before = give_up(names, slurm_partition.nodes_now(partition), before, here, say)

    threading.Thread(target=look, daemon=True, name="lost nodes").start()
    return over


def give_up(
    names: Mapping[int, str],
    nodes: Collection[slurm_partition.SlurmNode],
    before: Collection[str],
    folder: str,
    say: Callable[[str], None],
) -> set[str]:
    """Cancel the node jobs that wait for a node which is away now and was away before. Return all that are away.

    names: of the nodes by their number; before: what the call before has returned.
    """
    away = {node.name: node.state for node in nodes if node.name in names.values() and node.is_lost}
    for number, name in names.items():
        if name not in away or name not in before:
            continue
        if jobs := [job for job, wanted in _waiting(folder).items() if name in wanted]:
            subprocess.run(["scancel", *jobs], check=True, capture_output=True, timeout=60)
            visits = "1 node job that waits" if len(jobs) == 1 else f"{len(jobs)} node jobs that wait"
            say(f"node {number}: Slurm says that it is {away[name]}; {visits} for it given up, a later call makes them")
    return set(away)


def _waiting(folder: str) -> dict[str, list[str]]:
    """Map the node jobs of this folder that wait in Slurm's queue to the nodes that they ask for."""
    found = {}
    for line in _answer(WAITING).splitlines():
        job, where, comment, wanted = line.split("|")
        if where == folder and comment.startswith("rule_accept_visit"):
            found[job] = _answer(["scontrol", "show", "hostnames", wanted]).split()
    return found


def _answer(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

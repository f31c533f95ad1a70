"""Launchers that belong to a framework and start its ranks in place of the agents. Standard library only."""

from collections.abc import Callable
from dataclasses import dataclass

from throughline.messages import LaunchPlan
from throughline.spec import RunSpec

WORKER = "throughline.rank.worker"


@dataclass(frozen=True)
class Starter:
    """A framework's own launcher, which starts the ranks of all nodes. The agent of the first node starts it.

    `command` takes the specification, the plan, the path of launch_plan.json and the agent's folder, and returns the
    command line. `variables` has an entry for each program that may start the ranks: the names of the environment
    variables in which a process finds its rank, its rank on the node, and the world size.
    """

    name: str
    command: Callable[[RunSpec, LaunchPlan, str, str], list[str]]
    variables: tuple[tuple[str, str, str], ...]


def srun(nodes: int, cores: int) -> list[str]:
    """Return the srun command that starts one task on every node of the current Slurm job.

    Every option is written out, because Snakemake removes the variables of Slurm that hold the defaults.
    """
    return [
        "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cores}",
        "--mpi=none", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--quiet",
    ]  # fmt: skip

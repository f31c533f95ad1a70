"""What rules/accept.smk says about node jobs of an acceptance: which nodes there are, what is measured, what it needs.

The comparison and the archive take the acceptance that is there. It is no input of theirs, because then they would
measure what is missing of it. Only if the same call makes an acceptance, they wait for it.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from snakemake.logging import logger

from throughline.console import node_jobs
from throughline.files import read_json
from throughline.launch import fleet, quick_check, slurm_partition
from throughline.spec import RunSpec
from throughline.study import acceptance, result_sections
from throughline.study.targets import pick
from throughline.workflow.call import or_exit
from throughline.workflow.slurm_resources import SlurmResources, shape

Visit = Sequence[acceptance.Measurement]


class NodeJobs:
    """The node jobs of an acceptance. Nodes are asked only if somebody wants an acceptance."""

    def __init__(self, slurm: SlurmResources) -> None:
        self.slurm, self.inside, self.config = slurm, slurm.inside, slurm.config

    @cached_property
    def fleet_nodes(self) -> fleet.FleetNodes:
        """The nodes. The main process keeps their numbers and names for its jobs and for later calls."""
        if self.inside.is_submitted:
            return or_exit(fleet.read_nodes)
        nodes = or_exit(fleet.find, self.config.accept, self.inside.submits, self.partition)
        if not self.inside.is_dry_run:
            or_exit(nodes.write)
        return nodes

    @cached_property
    def asked(self) -> acceptance.Plan:
        return or_exit(acceptance.asked, self.config, self.fleet_nodes.fleet)

    @property
    def partition(self) -> str | None:
        """Slurm's partition whose nodes are measured; None: Slurm's default."""
        return self.slurm.first_partition("accept_visit", self.config.accept.partition)

    @property
    def away(self) -> str:
        """Why nodes cannot be measured now, as JSON by their numbers."""
        return self.fleet_nodes.away_text

    def visit(self, wildcards: Any) -> Visit:
        """Return the measurements of a node job."""
        file = acceptance.VISIT.format(**wildcards)
        return or_exit(pick, self.asked.visits, file, "the node job {}")

    def specs(self, **wildcards: str) -> list[RunSpec]:
        """Return the runs of a node job, those with the most ranks on a node last."""
        return sorted((measured.spec for measured in self.visit(wildcards)), key=lambda spec: shape(spec).devices)

    def visits_now(self, check_nodes: Callable[[], Any]) -> list[str]:
        """Return the files of all node jobs whose nodes are there. A later call makes those of nodes that are away.

        In a quick acceptance, these are the pairs of nodes that have passed; `check_nodes` waits for their checks.
        """
        visits = self.asked.visits.items()
        if self.asked.quick:
            check_nodes()
            bad = {int(node) for node in read_json(acceptance.QUICK)["not_passed"]}
            places = {file: visit[0].place for file, visit in visits}
            pairs = [name for name, place in places.items() if place.kind == "pair" and not bad & set(place.nodes)]
            return [acceptance.QUICK, *pairs]
        files = [file for file, visit in visits if not self.fleet_nodes.away.keys() & set(visit[0].place.nodes)]
        if all(map(os.path.exists, files)):  # no plan is printed then, because there may be nothing to do
            _say_who_is_away(tuple(self.fleet_nodes.away.items()))
        return files

    def nodes(self, wildcards: Any) -> int:
        """Return how many nodes a node job gets from Slurm."""
        on_slurm = self.inside.submits or self.inside.is_submitted
        return len(self.visit(wildcards)[0].place.nodes) if on_slurm else 1

    def threads(self, wildcards: Any) -> int:
        """Return the cores of this machine that a node job takes. Jobs to other hosts share them to go side by side."""
        visit = self.visit(wildcards)
        if visit[0].spec.hosts != "ssh":
            return self.inside.cores
        return max(1, self.inside.cores // len(self.fleet_nodes.fleet.nodes) * len(visit[0].place.nodes))

    def _cores(self, wildcards: Any) -> int:
        """Return the cores of each node: one for each thread; with GPUs on Slurm, all that a node has."""
        spec = self.specs(**wildcards)[-1]
        if self.inside.submits and spec.device != "cpu":
            return or_exit(slurm_partition.cores, self.partition)
        return shape(spec).devices * spec.threads

    def _options(self, wildcards: Any) -> str:
        """Return further options for Slurm: on the nodes of this place, which nobody else uses meanwhile."""
        options = self.slurm.options(self.specs(**wildcards)[-1])
        if not self.inside.submits:
            return options
        names = tuple(self.fleet_nodes.names[node] for node in self.visit(wildcards)[0].place.nodes)
        return f"{options} --nodefile={shlex.quote(fleet.node_file(names))}"

    @property
    def resources(self) -> dict[str, Any]:
        """What a node job requests from the machine or from Slurm."""
        return {
            "bench_slot": lambda wildcards: 0 if self.visit(wildcards)[0].spec.hosts == "ssh" else 1,
            "nodes": self.nodes,
            "tasks": self.nodes,
            "mpi": lambda wildcards: "srun" if self.nodes(wildcards) > 1 else None,
            "cpus_per_task": self._cores,
            "slurm_partition": lambda wildcards: self.partition,
            "slurm_extra": self._options,
            "mem_mb": lambda wildcards: self.slurm.memory_mb(self.specs(**wildcards)[-1]),
        }

    def priority(self, wildcards: Any) -> int:
        """Return the priority of a node job: higher the earlier it stands in the order of all node jobs."""
        return self.asked.priorities[acceptance.VISIT.format(**wildcards)]

    def quick_specs(self, **_: str) -> list[RunSpec]:
        """Return the runs of a quick acceptance on a node."""
        (file, *_others) = self.asked.visits
        return [measured.spec for measured in self.asked.visits[file]]

    def srun(self, _: Any) -> list[str]:
        """Return the options of srun for the quick check of a node, as arguments; none without Slurm."""
        if not self.inside.submits:
            return []
        (place, *_others), repeat = self.asked.fleet.nodes, "1"
        job = {"place": f"node{place}", "repeat": repeat}
        spec = self.specs(**job)[-1]
        account = next(filter(None, self.inside.resource("accept_visit", "slurm_account")), None)
        words = self.slurm.options(spec)
        options = quick_check.srun_options(
            words, self.partition, account and str(account), self._cores(job), self.slurm.memory_mb(spec)
        )
        return [f"--srun={option}" for option in options]

    def plan(self, pending: set[str]) -> node_jobs.NodeJobs | None:
        """Return the node jobs among the files that this call makes; None if there are none."""
        if acceptance.QUICK in pending:
            return node_jobs.quick(self.asked)
        made = {file for file in pending if file.startswith(acceptance.FOLDER) and Path(file).name.startswith("visit")}
        if not made:
            return None
        visits, settled = self.asked.visits, self.fleet_nodes
        return node_jobs.planned(visits, made, settled.fleet, settled.away, self.inside.submits)

    def watch(self) -> None:
        """Give up node jobs that wait for a node which goes down while they are in Slurm's queue."""
        slurm_partition.watch_lost_nodes(self.fleet_nodes.names, self.partition, logger.warning)

    # What the comparison and the archive ask.

    def result_now(self, _: Any) -> list[str]:
        """Return the acceptance, if this call makes it anyway."""
        made = any(target == "accept" or target.startswith("results/acceptance") for target in self.inside.targets)
        return [acceptance.RESULT] if made else []

    def result_words(self, wildcards: Any) -> list[str]:
        """Return the acceptance that is there, or that this call makes, as words of a command line."""
        there = Path(acceptance.RESULT).is_file() or self.result_now(wildcards)
        return ["--acceptance", acceptance.RESULT] if there else []

    def result_state(self, _: Any) -> str:
        """Return digits that change with the acceptance."""
        return result_sections.files_digest([Path(acceptance.RESULT)])


@cache  # Snakemake asks for the visits several times
def _say_who_is_away(away: tuple[tuple[int, str], ...]) -> None:
    for node, why in away:
        logger.warning(f"node {node} is left out, because {why}; a later call measures it")

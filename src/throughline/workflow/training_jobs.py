"""What rules say about jobs that train: inputs, parameters and resources, from the runs that a job makes."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from snakemake.io import ancient

from throughline import frameworks, versions
from throughline.files import UserError
from throughline.installation import choose, recipe
from throughline.spec import RunSpec, canonical
from throughline.study import runs
from throughline.workflow.directives import by_wildcards
from throughline.workflow.slurm_resources import SlurmResources, shape


@dataclass(frozen=True)
class TrainingJobs:
    """The jobs of a rule that makes several runs one after the other.

    look_up: maps the wildcards of a job to its runs, the largest topology last. Data and environments are `ancient`:
    newer ones do not make a job run again.
    """

    look_up: Callable[..., Sequence[RunSpec]]
    slurm: SlurmResources

    def specs(self, wildcards: Any) -> Sequence[RunSpec]:
        """Return the runs of a job."""
        specs: Sequence[RunSpec] = by_wildcards(self.look_up)(wildcards)
        return specs

    def text(self, wildcards: Any) -> str:
        """Return the runs of a job as a JSON list."""
        return canonical([spec.changed() for spec in self.specs(wildcards)])

    def manifest(self, wildcards: Any) -> Any:
        """Return the manifest of the data that a job reads; none with synthetic data."""
        path = runs.manifest(self.specs(wildcards)[0])
        return ancient(path) if path else []

    def environments(self, wildcards: Any) -> list[Any]:
        """Return the environments of a job's frameworks, except those that use the workflow's own."""
        return [ancient(marker) for marker in self._markers(wildcards).values()]

    def environment_words(self, wildcards: Any) -> list[str]:
        """Return the names of these environments as arguments."""
        return [f"--environment={name}={recipe.name_of(at)}" for name, at in self._markers(wildcards).items()]

    def _markers(self, wildcards: Any) -> dict[str, str]:
        """Map each framework with an environment to the file that is there when it has been built."""
        names = dict.fromkeys(spec.framework for spec in self.specs(wildcards) if not spec.program)
        return {name: str(marker) for name in names if (marker := choose.ready(name))}

    @property
    def resources(self) -> dict[str, Any]:
        """What a job requests from the machine or from Slurm, for its largest topology."""
        return {
            "bench_slot": 1,
            "cpus_per_task": self._largest(self.slurm.cores),
            "slurm_partition": self._largest(self.slurm.partition),
            "constraint": self._largest(lambda spec: self.slurm.placement(spec).constraint),
            "slurm_extra": self._largest(self.slurm.options),
            "mem_mb": self._largest(self.slurm.memory_mb),
        }

    def _largest(self, question: Callable[[RunSpec], Any]) -> Callable[[Any], Any]:
        return lambda wildcards: question(self.specs(wildcards)[-1])


@dataclass(frozen=True)
class RunJobs(TrainingJobs):
    """The jobs of a rule that makes one run, on the nodes of its topology.

    look_up: maps the wildcards of a job, of which `framework` is one, to a list with its run.
    """

    def text(self, wildcards: Any) -> str:
        """Return the specification of the run as JSON."""
        return self.specs(wildcards)[0].canonical

    def environment_words(self, wildcards: Any) -> list[str]:
        """Return the name of its environment as arguments. Without them its workers use the launcher's own."""
        if self._uses_conda:
            return ["--python", "python"]
        return [word for at in self._markers(wildcards).values() for word in ("--environment", recipe.name_of(at))]

    def _markers(self, wildcards: Any) -> dict[str, str]:
        return {} if self.slurm.inside.is_deployed else super()._markers(wildcards)

    @property
    def _uses_conda(self) -> bool:
        return "conda" in self.slurm.inside.deployment

    @property
    def launcher(self) -> str:
        """The workflow's own Python. The launcher runs in it, not in a framework's environment."""
        return sys.executable if self._uses_conda else "python"

    def conda_file(self, wildcards: Any) -> str:
        """Return the file of conda for the framework. Only environments that we build ourselves have versions of it."""
        if self._uses_conda and versions.MARK in wildcards.framework:
            by_wildcards(_not_with_conda)(wildcards)
        name = versions.base(wildcards.framework)
        return str(self.slurm.inside.root / "envs" / f"{name if name in frameworks.NAMES else 'main'}.yaml")

    @property
    def resources(self) -> dict[str, Any]:
        nodes = self._largest(lambda spec: shape(spec).nodes)
        mpi = self._largest(lambda spec: "srun" if shape(spec).nodes > 1 else None)
        return {**super().resources, "nodes": nodes, "tasks": nodes, "mpi": mpi}


def _not_with_conda(framework: str, **_: str) -> None:
    raise UserError(
        f"{framework} cannot run in an environment of conda",
        why=f"conda's file has {versions.base(framework)} in one version only",
        next_step="leave out --software-deployment-method: the workflow builds environments of its own",
    )

"""What is asked about GPUs before anything is made: does every framework have a build for them, and are there enough?

The driver is asked first, which takes no time without a GPU. Then each framework says what it sees (seen_devices.py).
"""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from throughline import frameworks, handover
from throughline.files import UserError
from throughline.gpus import visible_devices
from throughline.installation import choose, recipe
from throughline.launch import lock, machine, seen_devices, survey
from throughline.spec import RunSpec
from throughline.study.runs import read_spec


def check_here(specs: Iterable[RunSpec]) -> list[str]:
    """Return a line for each framework whose runs will say n/a, because none of its builds runs on these GPUs, and one
    about topologies of more machines than this one.

    Raise UserError if a framework would get its CPU build although this machine has GPUs, or if a topology needs more
    GPUs than there are or than its framework sees.
    """
    here = [spec for spec in specs if spec.hosts != "ssh" and not spec.program]
    beyond = [spec for spec in here if spec.topology.nodes > 1 and spec.hosts != "simulated"]
    if "SLURM_JOB_ID" in os.environ:  # they are made on the nodes of this job
        here, beyond = [spec for spec in here if spec not in beyond], []
    largest = {spec.framework: spec for spec in sorted(here, key=_needed) if spec.device != "cpu"}
    gpus = choose.unused_gpus()
    lines = _check_builds(largest, gpus) if gpus else []
    _check_seen({name: spec for name, spec in largest.items() if gpus or spec.device != "auto"})
    if beyond:
        names = ", ".join(dict.fromkeys(str(spec.topology) for spec in beyond))
        lines.append(
            f"topologies of several nodes ({names}): this machine is one, so their runs ({len(beyond)}) will fail; "
            "set runs.hosts, or use a cluster (snakemake --profile slurm)"
        )
    return lines


def doubts_elsewhere(names: Iterable[str]) -> list[str]:
    """Return a line for each framework whose runs get GPUs from Slurm, although it gets its CPU build here."""
    builds = {name: choose.build_of(name) for name in dict.fromkeys(names) if recipe.read(name).builds}
    return [
        f"{framework} gets the build for CPUs ({reason}), and its runs get GPUs: make frameworks GPU=cuda13"
        for framework, (build, reason) in builds.items()
        if build == "none"
    ]


def check_built(environment: str) -> None:
    """Ask the frameworks of an environment that was built just now, if runs on GPUs wait for it."""
    for name, text in handover.get("devices", {}).items():
        built = choose.environment(name)
        if built and built.framework == environment:
            _check(read_spec(text), recipe.python_of(built.name))


def _needed(spec: RunSpec) -> int:
    """Return how many devices a run needs on one machine."""
    return spec.topology.world if spec.hosts == "simulated" else spec.topology.devices


def _check_builds(largest: Mapping[str, RunSpec], gpus: choose.Facts) -> list[str]:
    """Return the lines of `check_here`, and raise its errors, as far as they follow from what the driver says."""
    visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
    count = len(gpus.cards) if visible is None else len(visible)
    lines = []
    for framework, spec in largest.items():
        build, reason = choose.build_of(framework)
        if no_build := choose.no_build(framework):
            lines.append(f"{no_build}: its runs say n/a")
        elif build == "none" and recipe.read(framework).builds:
            raise UserError(
                f"{framework} gets the build for CPUs, and this machine has a GPU ({gpus.cards[0].name})",
                why=reason,
                next_step="GPU=auto make frameworks (make doctor shows which build each framework gets); or set "
                "runs.device: cpu",
            )
        elif _needed(spec) > (there := min(count, len(gpus.cards))):
            raise survey.TooFewGpus(spec.topology, _needed(spec), there)
    return lines


def _check_seen(largest: Mapping[str, RunSpec]) -> None:
    """Ask frameworks which GPUs of this machine they see. Raise UserError if it is too few for their largest run.

    A framework whose environment is not built yet is asked when it has been built (`check_built`). If another run has
    this machine's devices now, nobody is asked, because that would disturb it.
    """
    if not largest:
        return
    handover.add(devices={name: spec.canonical for name, spec in largest.items()})  # for `check_built`
    pythons = {name: python for name in largest if (python := seen_devices.python_of(name))}
    for name in largest.keys() - pythons.keys():
        spec = largest[name]
        files = machine.DEVICE_FILES.get(spec.device)
        if files and spec.device in frameworks.of(name).accelerators and not any(map(os.path.exists, files)):
            survey.choose_device(spec, machine.NO_GPUS, machine.processor())  # it raises the error
    try:
        free = lock.device("which devices the frameworks see", lambda text: None, lambda: True)
        with free, ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: _check(largest[name], pythons[name]), pythons))
    except InterruptedError:
        return


def _check(spec: RunSpec, python: str) -> None:
    gpus = seen_devices.seen(spec.framework, python, spec.device, os.environ | survey.worker_variables(spec))
    survey.choose_device(spec, gpus, machine.processor())
    if gpus.count and _needed(spec) > gpus.count:
        raise UserError(
            f"topology {spec.topology} needs {_needed(spec)} devices a machine, and {spec.framework} sees {gpus.count}",
            why=f"nvidia-smi shows {len(choose.facts().cards)}, and CUDA_VISIBLE_DEVICES is "
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}",
            next_step="choose a smaller topology, or find out what hides the others from it (make doctor)",
        )

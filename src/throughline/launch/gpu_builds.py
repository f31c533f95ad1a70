"""What is asked about GPUs before anything is made: does every framework have a build for them, and are there enough?

The driver is asked first, which takes no time on a machine without a GPU. Then each framework says what it sees
(seen_devices.py).
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from throughline import frameworks, handover, recipes, variants
from throughline.files import UserError
from throughline.launch import lock, machine, seen_devices
from throughline.spec import RunSpec
from throughline.study.runs import read_spec

MENDING = "GPU=auto make frameworks (make doctor shows which build each framework gets)"


def check_here(specs: Iterable[RunSpec]) -> list[str]:
    """Return a line for each framework whose runs will say n/a, because none of its builds runs on these GPUs, and one
    about topologies of more machines than this one.

    `specs` are the runs to be made on this machine. Raise UserError if a framework would get its CPU build although
    this machine has GPUs, if a topology needs more GPUs than there are or than its framework sees, or if there is none.
    """
    here = [spec for spec in specs if spec.hosts != "ssh"]
    beyond = [spec for spec in here if spec.topology.nodes > 1 and spec.hosts != "simulated"]
    if "SLURM_JOB_ID" in os.environ:  # they are made on the nodes of this job
        here, beyond = [spec for spec in here if spec not in beyond], []
    on_gpus = [spec for spec in here if spec.device != "cpu"]
    known = recipes.unused_gpus()
    lines = _of_builds(on_gpus, known) if known else []
    _check_seen(spec for spec in on_gpus if known or spec.device != "auto")
    return [*lines, *_of_nodes(beyond)]


def _of_nodes(specs: list[RunSpec]) -> list[str]:
    """Return the line about runs that need other machines, which nothing names."""
    if not specs:
        return []
    names = ", ".join(dict.fromkeys(str(spec.topology) for spec in specs))
    return [
        f"topologies of several nodes ({names}): this machine is one, so their runs ({len(specs)}) will fail; "
        "set runs.hosts, or use a cluster (snakemake --profile slurm)"
    ]


def _of_builds(on_gpus: list[RunSpec], known: variants.Facts) -> list[str]:
    """Return the lines of `check_here`, and raise its errors, as far as they follow from what the driver says."""
    lines = []
    for framework in dict.fromkeys(spec.framework for spec in on_gpus):
        build, reason = recipes.build_of(framework)
        if nothing := recipes.no_build(framework):
            lines.append(f"{nothing}: its runs say n/a")
        elif build == "none" and recipes.has_builds(framework):
            raise UserError(
                f"{framework} gets the build for CPUs, and this machine has a GPU ({known.cards[0].name})",
                why=reason,
                next_step=f"{MENDING}; or set runs.device: cpu",
            )
    there = _visible(len(known.cards))
    for spec in on_gpus:
        needs = _needed(spec)
        if needs > there and not lines:
            raise UserError(
                f"topology {spec.topology} needs {needs} GPUs a machine, and there are {there}",
                why=f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}",
                next_step="choose a smaller topology, or runs.device: cpu; nothing was started",
            )
    return lines


def doubts_elsewhere(names: Iterable[str]) -> list[str]:
    """Return a line for each framework whose runs get GPUs from Slurm, although it gets its CPU build here."""
    lines = []
    for framework in dict.fromkeys(names):
        build, reason = recipes.build_of(framework)
        if build == "none" and recipes.has_builds(framework):
            lines.append(
                f"{framework} gets the build for CPUs ({reason}), and its runs get GPUs: make frameworks GPU=cuda13"
            )
    return lines


def _visible(cards: int) -> int:
    """Return how many of these GPUs programs may use."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return cards if chosen is None else min(cards, len([one for one in chosen.split(",") if one.strip()]))


def _largest(specs: Iterable[RunSpec]) -> dict[str, RunSpec]:
    """Map each framework to that of its runs that needs most devices on one machine."""
    chosen: dict[str, RunSpec] = {}
    for spec in specs:
        if spec.framework not in chosen or _needed(spec) > _needed(chosen[spec.framework]):
            chosen[spec.framework] = spec
    return chosen


def _needed(spec: RunSpec) -> int:
    """Return how many devices a run needs on one machine."""
    return spec.topology.world if spec.hosts == "simulated" else spec.topology.devices


def _check_seen(specs: Iterable[RunSpec]) -> None:
    """Ask the frameworks of these runs on GPUs of this machine. Raise UserError if one sees too few devices.

    A framework whose environment is not built yet is asked when it has been built (`check_built`). If another run has
    this machine's devices now, nobody is asked, because that would disturb it.
    """
    of_framework = _largest(specs)
    if not of_framework:
        return
    handover.add(devices={name: spec.canonical for name, spec in of_framework.items()})  # for `check_built`
    asked = {name: python for name in of_framework if (python := seen_devices.python_of(name))}
    for name in of_framework.keys() - asked.keys():
        _without_devices(of_framework[name])
    try:
        with (
            lock.device("which devices the frameworks see", lambda text: None, lambda: True),
            ThreadPoolExecutor() as pool,
        ):
            list(pool.map(lambda name: _check(of_framework[name], asked[name]), asked))
    except InterruptedError:
        return


def check_built(environment: str) -> None:
    """Ask the frameworks of an environment that was built just now, if runs on GPUs wait for it."""
    for name, text in handover.get("devices", {}).items():
        recipe = recipes.of(name)
        if recipe and recipe.framework == environment:
            _check(read_spec(text), recipes.python_of(recipe.name))


def _check(spec: RunSpec, python: str) -> None:
    gpus = seen_devices.seen(spec.framework, python, spec.device, os.environ | machine.worker_variables(spec))
    machine.choose(spec, gpus, machine.processor())
    if gpus.count and _needed(spec) > gpus.count:
        there = len(variants.facts().cards)
        raise UserError(
            f"topology {spec.topology} needs {_needed(spec)} devices a machine, and {spec.framework} sees {gpus.count}"
            + (f" of the {there} here" if there > gpus.count else ""),
            why=f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}",
            next_step="choose a smaller topology, or find out what hides the others from it (make doctor); "
            "no data were made",
        )


def _without_devices(spec: RunSpec) -> None:
    """Raise UserError if a run needs an accelerator, and this machine has no device file of its kind."""
    if spec.device == "auto" or spec.device not in frameworks.of(spec.framework).accelerators:
        return
    device_files = machine.DEVICE_FILES.get(spec.device)
    if device_files and not any(os.access(path, os.F_OK) for path in device_files):
        machine.choose(spec, machine.NO_GPUS, machine.processor())

"""What is asked about GPUs before anything is made: does every framework have a build for them, and are there enough?

Nothing here starts a framework, so it takes no time on a machine without a GPU, and little on one with GPUs.
"""

import os
from collections.abc import Iterable

from throughline import recipes
from throughline.files import UserError
from throughline.spec import RunSpec

MENDING = "GPU=auto make frameworks (make doctor shows which build each framework gets)"


def check_here(specs: Iterable[RunSpec]) -> list[str]:
    """Return a line for each framework whose runs will say n/a, because none of its builds runs on these GPUs.

    `specs` are the runs to be made on this machine. Raise UserError if a framework would get its CPU build although
    this machine has GPUs, or if a topology needs more GPUs than there are.
    """
    on_gpus = [spec for spec in specs if spec.device != "cpu" and spec.hosts != "ssh"]
    known = recipes.unused_gpus()
    if known is None or not on_gpus:
        return []
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
        needs = spec.topology.world if spec.hosts == "simulated" else spec.topology.devices
        if needs > there and not lines:
            raise UserError(
                f"topology {spec.topology} needs {needs} GPUs a machine, and there are {there}",
                why=f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}",
                next_step="choose a smaller topology, or runs.device: cpu; nothing was started",
            )
    return lines


def doubts_elsewhere(frameworks: Iterable[str]) -> list[str]:
    """Return a line for each framework whose runs get GPUs from Slurm, although it gets its CPU build here."""
    lines = []
    for framework in dict.fromkeys(frameworks):
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

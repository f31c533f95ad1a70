"""What the plan says about memory: how much a rank is predicted to need, beside what its device has."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from throughline import gpus, workloads
from throughline.memory import gib
from throughline.spec import RunSpec


def lines(specs: Sequence[RunSpec], models: Path = gpus.MODELS) -> list[str]:
    """Return a line for each framework whose memory can be predicted. The specifications share a summary."""
    return [line for name in dict.fromkeys(spec.framework for spec in specs) for line in _of(name, specs, models)]


def _of(framework: str, specs: Iterable[RunSpec], models: Path) -> list[str]:
    of_topology = {spec.topology: spec for spec in specs if spec.framework == framework}
    if not of_topology:
        return []
    on_cpu = next(iter(of_topology.values())).device == "cpu"
    needed = {}
    for topology, spec in of_topology.items():
        if predicted := workloads.predicted_memory(spec, gpu=not on_cpu):
            needed[topology] = predicted.peak_bytes
    if not needed:
        return []
    name, has = _machine() if on_cpu else gpus.smallest_here(models)
    told = [f"{topology} {gib(size)}" for topology, size in needed.items()]
    sizes = {topology: size * (topology.devices if on_cpu else 1) for topology, size in needed.items()}
    short = [str(topology) for topology, size in sizes.items() if has and size > has]
    beside = f"; {name} has {gib(has)}" if has else ""
    warning = f". WARNING: it cannot fit: {', '.join(short)}" if short else ""
    return [f"predicted memory of a rank, {framework}: {', '.join(told)}{beside}{warning}"]


def _machine() -> tuple[str, float]:
    return "this machine, for all its ranks,", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

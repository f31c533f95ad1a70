"""What the plan says about memory: how much a rank is predicted to need, beside what its device has."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from throughline import gpus, workloads
from throughline.files import UserError
from throughline.memory import gib
from throughline.spec import RunSpec

MODELS = Path("/proc/driver/nvidia/gpus")
"""NVIDIA's driver has a folder here for each GPU. No program has to be started to read its name."""


def lines(specs: Sequence[RunSpec], models: Path = MODELS) -> list[str]:
    """Return a line for each framework whose memory can be predicted. The specifications share a summary."""
    return [line for name in dict.fromkeys(spec.framework for spec in specs) for line in _of(name, specs, models)]


def _of(framework: str, specs: Iterable[RunSpec], models: Path) -> list[str]:
    of_topology = {spec.topology: spec for spec in specs if spec.framework == framework}
    if not of_topology:
        return []
    on_cpu = next(iter(of_topology.values())).device == "cpu"
    needed = {}
    for topology, spec in of_topology.items():
        try:
            predicted = workloads.of(spec.model).memory(spec, gpu=not on_cpu)
        except (UserError, KeyError):  # the run itself says what is wrong
            continue
        if predicted:
            needed[topology] = predicted.peak_bytes
    if not needed:
        return []
    name, has = _machine() if on_cpu else _gpu(models)
    told = [f"{topology} {gib(size)}" for topology, size in needed.items()]
    sizes = {topology: size * (topology.devices if on_cpu else 1) for topology, size in needed.items()}
    short = [str(topology) for topology, size in sizes.items() if has and size > has]
    beside = f"; {name} has {gib(has)}" if has else ""
    warning = f". WARNING: it cannot fit: {', '.join(short)}" if short else ""
    return [f"predicted memory of a rank, {framework}: {', '.join(told)}{beside}{warning}"]


def _machine() -> tuple[str, float]:
    return "this machine, for all its ranks,", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _gpu(models: Path) -> tuple[str, float | None]:
    """Return the name and the memory of this machine's GPU with the least memory; None if it has none that is known."""
    found = []
    for path in models.glob("*/information"):
        names = [line.partition(":")[2].strip() for line in path.read_text().splitlines() if line.startswith("Model:")]
        found += [(name, gpu.memory_bytes) for name in names if (gpu := gpus.find(name))]
    return min(found, key=lambda gpu: gpu[1], default=("", None))

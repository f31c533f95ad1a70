"""Which devices does each framework see? It is asked before data are made, and by `make doctor`.

A framework takes seconds to say what it sees, so a good answer is kept in the user's cache until the machine is started
again, or until the environment, the driver or a variable that hides devices changes. Standard library only: `make
doctor` runs in any Python.
"""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from throughline import frameworks
from throughline.files import digest, write_json
from throughline.installation import choose, recipe
from throughline.launch import machine
from throughline.messages import Gpus
from throughline.observe.environment import content
from throughline.spec import read

TORCH = "torch"
"""The framework that says which GPUs there are before a run has chosen another one."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
DECIDING = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH")


def python_of(framework: str, workflows: str | None = None) -> str | None:
    """Return the interpreter of a framework's ranks; None if its environment is not built, or cannot be built here.

    workflows: the interpreter of the workflow's own environment, if it is not this one.
    """
    if choose.lacking(framework) or choose.no_build(framework):
        return None
    marker = choose.ready(framework)
    if marker is None:
        return workflows or sys.executable
    return recipe.python_of(recipe.name_of(marker)) if marker.is_file() else None


def here(device: str) -> Gpus:
    """Return the accelerators of this machine that PyTorch sees. device: as `runs.device`."""
    return seen(TORCH, python_of(TORCH) or sys.executable, device, os.environ)


def seen(framework: str, python: str, device: str, variables: Mapping[str, str]) -> Gpus:
    """Return the accelerators that a framework sees, as `machine.gpus` does, from the cache if it has been asked."""
    of_machine = digest(f"{platform.node()} {python}")  # machines may share a home
    path = recipe.environments().with_name("devices") / f"{framework}-{of_machine}.json"
    key = _key(framework, python, device, variables)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return read(Gpus, kept["seen"])
    answer = machine.gpus(framework, python, variables, device)
    if answer.count:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"key": key, "seen": asdict(answer)})
    return answer


def _key(framework: str, python: str, device: str, variables: Mapping[str, str]) -> str:
    """Return a digest of everything that a framework's answer depends on."""
    packages = Path(python).parents[1].glob("lib/python*/site-packages")  # the time changes with every installation
    facts = [
        content(BOOT) or "",
        device if len(frameworks.of(framework).accelerators) > 1 else "",
        choose.packed(choose.facts()),
        frameworks.of(framework).accelerators,
        [(str(folder), folder.stat().st_mtime_ns) for folder in sorted(packages)],
        [variables.get(name) for name in DECIDING],
    ]
    return digest(json.dumps(facts))

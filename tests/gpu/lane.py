"""Where the lane's interpreter and its fake CUDA driver are, and the variables of a process that runs on the fake
driver.

    GPU_DRY_PYTHON   the interpreter of an environment with PyTorch's CUDA build
    GPU_DRY_DOUBLE   a folder with a compiled fake driver (libcuda.so.1)

Standard library only.
"""

import os
import shlex
from pathlib import Path

from throughline.installation import recipe

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEVICES = 8


def python() -> Path:
    """Return the interpreter of the lane's environment."""
    return Path(os.environ["GPU_DRY_PYTHON"])


def double() -> Path:
    """Return the folder of the compiled double."""
    return Path(os.environ["GPU_DRY_DOUBLE"])


def variables(**more: str) -> dict[str, str]:
    """Return the environment of a process whose GPUs are the fake driver's."""
    library = double() / "libcuda.so.1"
    ours = {
        "LD_PRELOAD": str(library),
        "LD_LIBRARY_PATH": str(library.parent),  # PyTorch opens it once more by its name, and NVML
        "TRITON_LIBCUDA_PATH": str(library.parent),
        "NULL_CUDA_DEVICES": str(DEVICES),
        "NVML_DOUBLE": f"count={DEVICES}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(HERE)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(recipe.environments().parent / "gpu-dry-compiled"),
    }
    return {**os.environ, **ours, **more}


def believe(source: Path, trusting: bool = True, probing: bool = False) -> None:
    """Let a copy of src/throughline take the fake driver for a card.

    This machine may have GPUs there. trusting: ranks do not say that they run on a fake driver, so what comes of real
    cards can be seen whole. probing: ranks say how their products are rounded, which are nonsense here.
    """
    changes = [("launch/machine.py", '"/dev/nvidiactl"', '"/dev/null"')]
    if trusting:
        changes.append(("rank/report.py", "double_of_cuda=double_of_cuda()", "double_of_cuda=None"))
    if not probing:
        changes.append(("rank/measurement.py", "rounding=rounding.probe(framework)", "rounding=None"))
    for name, there, instead in changes:
        text = (source / name).read_text()
        assert text.count(there) == 1
        (source / name).write_text(text.replace(there, instead))


def wrapper(folder: Path) -> Path:
    """Write a program that is the lane's interpreter on the fake driver. A run's ranks are started with it."""
    given = variables()
    ours = {name: value for name, value in given.items() if os.environ.get(name) != value and name != "PYTHONPATH"}
    path = ours.pop("LD_LIBRARY_PATH")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(ours.items())]
    # After the caller's folders: an agent, which this program starts too, asks the NVML that a test has put there.
    lines += [f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}"{shlex.quote(path)}']
    program = folder / "python-on-a-double"
    program.write_text("\n".join(["#!/usr/bin/env bash", *lines, f'exec {shlex.quote(str(python()))} "$@"', ""]))
    program.chmod(0o755)
    return program

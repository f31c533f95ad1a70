"""Ask a node whether it can compile a model for its GPUs. Standard library only: nodes ask themselves.

Triton compiles a small C program at the start of a run, on the node itself. So the node needs a C compiler and Python's
headers, which a machine that only runs programs often lacks.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from throughline import frameworks
from throughline.files import UserError
from throughline.spec import RunSpec

COMPILERS = ("gcc", "clang")
"""What Triton looks for if the variable CC names nothing."""
INCLUDE = (
    "import sysconfig; scheme = sysconfig.get_default_scheme(); "
    "print(sysconfig.get_paths('posix_prefix' if scheme == 'posix_local' else scheme)['include'])"
)
"""Print the folder in which Triton looks for Python's headers."""


def is_needed(spec: RunSpec) -> bool:
    """True if ranks of this run need a C compiler on a node with GPUs."""
    on_gpus = frameworks.resolved(spec, "cuda").options
    return bool(on_gpus.compile) and frameworks.of(spec.framework).needs_compiler


def check(python: str, variables: Mapping[str, str]) -> None:
    """Raise UserError if this machine has no C compiler, or not the headers of this interpreter."""
    path, named = variables.get("PATH", os.defpath), variables.get("CC")
    what = None
    if not any(shutil.which(name, path=path) for name in ([named.split()[0]] if named else COMPILERS)):
        what = f"a C compiler: CC names {named}" if named else "a C compiler: neither gcc nor clang is here"
    elif not (folder := _headers(python, variables)):
        what = f"to know where the headers of {python} are, and it does not say"
    elif not (folder / "Python.h").is_file():
        what = f"Python's headers, and {folder / 'Python.h'} does not exist"
    if what:
        raise UserError(
            f"options.compile needs {what}",
            why="PyTorch compiles for GPUs with Triton, which compiles the start of its kernels in C on every node",
            next_step="install them (Debian: apt install gcc python3-dev; Red Hat: dnf install gcc python3-devel), "
            "or set options.compile: false",
        )


def _headers(python: str, variables: Mapping[str, str]) -> Path | None:
    try:
        told = subprocess.run(
            [python, "-c", INCLUDE], capture_output=True, text=True, env=dict(variables), timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(told.stdout.strip()) if told.stdout.strip() else None

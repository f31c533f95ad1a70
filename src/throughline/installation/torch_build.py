"""Install torch in a build for CPUs or GPUs. `python -m throughline.installation.torch_build [INDEX]` installs the
workflow's.

An index that the user names decides. Otherwise `GPU=none` takes the CPU build, and on a machine with GPUs their driver
and their compute capability decide. Without a GPU it is the build that the usual indexes have, as pip would install it.
Standard library only.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from throughline.files import UserError, command_line
from throughline.installation import choose, recipe, uv

INDEX = "https://download.pytorch.org/whl"


def label(wants: str, facts: choose.Facts) -> str | None:
    """Return the label of the workflow's build, such as `cpu` or `cu126`; "" is the build for GPUs of the usual
    indexes. None is whatever they have: without a GPU, or with GPUs that no build runs on."""
    if wants == "none":
        return "cpu"
    build, _ = choose.choose(recipe.read("torch").builds, wants, facts)
    return build.torch_label if build else None


def install(run: Callable[..., None], requirement: str, label: str | None, index: str) -> None:
    """Install torch from the usual indexes or, if these lack the build, from PyTorch's own.

    run: installs what uv's words say, or raises UserError. label: see `label`. index: the one that the user names.
    """
    exact = f"{requirement}+{label}" if label else requirement
    if label == "":  # `===` takes the build of the usual indexes, and no other one such as 2.13.0+cpu
        exact = requirement.replace("==", "===")
    if not index:
        try:
            return run(exact)
        except UserError:
            if not label:
                raise
    return run("--extra-index-url", index or f"{INDEX}/{label}", exact)


def main() -> None:
    index = sys.argv[1] if len(sys.argv) > 1 else ""
    build = None if index else label(choose.wanted(), choose.facts())
    quiet = [] if sys.stderr.isatty() else ["--quiet"]

    def run(*words: str) -> None:
        command = uv.command("pip", "install", *quiet, "-c", str(recipe.PINS / "lock" / "main.txt"), *words)
        goes_on = build and len(words) == 1
        stderr = subprocess.DEVNULL if goes_on else None
        if subprocess.run(command, env=uv.variables(Path(sys.prefix)), stderr=stderr, check=False).returncode:
            raise UserError("PyTorch could not be installed", why="uv says why, above", next_step="make run GPU=none")

    install(run, str(recipe.read("torch").torch), build, index)


if __name__ == "__main__":
    command_line(main)

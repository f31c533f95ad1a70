"""Install the workflow's torch in the build for this machine: `python -m throughline.installation.torch_build [INDEX]`.

An index that the user names decides. Otherwise `GPU=none` takes the CPU build, and on a machine with GPUs their driver
and their compute capability decide. Without a GPU it is the build that the usual indexes have, as pip would install it.
Standard library only.
"""

import subprocess
import sys
from pathlib import Path

from throughline.files import command_line
from throughline.installation import choose, recipe, uv

INDEX = "https://download.pytorch.org/whl"


def label(wants: str, facts: choose.Facts) -> str | None:
    """Return the label of the build, such as `cpu` or `cu126`.

    "" is the build for GPUs of the usual indexes, which has no label. None is whatever they have: without a GPU, or
    with GPUs that no build runs on.
    """
    if wants == "none":
        return "cpu"
    build, _ = choose.choose(recipe.read("torch").builds, wants, facts)
    return build.torch_label if build else None


def attempts(pin: str, build: str | None, index: str) -> list[list[str]]:
    """Return the words for uv, in the order in which they are tried: first only the usual indexes.

    build: as `label` returns it. index: the one that the user names.
    """
    exact = f"{pin}+{build}" if build else pin
    if build == "":  # `===` takes the build of the usual indexes, and no other one such as 2.13.0+cpu
        exact = pin.replace("==", "===")
    if index:
        return [["--extra-index-url", index, exact]]
    return [[exact], *([["--extra-index-url", f"{INDEX}/{build}", exact]] if build else [])]


def main() -> int:
    index = sys.argv[1] if len(sys.argv) > 1 else ""
    build = None if index else label(choose.wanted(), choose.facts())
    tries = attempts(str(recipe.read("torch").torch), build, index)
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    install = uv.command("pip", "install", *quiet, "-c", str(recipe.PINS / "lock" / "main.txt"))
    status = 1
    for number, words in enumerate(tries, 1):
        stderr = subprocess.DEVNULL if number < len(tries) else None
        status = subprocess.run([*install, *words], env=uv.variables(Path(sys.prefix)), stderr=stderr).returncode
        if status == 0:
            break
    return status


if __name__ == "__main__":
    command_line(main)

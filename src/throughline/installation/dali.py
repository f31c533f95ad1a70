"""Install NVIDIA's DALI (envs/dali.txt) into the environment of a framework that the user chooses.

The lock of the framework is a constraint, so no package that is there changes its version. A record names the packages
of its environment, so runs before and after the installation are not pooled.
"""

import subprocess
import sys
from pathlib import Path

from throughline import frameworks, recipes
from throughline.files import UserError
from throughline.installation import uv

FILE = recipes.PINS / "dali.txt"
OLDEST = (3, 10)
"""The oldest Python that DALI's packages are for."""


def install(framework: str) -> None:
    """Install DALI's pins. UserError if the framework is unknown, its environment missing, or its Python too old."""
    words, target = command(framework)
    if subprocess.run(words, env=uv.variables(target), check=False).returncode:
        raise UserError(
            f"DALI cannot be installed into {target}",
            why="uv says why, above",
            next_step=f"correct the cause and run again: throughline dali {framework}",
        )
    print(f"DALI is in {target}; set options.image_decoder: dali")


def command(framework: str) -> tuple[list[str], Path]:
    """Return the command that installs DALI for a framework, and the environment that it installs into."""
    if framework not in frameworks.NAMES:
        raise UserError(f"there is no framework {framework}", next_step=f"name one of {', '.join(frameworks.NAMES)}")
    recipe = recipes.of(framework)
    if recipe is None:
        return _words(Path(sys.executable), recipes.PINS / "lock" / "main.txt"), Path(sys.prefix)
    if not recipes.is_ready(recipe.name):
        raise UserError(
            f"the environment of {framework} is not built", next_step=f"make frameworks FRAMEWORKS={framework}"
        )
    if tuple(map(int, recipe.python.split("."))) < OLDEST:
        raise UserError(
            f"{framework} runs in Python {recipe.python}, and DALI needs {OLDEST[0]}.{OLDEST[1]} or newer",
            next_step="leave options.image_decoder out for this framework",
        )
    return _words(Path(recipes.python_of(recipe.name)), recipe.lock), recipe.folder


def _words(python: Path, lock: Path) -> list[str]:
    return uv.command("pip", "install", "--python", str(python), "-c", str(lock), "-r", str(FILE))

"""Install the pinned DALI into the environment of a framework, for options.image_decoder: dali.

The lock of the framework is a constraint, so no package that is there changes its version. A record names the packages
of its environment, so runs before and after the installation are not pooled.

framework: such as torch or mxnet-horovod; its environment has to be built
"""

import subprocess
import sys
from pathlib import Path

from throughline import frameworks
from throughline.files import UserError
from throughline.installation import choose, recipe, uv


def main(framework: str, /) -> None:
    words, target = command(framework)
    if subprocess.run(words, env=uv.variables(target), check=False).returncode:
        raise UserError(
            f"DALI cannot be installed into {target}",
            why="uv says why, above",
            next_step=f"correct the cause and run again: throughline dali {framework}",
        )
    print(f"DALI is in {target}; set options.image_decoder: dali")


def command(framework: str) -> tuple[list[str], Path]:
    """Return the command that installs DALI for a framework, and the environment that it installs into.

    An environment for CUDA 12 or older gets DALI for CUDA 12, which has code for older cards.
    Raise UserError if the framework is unknown, or its environment is not built.
    """
    if framework not in frameworks.NAMES:
        raise UserError(f"there is no framework {framework}", next_step=f"name one of {', '.join(frameworks.NAMES)}")
    environment = choose.environment(framework)
    if environment and not (environment.folder / recipe.READY).is_file():
        raise UserError(
            f"the environment of {framework} is not built", next_step=f"make frameworks FRAMEWORKS={framework}"
        )
    target = environment.folder if environment else Path(sys.prefix)
    locked = environment.constraints if environment else ["-c", str(recipe.PINS / "lock" / "main.txt")]
    install = uv.command("pip", "install", "--python", str(target / "bin" / "python"), *locked)
    cuda = choose.cuda_of(environment or recipe.read(framework)) or "13"
    pins = "dali.txt" if int(cuda.partition(".")[0]) >= 13 else "dali.cuda12.txt"
    return [*install, "-r", str(recipe.PINS / pins)], target

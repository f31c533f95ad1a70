"""One framework in several versions: `jax@old` is the framework jax, with the pins of `envs/jax@old.txt` in its place.

The file is a requirements file. Each of its lines replaces the line of the same package in the framework's own file, or
is added (installation/recipe.py). So an upgrade is decided by one benchmark that has both: `frameworks: [jax,
jax@old]`. Standard library only.
"""

from pathlib import Path

from throughline.files import UserError

MARK = "@"
NAME = r"[a-z][a-z0-9-]*(@[a-z0-9][a-z0-9.]*)?"
"""A regular expression for the name of a framework, with its version if it has one."""
FOLDER = Path("envs")
"""Where the files of versions are: in the working directory, otherwise in the workflow's folder."""


def base(framework: str) -> str:
    """Return the framework that a version is of: `jax` for `jax@old` and for `jax`."""
    return framework.partition(MARK)[0]


def pins(framework: str) -> Path | None:
    """Return the file of a version; None for a framework without one. UserError if there is no such file."""
    if MARK not in framework:
        return None
    name = f"{framework}.txt"
    folders = FOLDER, Path(__file__).parents[2] / FOLDER
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        raise UserError(
            f"there is no file {FOLDER / name} for the version {framework}",
            why=f"it states what differs from envs/{base(framework)}.txt",
            next_step=f"write it, for example with the line {base(framework).partition('-')[0]}==VERSION",
        )
    return path

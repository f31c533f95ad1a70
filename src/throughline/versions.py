"""One framework in several versions: `jax@old` is the framework jax, with the pins of `envs/jax@old.txt` in its place.

The file is a requirements file. Each of its lines replaces the line of the same package in the framework's own file, or
is added. So an upgrade is decided by one benchmark that has both: `frameworks: [jax, jax@old]`. Standard library only.
"""

import re
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


def replaced(lines: list[str], path: Path, *, add: bool = True) -> list[str]:
    """Return requirements with those of a version's file in the place of their own.

    add: the file's other lines are added. Extras stay: with `jax==0.9`, `jax[cuda13]==0.10` becomes `jax[cuda13]==0.9`.
    """
    given = [" ".join(line.partition("#")[0].split()) for line in path.read_text(encoding="utf-8").splitlines()]
    wanted = {package(line): line for line in filter(None, given)}
    kept = []
    for line in lines:
        new = wanted.pop(package(line), None)
        extras = re.search(r"\[.*?\]", line)
        if new and extras and "[" not in new:
            name = re.split(r"[=<>!~;]", new)[0]
            new = f"{name}{extras[0]}{new.removeprefix(name)}"
        kept.append(new or line)
    return [*kept, *wanted.values()] if add else kept


def not_with_conda(framework: str) -> None:
    """Raise UserError: conda's files have the framework in one version only."""
    raise UserError(
        f"{framework} cannot run in an environment of conda",
        why=f"conda's file has {base(framework)} in one version only",
        next_step="leave out --software-deployment-method: the workflow builds environments of its own",
    )


def package(requirement: str) -> str:
    """Return the name of the package that a requirement pins, without its extras."""
    return re.split(r"[=<>!~;\[ ]", requirement)[0].lower()

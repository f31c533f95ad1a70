"""How the environment of a framework is installed (`envs/<framework>.txt`), and where it is. Standard library only.

The file is a requirements file. Lines that begin with `#:` are for the builder (installation/build.py):

    #: python 3.11            the interpreter; a file without this line is for the workflow's own environment
    #: environment NAME       no other lines: the environment is that of NAME.txt, which several frameworks share
    #: step TITLE             install the requirements that follow from wheels
    #: source TITLE           compile the requirements that follow in the finished environment, without dependencies
    #: patch FILE             apply this patch first (a file in the same folder)
    #: set NAME=VALUE ...     compile with these variables
    #: conda PACKAGE ...      packages of conda that the compiler needs in addition, if conda makes the environment
    #: check MODULE ...       modules that must be importable at the end

A new framework needs only this file: `make lock` writes the versions and hashes of these requirements and their
dependencies to `envs/lock/<framework>.txt`, and the files of conda (installation/conda_files.py). Then `python -m
throughline.recipes` names the environments that have a lock.

An environment is built in its final folder, because its programs contain the path of that folder. Its name has a
digest of everything that determines its content. So another clone with the same pins uses the same environment, and a
changed comment builds nothing again. The workflow passes names to its runs, not folders, so nothing is measured again
in another home folder.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from throughline.files import UserError, sha256

PINS = Path(__file__).parents[2] / "envs"
READY = ".ready"
BUILT = "built.json"
"""What an environment was built with."""


@dataclass
class Stage:
    """Requirements that are installed together. `patch` is the path of a patch file."""

    title: str
    source: bool
    requirements: list[str] = field(default_factory=list)
    patch: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Recipe:
    """The description of an environment in its file."""

    framework: str
    """The file's name: the name of the framework, or the name that several frameworks share."""
    python: str
    stages: list[Stage]
    modules: list[str]
    conda: list[str]
    lock: Path
    """The file with version and hashes of every package that comes from a wheel, except torch."""

    @property
    def pins(self) -> str:
        """A digest (12 hexadecimal digits) of the interpreter, pins, flags and patches. The conda file has it too."""
        stages = [
            [stage.source, stage.requirements, stage.patch and sha256(stage.patch), stage.variables]
            for stage in self.stages
        ]
        return _digest(json.dumps([self.python, stages, self._locked()], sort_keys=True))

    def _locked(self) -> list[str]:
        """Return name and version of every package in the lock.

        Hashes are left out, so an additional wheel for another platform does not change the environment.
        """
        lines = self.lock.read_text(encoding="utf-8").splitlines() if self.lock.is_file() else []
        return [line.removesuffix("\\").strip() for line in lines if "==" in line]

    @property
    def name(self) -> str:
        """The name of the environment. It depends on the kind of processor, because machines may share a home folder.

        With NCCL, the name ends in `-nccl`. We use that environment if it exists or if this machine can build it. If
        there is an environment without MPI from before MPI was installed, it stays, and one with MPI is built beside
        it, whose name ends in `-mpi`.
        """
        name = f"{self.framework}-{_digest(f'{self.pins} {platform.machine()}')}"
        if self.compiled and (builds_nccl() or is_ready(f"{name}-nccl")):
            name = f"{name}-nccl"
        if self.compiled and lacks_mpi(name) and (builds_mpi() or is_ready(f"{name}-mpi")):
            name = f"{name}-mpi"
        return name

    @property
    def compiled(self) -> list[Stage]:
        return [stage for stage in self.stages if stage.source]

    @property
    def folder(self) -> Path:
        """Where the environment is, or will be."""
        return environments() / self.name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def environments() -> Path:
    """Return the folder of all environments. All clones of a user share it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "environments")


def is_ready(name: str) -> bool:
    return (environments() / name / READY).is_file()


def lacks_mpi(name: str) -> bool:
    """True if the environment with this name was built without MPI."""
    built = environments() / name / BUILT
    return built.is_file() and not json.loads(built.read_text(encoding="utf-8")).get("mpi")


def of(framework: str) -> Recipe | None:
    """Return the recipe of the framework's environment; None if it runs in the workflow's own environment."""
    path = PINS / f"{framework}.txt"
    python = ""
    modules: list[str] = []
    conda: list[str] = []
    stages: list[Stage] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        word, _, rest = line.removeprefix("#:").strip().partition(" ")
        if not line.startswith("#:"):
            requirement = " ".join(line.partition("#")[0].split())
            if requirement and stages:
                stages[-1].requirements.append(requirement)
        elif word == "environment":
            return of(rest)
        elif word == "python":
            python = rest
        elif word in ("step", "source"):
            stages.append(Stage(rest, word == "source"))
        elif word == "patch":
            stages[-1].patch = path.with_name(rest)
        elif word == "set":
            stages[-1].variables |= dict(setting.split("=", 1) for setting in rest.split())
        elif word == "conda":
            conda += rest.split()
        elif word == "check":
            modules += rest.split()
        else:
            raise UserError(f"{path.name}: {line!r} is no line for the builder", next_step="see recipes.py")
    return Recipe(framework, python, stages, modules, conda, PINS / "lock" / path.name) if python else None


def requirements(framework: str) -> list[str]:
    """Return the pinned requirements of the environment that the framework's ranks run in."""
    if recipe := of(framework):
        return [line for stage in recipe.stages for line in stage.requirements]
    lines = (PINS / f"{framework}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in (line.partition("#")[0].strip() for line in lines) if line]


def locked() -> list[str]:
    """Return the names of all environments that have a lock of their own."""
    named = ((path.stem, of(path.stem)) for path in PINS.glob("*.txt"))
    return sorted(name for name, recipe in named if recipe and recipe.framework == name)


def ready(framework: str) -> Path | None:
    """Return the file whose existence says that the framework's environment is complete.

    Return None if the framework runs in the workflow's own environment, or if this machine cannot build it (`lacking`).
    """
    recipe = of(framework)
    return recipe.folder / READY if recipe and not lacking(framework) else None


def name_of(marker: str | Path) -> str:
    """Return the name of the environment that `marker` (the file of `ready`) belongs to."""
    return Path(marker).parent.name


def python_of(name: str) -> str:
    """Return the path of the interpreter in the environment with this name."""
    return str(environments() / name / "bin" / "python")


def pythons_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return the interpreters by framework, from pairs `FRAMEWORK=NAME` of a framework and its environment's name."""
    return {framework: python_of(name) for framework, name in (pair.split("=", 1) for pair in pairs)}


def lacking(framework: str) -> str | None:
    """Return why this machine cannot build the framework's environment; None if it can, or if it already exists."""
    recipe = of(framework)
    if recipe is None or is_ready(recipe.name) or downloads_python() or interpreter(recipe.python):
        return None
    return (
        f"{framework} needs Python {recipe.python}, which was not found on this machine: install it, or let uv "
        "download it with UV_PYTHON_DOWNLOADS=automatic make frameworks"
    )


def downloads_python() -> bool:
    """True if the user allows uv to download a missing Python."""
    return os.environ.get("UV_PYTHON_DOWNLOADS", "never") in ("automatic", "true", "1")


@cache
def interpreter(version: str) -> str | None:
    """Return a Python of this version: the one that runs now, or one that uv finds on this machine; else None."""
    if "{}.{}".format(*sys.version_info) == version:
        return sys.executable
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        return shutil.which(f"python{version}")
    command = [uv, "python", "find", "--quiet", "--no-project", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def torch_build() -> str:
    """Return the build of the workflow's torch, such as `cpu` from 2.13.0+cpu; "" if the version does not name it."""
    try:
        return importlib.metadata.version("torch").partition("+")[2]
    except importlib.metadata.PackageNotFoundError:
        return ""


def cuda() -> str | None:
    """Return CUDA's folder; None without CUDA's compiler, or if the workflow's torch is a CPU build."""
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    return str(Path(compiler).parents[1]) if compiler and torch_build() != "cpu" else None


def builds_nccl() -> bool:
    """True if Horovod is built with NCCL here: with a CUDA compiler, unless HOROVOD_GPU_OPERATIONS says otherwise."""
    return os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL" if cuda() else "") == "NCCL"


def builds_mpi() -> bool:
    """True if Horovod is built with MPI here: with MPI's compiler, unless HOROVOD_WITHOUT_MPI is set."""
    return shutil.which("mpicxx") is not None and "HOROVOD_WITHOUT_MPI" not in os.environ


if __name__ == "__main__":
    print("\n".join(locked()))

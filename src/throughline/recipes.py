"""How the environment of a framework is installed (`envs/<framework>.txt`), and where it lies. Standard library only.

The file is a requirements file, with lines for the builder (launch/installation.py) that begin with `#:`

    #: python 3.11            the interpreter it needs; a file without this line is for the workflow's own environment
    #: environment NAME       instead of all others: the environment of NAME.txt, which several frameworks share
    #: step TITLE             the requirements that follow are installed from wheels
    #: source TITLE           those are compiled in the finished environment, without their dependencies
    #: patch FILE             ... after this patch (beside the file)
    #: set NAME=VALUE ...     ... with these variables
    #: check MODULE ...       what has to be importable in the end

What these requirements pull in is locked with its hashes (`envs/lock/<framework>.txt`, written by `make lock`).

An environment is built where it stays (its programs name their folder). Its name is made of what decides it, so that
another clone with the same pins uses the same one, and a comment builds nothing again. The workflow hands names to its
runs, not folders: in another home folder nothing is measured again.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from throughline.files import UserError, sha256

PINS = Path(__file__).parents[2] / "envs"
READY = ".ready"


@dataclass
class Stage:
    """Requirements that are installed together; `patch` is the patch's file."""

    title: str
    source: bool
    requirements: list[str] = field(default_factory=list)
    patch: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Recipe:
    """An environment, as its file describes it."""

    framework: str
    """The file's name: that of its framework, or what the frameworks that share it have in common."""
    python: str
    stages: list[Stage]
    modules: list[str]
    lock: Path
    """Version and hashes of every package from a wheel, but torch."""

    @property
    def pins(self) -> str:
        """12 hexadecimal digits of the interpreter, pins, flags and patches; the conda file names them as well."""
        stages = [[one.source, one.requirements, one.patch and sha256(one.patch), one.variables] for one in self.stages]
        return _digest(json.dumps([self.python, stages, self._locked()], sort_keys=True))

    def _locked(self) -> list[str]:
        """Name and version of every package of the lock; a wheel for one more platform changes no environment."""
        lines = self.lock.read_text(encoding="utf-8").splitlines() if self.lock.is_file() else []
        return [line.removesuffix("\\").strip() for line in lines if "==" in line]

    @property
    def name(self) -> str:
        """What the environment is called: by kind of processor, as several may share a home. With NCCL it ends in
        `-nccl`, and is preferred where it is there or this machine can build it."""
        plain = f"{self.framework}-{_digest(f'{self.pins} {platform.machine()}')}"
        with_nccl = f"{plain}-nccl"
        return with_nccl if self.compiled and (builds_nccl() or is_ready(with_nccl)) else plain

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
    """The folder of all environments: one place per user, whatever the clone."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "environments")


def is_ready(name: str) -> bool:
    return (environments() / name / READY).is_file()


def of(framework: str) -> Recipe | None:
    """How the framework's environment is built; None where it runs in the workflow's own."""
    path = PINS / f"{framework}.txt"
    python, modules, stages = "", list[str](), list[Stage]()
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
        elif word == "check":
            modules += rest.split()
        else:
            raise UserError(f"{path.name}: {line!r} is no line for the builder", next_step="see recipes.py")
    return Recipe(framework, python, stages, modules, PINS / "lock" / path.name) if python else None


def ready(framework: str) -> Path | None:
    """The file that is there when the framework's environment is; None where it runs in the workflow's own, or where
    this machine cannot have it (`lacking`)."""
    recipe = of(framework)
    return recipe.folder / READY if recipe and not lacking(framework) else None


def name_of(marker: str | Path) -> str:
    """The name of the environment that `marker` (`ready`) belongs to."""
    return Path(marker).parent.name


def python_of(name: str) -> str:
    """The interpreter of the environment with this name."""
    return str(environments() / name / "bin" / "python")


def lacking(framework: str) -> str | None:
    """Why this machine cannot have the framework's environment; None where it has it, or can build it."""
    recipe = of(framework)
    if recipe is None or is_ready(recipe.name) or downloads_python() or interpreter(recipe.python):
        return None
    return (
        f"{framework} needs Python {recipe.python}, which was not found on this machine: install it, or let uv "
        "download it with UV_PYTHON_DOWNLOADS=automatic make frameworks"
    )


def downloads_python() -> bool:
    """Whether the user lets uv download a Python that is not there."""
    return os.environ.get("UV_PYTHON_DOWNLOADS", "never") in ("automatic", "true", "1")


@cache
def interpreter(version: str) -> str | None:
    """A Python of this version: the one that runs, or one that uv finds on this machine."""
    if "{}.{}".format(*sys.version_info) == version:
        return sys.executable
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        return shutil.which(f"python{version}")
    command = [uv, "python", "find", "--quiet", "--no-project", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def torch_build() -> str:
    """`cpu` or `cu130` of the workflow's torch 2.13.0+cpu; empty where its version does not say."""
    try:
        return importlib.metadata.version("torch").partition("+")[2]
    except importlib.metadata.PackageNotFoundError:
        return ""


def cuda() -> str | None:
    """The folder of CUDA's compiler, where there is one and the workflow's torch is a CUDA build."""
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    return str(Path(compiler).parents[1]) if compiler and torch_build() != "cpu" else None


def builds_nccl() -> bool:
    """Whether Horovod is built with NCCL here: with a CUDA compiler, unless HOROVOD_GPU_OPERATIONS says otherwise."""
    return os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL" if cuda() else "") == "NCCL"

"""How the environment of a framework is installed (`envs/<framework>.txt`), and where it lies. Standard library only.

The file is pip's, with lines for the builder (launch/installation.py) that begin with `#:`

    #: python 3.11            the interpreter it needs; a file without this line is for the workflow's own environment
    #: step TITLE             the requirements that follow are installed from wheels
    #: source TITLE           those are compiled in the finished environment, without their dependencies
    #: patch FILE             ... after this patch (beside the file)
    #: set NAME=VALUE ...     ... with these variables
    #: check MODULE ...       what has to be importable in the end

An environment is built where it stays (its programs name their folder). Its folder is named after the hash of what
decides it, so that another clone with the same pins uses the same one, and a comment builds nothing again.
"""

import hashlib
import json
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from throughline.files import UserError, sha256

PINS = Path(__file__).parents[2] / "envs"
READY = ".ready"


@dataclass
class Stage:
    """Requirements that one call of pip installs; `patch` is the patch's file."""

    title: str
    source: bool
    requirements: list[str] = field(default_factory=list)
    patch: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Recipe:
    """A framework's environment, as its file describes it."""

    framework: str
    python: str
    stages: list[Stage]
    modules: list[str]

    @property
    def pins(self) -> str:
        """12 hexadecimal digits of the interpreter, pins, flags and patches; the conda file names them as well."""
        stages = [[one.source, one.requirements, one.patch and sha256(one.patch), one.variables] for one in self.stages]
        return _digest(json.dumps([self.python, stages], sort_keys=True))

    @property
    def folder(self) -> Path:
        """Where the environment is, or will be: by kind of processor, as several may share a home folder."""
        return cache() / f"{self.framework}-{_digest(f'{self.pins} {platform.machine()}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cache() -> Path:
    """The folder of all environments: one place per user, whatever the clone."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "environments")


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
    return Recipe(framework, python, stages, modules) if python else None


def ready(framework: str) -> Path | None:
    """The file that is there when the framework's environment is; None where it runs in the workflow's own."""
    recipe = of(framework)
    return recipe.folder / READY if recipe else None


def python_of(marker: str | Path) -> str:
    """The interpreter of the environment that `marker` (`ready`) belongs to."""
    return str(Path(marker).parent / "bin" / "python")

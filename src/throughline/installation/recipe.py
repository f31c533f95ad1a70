"""What the environment of a framework consists of. These files in envs/ describe it; only the first is required:

    jax.toml          the interpreter, modules to check, compiled packages, builds for GPUs: the fields of `Recipe`
    jax.txt           the requirements of its build for CPUs
    jax.cuda12.txt    what its build for CUDA 12 changes: a line replaces that of the same package, or is added
    jax@old.txt       what another version of the framework changes, by the same rule (versions.py)
    lock/jax.txt      versions and hashes of all packages; lock/jax.cuda12.txt: those of the build (`make lock`)

A framework whose TOML file has no `python`, or that has no such file, runs in the workflow's own environment. The file
of torch says which builds of PyTorch there are, for all environments that have it.

An environment is built in its final folder, because its programs contain that path. Its name has a digest of everything
that determines its content, so all clones with the same pins share it. The workflow passes names to its runs, not
folders, so nothing is measured again in another home folder.

`python -m throughline.installation.recipe` prints the names of all locks. With one of these names it prints what is
locked there. Standard library only.
"""

import json
import os
import platform
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from throughline import versions
from throughline.files import UserError, digest, sha256

PINS = Path(__file__).parents[3] / "envs"
READY = ".ready"
"""A file in an environment that is complete."""
BUILT = "built.json"
"""What an environment was built with."""
TORCH_IN_INDEX = "13"
"""The version of CUDA whose build of torch the usual indexes have. The others are in PyTorch's own index only."""


@dataclass(frozen=True)
class Source:
    """A package that is compiled in the finished environment, without dependencies.

    requirement: its version, with the hash of its archive; patch: a file in envs/ that is applied first; variables:
    those of its compiler.
    """

    requirement: str
    patch: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.requirement.split()[0].replace("==", " ")


@dataclass(frozen=True)
class Build:
    """A build of an environment for GPUs. `cuda13` is for CUDA 13, and `cuda126` for CUDA 12.6.

    driver: the oldest major version of NVIDIA's driver; capability: the lowest and the highest compute capability that
    its packages have code for (the second may be missing); without: packages of the build for CPUs that it leaves out;
    index: where its own requirements come from, if the usual indexes do not have them; link: a package that looks for
    NVIDIA's libraries in its own folder, so links are made there; requirements: the lines of its own file.
    """

    name: str
    driver: int
    capability: list[str]
    without: list[str] = field(default_factory=list)
    index: str = ""
    link: str = ""
    requirements: list[str] = field(default_factory=list)

    @property
    def major(self) -> int:
        """The major version of CUDA."""
        return int(self.name[len("cuda") :][:2])

    @property
    def cuda(self) -> str:
        """The version of CUDA, such as `13` or `12.6`."""
        minor = self.name[len("cuda") + 2 :]
        return f"{self.major}.{minor}" if minor else str(self.major)

    @property
    def torch_label(self) -> str:
        """The label of torch's build, such as `cu126`; "" for the build of the usual indexes, which has none."""
        return "" if self.cuda == TORCH_IN_INDEX else f"cu{self.cuda.replace('.', '')}"


@dataclass(frozen=True)
class Recipe:
    """An environment, in its build for CPUs or in a build for GPUs.

    framework: the name of the framework, or the name that several frameworks share (`environment` in their TOML files);
    python: the version of its interpreter; check: modules that must be importable at the end; source: what is compiled;
    requirements: the packages that come from the usual indexes as wheels; builds: the builds for GPUs that there are
    (`[gpu.NAME]`); build: the one of this recipe (None: for CPUs, and on torch what the workflow's torch is).
    """

    framework: str
    python: str = ""
    check: list[str] = field(default_factory=list)
    source: list[Source] = field(default_factory=list)
    requirements: list[str] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    build: Build | None = None

    @property
    def pins(self) -> str:
        """A digest (12 hexadecimal digits) of the interpreter, pins, flags and patches. The conda file has it too.

        The hashes of a lock are left out, so a wheel for one more platform does not change the environment.
        """
        stages: list[list[Any]] = [[False, self.requirements, None, {}]] if self.requirements else []
        stages += [[False, self.from_index, None, {}]] if self.from_index else []
        for source in self.source:
            patch = sha256(PINS / source.patch) if source.patch else None
            stages.append([True, [source.requirement], patch, source.variables])
        lines = self.lock.read_text(encoding="utf-8").splitlines() if self.lock else []
        locked = [line.removesuffix("\\").strip() for line in lines if "==" in line]
        build = [self.build.name, self.build.index, self.build.link] if self.build else []
        return digest(json.dumps([self.python, stages, locked, *build], sort_keys=True))

    @property
    def name(self) -> str:
        """The name of the environment, with the build, such as `-cuda13`, and `-nccl`. It depends on the kind of
        processor, because machines may share a home folder."""
        name = f"{self.framework}-{digest(f'{self.pins} {platform.machine()}')}"
        return name + (f"-{self.build.name}" if self.build else "") + ("-nccl" if self.builds_nccl else "")

    @property
    def folder(self) -> Path:
        """Where the environment is, or will be."""
        return environments() / self.name

    @property
    def lock(self) -> Path | None:
        """The file with version and hashes of every package that comes from a wheel, except torch; None without one."""
        names = [f"{self.framework}.{self.build.name}"] if self.build else []
        locks = (PINS / "lock" / f"{name}.txt" for name in [*names, self.framework])
        return next((path for path in locks if path.is_file()), None)

    @property
    def constraints(self) -> list[str]:
        """The words for uv that keep the versions of the lock; none for a version, which has no lock."""
        return ["-c", str(self.lock)] if self.lock else []

    @property
    def from_index(self) -> list[str]:
        """The requirements of a build that come from an index of their own."""
        return self.build.requirements if self.build and self.build.index else []

    @property
    def pinned(self) -> list[str]:
        """All requirements, whether a wheel has them or they are compiled."""
        return [*self.requirements, *self.from_index, *(source.requirement for source in self.source)]

    @property
    def builds_nccl(self) -> bool:
        """True if Horovod is built with NCCL: in a build for GPUs, unless HOROVOD_GPU_OPERATIONS says otherwise."""
        return bool(self.source) and os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL" if self.build else "") == "NCCL"

    @property
    def torch(self) -> str | None:
        """The requirement of torch, which is installed in a step of its own; None without torch."""
        return next((line for line in self.requirements if line.startswith("torch==")), None)

    def for_gpus(self, build: Build) -> "Recipe":
        """Return the recipe of a build for GPUs."""
        others = {*build.without, *map(package, build.requirements)}
        kept = [line for line in self.requirements if package(line) not in others]
        return replace(self, requirements=kept + ([] if build.index else build.requirements), build=build)


def read(framework: str) -> Recipe:
    """Return the recipe of a framework's build for CPUs, with its builds for GPUs. Raise UserError if its file is
    damaged or has an unknown key, or if there is no file for its version."""
    if changes := versions.pins(framework):
        return _version(read(versions.base(framework)), framework, lines(changes))
    path = PINS / f"{framework}.toml"
    try:
        keys = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if "environment" in keys:
            return read(keys["environment"])
        keys["source"] = [Source(**source) for source in keys.get("source", [])]
        builds = [Build(name, **build) for name, build in keys.pop("gpu", {}).items()]
        recipe = Recipe(framework, **keys, requirements=lines(PINS / f"{framework}.txt"))
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        where = "src/throughline/installation/recipe.py"
        raise UserError(f"{path.name} describes no environment", why=str(error), next_step=f"see {where}") from None
    if recipe.python and recipe.torch:
        builds = read("torch").builds
    builds = [replace(build, requirements=lines(PINS / f"{framework}.{build.name}.txt")) for build in builds]
    return replace(recipe, builds=builds)


def _version(recipe: Recipe, framework: str, changes: list[str]) -> Recipe:
    """Return the recipe of another version of a framework: always an environment of its own, and without a lock."""
    return replace(
        recipe,
        framework=framework,
        python=recipe.python or "{}.{}".format(*sys.version_info),
        check=recipe.check or [package(line) for line in recipe.requirements[:3]],
        requirements=changed(recipe.requirements, changes),
        builds=[replace(each, requirements=changed(each.requirements, changes, add=False)) for each in recipe.builds],
    )


def lines(path: Path) -> list[str]:
    """Return the requirements in a file; none if there is no such file."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [line for line in (" ".join(line.partition("#")[0].split()) for line in text.splitlines()) if line]


def package(requirement: str) -> str:
    """Return the name of the package that a requirement pins, without its extras."""
    return re.split(r"[=<>!~;\[ ]", requirement)[0].lower()


def changed(requirements: list[str], changes: list[str], *, add: bool = True) -> list[str]:
    """Return requirements with `changes` in the place of those of the same packages.

    add: the other changes are added. Extras stay: with `jax==0.9`, `jax[cuda13]==0.10.2` becomes `jax[cuda13]==0.9`.
    """
    others = {package(line): line for line in changes}
    kept = []
    for line in requirements:
        new = others.pop(package(line), line)
        extras = re.search(r"\[.*?\]", line)
        if extras and "[" not in new:
            name = re.split(r"[=<>!~;]", new)[0]
            new = f"{name}{extras[0]}{new.removeprefix(name)}"
        kept.append(new)
    return [*kept, *others.values()] if add else kept


def environments() -> Path:
    """Return the folder of all environments. All clones of a user share it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "environments")


def name_of(marker: str | Path) -> str:
    """Return the name of the environment that `marker` (its file READY) belongs to."""
    return Path(marker).parent.name


def python_of(name: str) -> str:
    """Return the path of the interpreter in the environment with this name."""
    return str(environments() / name / "bin" / "python")


def pythons_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return the interpreters by framework, from pairs `FRAMEWORK=NAME` of a framework and its environment's name."""
    return {framework: python_of(name) for framework, name in (pair.split("=", 1) for pair in pairs)}


def locks() -> list[str]:
    """Return the names of all locks of environments: NAME, and NAME.BUILD if the usual indexes have its packages."""
    recipes = [recipe for path in sorted(PINS.glob("*.toml")) if (recipe := read(path.stem)).framework == path.stem]
    builds = [
        f"{recipe.framework}.{build.name}"
        for recipe in recipes
        for build in recipe.builds
        if recipe.python and not build.index and (not recipe.torch or not build.torch_label)
    ]
    return [*(recipe.framework for recipe in recipes if recipe.python), *builds]


def to_lock(name: str) -> list[str]:
    """Return the requirements that a lock (`locks`) is made from. In a build for GPUs torch is among them: its CUDA
    packages are locked, but not torch itself."""
    framework, _, wanted = name.partition(".")
    recipe = read(framework)
    if not wanted:
        return recipe.requirements
    (build,) = (build for build in recipe.builds if build.name == wanted)
    # `===` takes the build of the usual indexes, and no other one such as 2.13.0+cpu
    return [re.sub("^torch==", "torch===", line) for line in recipe.for_gpus(build).requirements]


if __name__ == "__main__":
    print("\n".join(to_lock(sys.argv[1]) if len(sys.argv) > 1 else locks()))

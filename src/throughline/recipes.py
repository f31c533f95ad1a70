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
    #: variant NAME           the build for GPUs with a version of CUDA (variants.py); the lines below describe it
    #: driver VERSION         the oldest driver that it runs with
    #: capability FROM [TO]   the compute capabilities that its packages have code for
    #: without PACKAGE ...    requirements of the CPU build that it leaves out
    #: index ADDRESS          where its own requirements come from, if the usual indexes do not have them
    #: link PACKAGE           this package looks for NVIDIA's libraries in its own folder, so links are made there

The requirements of a variant replace those of the same package, or are added. What is pinned by the wheels of `step`
stays the same in every variant. A file of the workflow's own environment has variants as well: they say where torch's
builds run.

A new framework needs only this file: `make lock` writes the versions and hashes of these requirements and their
dependencies to `envs/lock/<framework>.txt`, those of a variant to `envs/lock/<framework>.<variant>.txt`, and the files
of conda (installation/conda_files.py). `python -m throughline.recipes` names all locks, and with one of these names it
prints what is locked there.

An environment is built in its final folder, because its programs contain the path of that folder. Its name has a
digest of everything that determines its content. So another clone with the same pins uses the same environment, and a
changed comment builds nothing again. The workflow passes names to its runs, not folders, so nothing is measured again
in another home folder.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from throughline import variants, versions
from throughline.files import UserError, sha256
from throughline.variants import Variant

PINS = Path(__file__).parents[2] / "envs"
READY = ".ready"
BUILT = "built.json"
"""What an environment was built with."""
TORCH_IN_INDEX = "13"
"""The version of CUDA whose build of torch the usual indexes have. The others are in PyTorch's own index only."""
CPU_TORCH = "the workflow's PyTorch is a CPU build; make run GPU=auto installs the one for this machine"


@dataclass
class Stage:
    """Requirements that are installed together. `patch` is the path of a patch file, `index` an index of their own."""

    title: str
    source: bool
    requirements: list[str] = field(default_factory=list)
    patch: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    index: str = ""


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
    variants: list[Variant]
    """The builds for GPUs that there are."""
    variant: Variant | None = None
    """The build that this recipe is for; None: the CPU build, or on torch what the workflow's own torch is."""

    @property
    def pins(self) -> str:
        """A digest (12 hexadecimal digits) of the interpreter, pins, flags and patches. The conda file has it too."""
        stages = [
            [stage.source, stage.requirements, stage.patch and sha256(stage.patch), stage.variables]
            for stage in self.stages
        ]
        of_variant = [self.variant.name, self.variant.index, self.variant.link] if self.variant else []
        return _digest(json.dumps([self.python, stages, self._locked(), *of_variant], sort_keys=True))

    def _locked(self) -> list[str]:
        """Return name and version of every package in the lock.

        Hashes are left out, so an additional wheel for another platform does not change the environment.
        """
        lines = self.lock.read_text(encoding="utf-8").splitlines() if self.lock.is_file() else []
        return [line.removesuffix("\\").strip() for line in lines if "==" in line]

    @property
    def name(self) -> str:
        """The name of the environment. It depends on the kind of processor, because machines may share a home folder.

        The name of a build for GPUs ends in its variant, such as `-cuda13`, and with NCCL in `-nccl`. If there is an
        environment without MPI from before MPI was installed, it stays, and one with MPI is built beside it, whose name
        ends in `-mpi`.
        """
        name = f"{self.framework}-{_digest(f'{self.pins} {platform.machine()}')}"
        if self.variant:
            name = f"{name}-{self.variant.name}"
        if self.builds_nccl:
            name = f"{name}-nccl"
        if self.compiled and lacks_mpi(name) and (builds_mpi() or is_ready(f"{name}-mpi")):
            name = f"{name}-mpi"
        return name

    @property
    def compiled(self) -> list[Stage]:
        return [stage for stage in self.stages if stage.source]

    @property
    def builds_nccl(self) -> bool:
        """True if Horovod is built with NCCL: in a build for GPUs, unless HOROVOD_GPU_OPERATIONS says otherwise."""
        operations = os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL" if self.variant else "")
        return bool(self.compiled) and operations == "NCCL"

    @property
    def has_torch(self) -> bool:
        return any(line.startswith("torch==") for stage in self.stages for line in stage.requirements)

    @property
    def brings_nvcc(self) -> bool:
        """True if CUDA's compiler is among the pins."""
        return any(line.startswith("nvidia-cuda-nvcc==") for stage in self.stages for line in stage.requirements)

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


def of(framework: str, build: str | None = None) -> Recipe | None:
    """Return the recipe of the framework's environment; None if it runs in the workflow's own environment.

    build: the name of a variant, or `none` for the CPU build (default: what this machine gets, see `build_of`).
    """
    recipe = _read(framework)
    if not recipe.python:
        return None
    if build is None:
        variant, _ = _chosen(recipe)
    else:
        variant = next((one for one in recipe.variants if one.name == build), None)
    return _varied(recipe, variant) if variant else recipe


def _read(framework: str) -> Recipe:
    """Return the recipe of the CPU build, as its file has it. A file for the workflow's environment has no Python."""
    if own := versions.pins(framework):
        return _versioned(_read(versions.base(framework)), framework, own)
    path = PINS / f"{framework}.txt"
    recipe = Recipe(framework, "", [], [], [], PINS / "lock" / path.name, [])
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        word, _, rest = line.removeprefix("#:").strip().partition(" ")
        if not line.startswith("#:"):
            requirement = " ".join(line.partition("#")[0].split())
            if requirement and recipe.variants:
                recipe.variants[-1].requirements.append(requirement)
            elif requirement and recipe.stages:
                recipe.stages[-1].requirements.append(requirement)
        elif word == "environment":
            return _read(rest)
        elif not (_of_variant(recipe.variants, word, rest) or _of_recipe(recipe, word, rest)):
            raise UserError(f"{path.name}: {line!r} is no line for the builder", next_step="see recipes.py")
    return recipe


def _versioned(recipe: Recipe, framework: str, own: Path) -> Recipe:
    """Return the recipe of another version of a framework. It has no lock: its own file is all that is pinned.

    A version of a framework of the workflow's own environment gets an environment of its own, with the same Python.
    """
    stages, modules = recipe.stages, recipe.modules
    if not recipe.python:
        stages = [Stage(f"packages of {framework}", False, _listed(recipe.framework))]
        modules = [versions.package(line) for line in stages[0].requirements[:3]]
    first, *others = stages
    return replace(
        recipe,
        framework=framework,
        python=recipe.python or "{}.{}".format(*sys.version_info),
        stages=[replace(first, requirements=versions.replaced(first.requirements, own)), *others],
        modules=modules,
        lock=recipe.lock.with_name(own.name),
        variants=[
            replace(one, requirements=versions.replaced(one.requirements, own, add=False)) for one in recipe.variants
        ],
    )


def _of_recipe(recipe: Recipe, word: str, rest: str) -> bool:
    """Take over a line that describes the environment; False if this is no such line."""
    if word == "python":
        recipe.python = rest
    elif word in ("step", "source"):
        recipe.stages.append(Stage(rest, word == "source"))
    elif word == "patch":
        recipe.stages[-1].patch = PINS / rest
    elif word == "set":
        recipe.stages[-1].variables |= dict(setting.split("=", 1) for setting in rest.split())
    elif word == "conda":
        recipe.conda += rest.split()
    elif word == "check":
        recipe.modules += rest.split()
    else:
        return False
    return True


def _of_variant(known: list[Variant], word: str, rest: str) -> bool:
    """Take over a line that describes a variant; False if this is no such line."""
    if word == "variant":
        known.append(Variant(rest))
    elif not known:
        return False
    elif word == "driver":
        known[-1].driver = int(rest)
    elif word == "capability":
        bounds = [tuple(map(int, bound.split("."))) for bound in rest.split()]
        known[-1].lowest, known[-1].highest = bounds[0], bounds[1] if len(bounds) > 1 else ()
    elif word == "without":
        known[-1].without += rest.split()
    elif word in ("index", "link"):
        setattr(known[-1], word, rest)
    else:
        return False
    return True


def _package(requirement: str) -> str:
    """Return the name of the package that a requirement pins, without its extras."""
    return re.split(r"[=\[ ]", requirement)[0].lower()


def _varied(recipe: Recipe, variant: Variant) -> Recipe:
    """Return the recipe of a build for GPUs."""
    first, *others = recipe.stages
    replaced = {*variant.without, *map(_package, variant.requirements)}
    kept = [line for line in first.requirements if _package(line) not in replaced]
    if variant.index:
        others = [Stage(f"packages of {variant.index}", False, variant.requirements, index=variant.index), *others]
    else:
        kept += variant.requirements
    own = recipe.lock.with_name(f"{recipe.lock.stem}.{variant.name}.txt")
    stages = [replace(first, requirements=kept), *others]
    return replace(recipe, stages=stages, lock=own if own.is_file() else recipe.lock, variant=variant)


def _chosen(recipe: Recipe) -> tuple[Variant | None, str]:
    """Return the variant that this machine gets (None: the CPU build) and the reason in words."""
    wants, known = variants.wanted(), variants.deciding()
    if not recipe.has_torch:
        return variants.choose(recipe.variants, wants, known)
    cuda = torch_cuda()
    if cuda is None:
        return variants.choose(recipe.variants, wants, known)
    if not cuda:
        return None, CPU_TORCH
    same = next((one for one in recipe.variants if cuda in (one.cuda, f"{one.cuda}.0")), None)
    if wants == "none" or same is None or (not known.cards and wants == "auto" and is_ready(recipe.name)):
        return None, f"the workflow's PyTorch, for CUDA {cuda}"
    return same, f"as the workflow's PyTorch, for CUDA {cuda}"


def variants_of(framework: str) -> list[Variant]:
    """Return the builds for GPUs that there are; for torch those of the workflow's own environment."""
    return _read(framework).variants


def has_builds(framework: str) -> bool:
    """True if the files of pins describe builds for GPUs. A framework of your own may have none."""
    return bool(variants_of(framework))


def build_of(framework: str) -> tuple[str, str]:
    """Return the build of a framework that this machine gets, `none` for CPUs, and the reason in words."""
    recipe = _read(framework)
    if recipe.python:
        variant, reason = _chosen(recipe)
        return variant.name if variant else "none", reason
    cuda = torch_cuda()
    if cuda is None:
        return "none", "there is no PyTorch yet: make run"
    return (f"CUDA {cuda}", "the workflow's own environment") if cuda else ("none", CPU_TORCH)


def no_build(framework: str) -> str | None:
    """Return why no build of this framework runs on this machine's GPUs, although others do; None if there is one.

    Without a GPU, or if the user hides all GPUs or wants none, there is nothing to say.
    """
    known, of_framework = variants.facts(), variants_of(framework)
    reasons = [variant.unfit(known) for variant in of_framework]
    if not _usable(known) or not reasons or not all(reasons):
        return None
    return f"{framework} has no build for this machine's GPUs: {'; '.join(filter(None, reasons))}"


def unused_gpus() -> variants.Facts | None:
    """Return this machine's GPUs that a framework could use; None if there are none, or if the user wants none."""
    known = variants.facts()
    return known if _usable(known) else None


def _usable(known: variants.Facts) -> bool:
    """True if the user wants these GPUs, and one of PyTorch's builds runs on them."""
    if not known.cards or variants.hidden() or variants.wanted() == "none":
        return False
    return any(not variant.unfit(known) for variant in variants_of("torch"))


def requirements(framework: str, build: str = "none") -> list[str]:
    """Return the pinned requirements of the environment that the framework's ranks run in."""
    if recipe := of(framework, build):
        return [line for stage in recipe.stages for line in stage.requirements]
    return _listed(framework)


def _listed(framework: str) -> list[str]:
    """Return the requirements in a framework's file."""
    lines = (PINS / f"{framework}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in (line.partition("#")[0].strip() for line in lines) if line]


def locked() -> list[str]:
    """Return the names of all environments that have a lock of their own."""
    found = ((path.stem, _read(path.stem)) for path in PINS.glob("*.txt") if versions.MARK not in path.stem)
    return sorted(name for name, recipe in found if recipe.python and recipe.framework == name)


def locked_variants() -> list[str]:
    """Return `NAME.VARIANT` for each build for GPUs whose packages are in the usual indexes, and so in a lock."""
    return [
        f"{recipe.framework}.{variant.name}"
        for recipe in map(_read, locked())
        for variant in recipe.variants
        if not variant.index and (not recipe.has_torch or variant.cuda == TORCH_IN_INDEX)
    ]


def to_lock(name: str) -> list[str]:
    """Return the requirements that the lock of an environment is made from: `NAME` or `NAME.VARIANT`.

    For a variant, torch is among them: its CUDA packages are locked, but not torch itself.
    """
    framework, _, build = name.partition(".")
    recipe = of(framework, build or "none")
    assert recipe
    wheels = [line for stage in recipe.stages if not stage.source for line in stage.requirements]
    # `===` takes the build of the usual indexes, and no other one such as 2.13.0+cpu
    return [re.sub("^torch==", "torch===", line) if build else line for line in wheels]


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
    if recipe is None or is_ready(recipe.name):
        return None
    if not downloads_python() and not interpreter(recipe.python):
        return (
            f"{framework} needs Python {recipe.python}, which was not found on this machine: install it, or let uv "
            "download it with UV_PYTHON_DOWNLOADS=automatic make frameworks"
        )
    return _lacks_nvcc(recipe)


def _lacks_nvcc(recipe: Recipe) -> str | None:
    """Return that CUDA's compiler is missing, which Horovod needs as soon as its framework is built for CUDA."""
    cuda = recipe.variant.cuda if recipe.variant else torch_cuda() if recipe.has_torch else ""
    if not recipe.compiled or not cuda or recipe.brings_nvcc or toolkit(cuda):
        return None
    found = f"this machine has nvcc {have}" if (have := nvcc_version()) else "there is no nvcc here"
    return (
        f"{recipe.framework} for CUDA {cuda} needs CUDA's compiler nvcc {cuda.partition('.')[0]}, and {found}: install "
        "NVIDIA's CUDA toolkit of this version, or load its module"
        + ("; for CUDA 13 the compiler comes with the pins: make frameworks GPU=cuda13" if recipe.has_torch else "")
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


def torch_cuda() -> str | None:
    """Return the version of CUDA that the workflow's torch is built for, such as `13.0`.

    "" means that it is a CPU build, and None that there is no torch.

    It reads a file of the package, because the import of torch takes seconds.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    version = re.search(r"^cuda\b[^=\n]*= *['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return version[1] if version else ""


def _nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def nvcc_version() -> str | None:
    """Return the version of the CUDA compiler on this machine, such as `13.0`; None if there is none."""
    compiler = _nvcc()
    if compiler is None:
        return None
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"release (\d+\.\d+)", said)
    return version[1] if version else None


def toolkit(cuda: str) -> str | None:
    """Return the folder of the CUDA toolkit on this machine; None if there is none of this major version."""
    compiler, version = _nvcc(), nvcc_version()
    if compiler is None or version is None or version.partition(".")[0] != cuda.partition(".")[0]:
        return None
    folder = Path("/usr/local/cuda")
    beside = Path(compiler).resolve().parents[1]  # a script at another place only starts the compiler
    return str(beside if (beside / "include/cuda_runtime.h").is_file() else folder)


def builds_mpi() -> bool:
    """True if Horovod is built with MPI here: with MPI's compiler, unless HOROVOD_WITHOUT_MPI is set."""
    return shutil.which("mpicxx") is not None and "HOROVOD_WITHOUT_MPI" not in os.environ


if __name__ == "__main__":
    print("\n".join(to_lock(sys.argv[1]) if len(sys.argv) > 1 else [*locked(), *locked_variants()]))

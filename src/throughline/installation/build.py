"""Build a framework's environment once per user, following its recipe (recipes.py).

Standard library only, so that conda's own Python can run this module too.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from throughline import recipes
from throughline.files import UserError, write_json
from throughline.installation import cuda_packages, torch_build, uv
from throughline.recipes import Recipe, Stage

PROGRAMS = {"g++": "g++ (Debian, Ubuntu: g++; Fedora, RHEL: gcc-c++)", "make": "make", "patch": "patch"}
"""Map each program that a build needs from the system to the advice which package has it."""

HINTS = {
    "Python.h: No such file": "install Python's headers (Debian, Ubuntu: python3-dev; Fedora, RHEL: python3-devel)",
    "No space left on device": "free space, or set XDG_CACHE_HOME to a larger disk",
    "Could NOT find MPI": "install MPI's compiler (Debian, Ubuntu: libopenmpi-dev openmpi-bin), or set "
    "HOROVOD_WITHOUT_MPI=1",
    "Could NOT find NCCL": "set HOROVOD_NCCL_HOME to the folder of NCCL, or unset HOROVOD_GPU_OPERATIONS",
    "Temporary failure in name resolution": "check the network, or point pip at a mirror (PIP_INDEX_URL)",
    "not found in the": "check the network and pip's index (pip config list)",
    "No matching distribution found": "check the network and pip's index (pip config list)",
}
"""Map a text in the log of a failed build to the advice for the user."""


def build(framework: str, log: Path) -> Path:
    """Build the environment if it does not exist, and return its folder.

    Raise UserError if the build fails. Then no part of the environment is left behind.
    """
    recipe = _recipe(framework)
    folder = recipe.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder, framework):
        if not (folder / recipes.BUILT).is_file():
            _requirements(recipe)
            if lacking := recipes.lacking(framework):
                raise UserError(f"the environment of {framework} cannot be built", next_step=lacking)
            _say(f"environment of {framework}: {folder}")
            _say(f"  {_which(framework)}")
            if folder.exists():
                _say("  removing what an interrupted build left")
                shutil.rmtree(folder)
            try:
                _stages(recipe, folder, log)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        (folder / recipes.READY).touch()
    return folder


def fill(framework: str, log: Path) -> None:
    """Install what the framework needs into the environment of this Python (an environment of conda or a container)."""
    recipe = _recipe(framework)
    _requirements(recipe)
    _stages(recipe, Path(sys.prefix), log)


def _which(framework: str) -> str:
    """Return in words which build it is and why. A build that was asked for may not run on the GPUs of this machine."""
    build, reason = recipes.build_of(framework)
    return f"the build for CPUs: {reason}" if build == "none" else f"the build for GPUs with {build}: {reason}"


def _recipe(framework: str) -> Recipe:
    recipe = recipes.of(framework)
    if recipe is None:
        raise UserError(f"{framework} has no environment of its own", next_step="it runs in the workflow's: make run")
    return recipe


def _stages(recipe: Recipe, folder: Path, log: Path) -> None:
    """Create, fill and check the environment, with a line on stderr for each stage and all output in the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        run = _Runner(recipe, folder, output, log)
        if folder != Path(sys.prefix):
            with run.stage(1, "virtual environment"):
                wanted = recipes.interpreter(recipe.python) or recipe.python
                run(*uv.command("venv", "--python", wanted, str(folder)))
        for number, stage in enumerate(recipe.stages, 2):
            with run.stage(number, stage.title + (", compiled from its source" if stage.source else "")):
                if stage.source:
                    _compile(run, stage)
                else:
                    _install_wheels(run, stage, recipe.lock)
                    if recipe.variant and recipe.variant.link:
                        cuda_packages.link_beside(folder, recipe.variant.link)
        with run.stage(run.total, "check"):
            if recipe.compiled:  # compiled packages are installed without dependencies; uv resolves those of wheels
                run(*uv.command("pip", "check", "--python", run.python))
            run(run.python, "-c", "import " + ", ".join(recipe.modules))
    facts = {
        "framework": recipe.framework,
        "variant": recipe.variant.name if recipe.variant else None,
        "mpi": recipes.builds_mpi(),
        "nccl": recipe.builds_nccl,
        "seconds": run.seconds,
    }
    write_json(folder / recipes.BUILT, facts)
    _say(f"  ready after {time.monotonic() - began:.0f} s")


class _Runner:
    """Runs commands with the programs of the new environment, and writes their output to the log."""

    def __init__(self, recipe: Recipe, folder: Path, output: IO[str], log: Path) -> None:
        self.framework, self.recipe, self.folder = recipe.framework, recipe, folder
        self.total = len(recipe.stages) + 2
        self.output, self.log = output, log
        self.python = str(folder / "bin" / "python")
        self.seconds: dict[str, float] = {}
        self.variables = uv.variables(folder)
        for name in ("PYTHONPATH", "PYTHONHOME"):
            self.variables.pop(name, None)
        # Replace the MAKEFLAGS of a calling `make`: with a variable on its command line, they lack the number of jobs.
        self.variables["MAKEFLAGS"] = f"-j{min(4, len(os.sched_getaffinity(0)))}"
        self.variables["PATH"] = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")])
        self.variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"

    @contextlib.contextmanager
    def stage(self, number: int, title: str) -> Iterator[None]:
        line = f"  {self.framework} {number}/{self.total}: {title}"
        _say(f"{line} ...")
        began = time.monotonic()
        yield
        self.seconds[title] = round(time.monotonic() - began, 1)
        _say(f"{line}: {self.seconds[title]:.0f} s")

    def __call__(self, *command: str, **variables: str) -> None:
        self.output.write(f"$ {' '.join(command)}\n")
        self.output.flush()
        start = self.output.tell()
        done = subprocess.run(
            command, env=self.variables | variables, stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode:
            with self.log.open(encoding="utf-8", errors="replace") as written:
                written.seek(start)
                raise _failed(self.framework, written.read().splitlines(), self.log)


def _failed(framework: str, lines: list[str], log: Path) -> UserError:
    """Return the UserError of a failed build, from the lines that its last command printed."""
    what = f"the environment of {framework} could not be built"
    for sign, advice in HINTS.items():
        if line := next((line.strip() for line in lines if sign in line), None):
            return UserError(what, why=line, next_step=advice)
    errors = [line.strip() for line in lines if "error: " in line.lower()] or [line.strip() for line in lines if line]
    reason = errors[0][:300] if errors else "the command printed nothing"
    return UserError(what, why=reason, next_step=f"read {log}; nothing half made is left behind")


def _compile(run: _Runner, stage: Stage) -> None:
    """Compile the requirements. pip downloads their archives and compares the checksums; then we apply the patch."""
    alone = ("--no-input", "--no-deps", "--no-build-isolation")
    with tempfile.TemporaryDirectory(prefix="throughline-build-") as name:
        work = Path(name)
        flags = {**stage.variables, **_horovod(run, stage.variables, work)}
        (work / "pins.txt").write_text("\n".join(stage.requirements) + "\n")
        words = ("--no-binary", ":all:", "--dest", str(work), "--requirement", str(work / "pins.txt"))
        run(run.python, "-m", "pip", "download", *alone, *words, **flags)
        for archive in [*work.glob("*.tar.gz"), *work.glob("*.zip")]:
            shutil.unpack_archive(archive, work / "source")
        for source in (work / "source").iterdir():
            for cython in source.rglob("*.pyx"):
                cython.touch()  # the archive's generated C code is for an older Python, so generate it again
            if stage.patch:
                run("patch", "--batch", "-p1", "-d", str(source), "-i", str(stage.patch))
            run(run.python, "-m", "pip", "install", *alone, "--no-cache-dir", "-v", str(source), **flags)


def _install_wheels(run: _Runner, stage: Stage, lock: Path) -> None:
    """Install the locked packages, and then torch in the same build (CPU or a CUDA version) as the workflow's torch.

    With the same build, the measurements in both environments can be compared. Packages from an index of their own are
    in no lock; only what they require may be.
    """
    install = uv.command("pip", "install", "--python", run.python)
    if stage.index:
        run(*install, "-c", str(lock), "--extra-index-url", stage.index, *stage.requirements)
        return
    torch = [line for line in stage.requirements if line.startswith("torch==")]
    with tempfile.NamedTemporaryFile("w", prefix="throughline-pins-", suffix=".txt") as pins:
        pins.write("\n".join(line for line in stage.requirements if line not in torch))
        pins.flush()
        # A version of the user's own has no lock: what it pins is all that is known.
        locked = ["--require-hashes", "-c", str(lock)] if lock.is_file() else []
        run(*install, "--excludes", str(recipes.PINS / "apart.txt"), *locked, "--only-binary", ":all:", "-r", pins.name)
    if not torch:
        return
    tries = torch_build.attempts(torch[0], _same_build(run.recipe), os.environ.get("TORCH_INDEX", ""))
    for number, words in enumerate(tries, 1):
        try:
            run(*install, *(["-c", str(lock)] if lock.is_file() else []), *words)
            return
        except UserError:
            if number == len(tries):
                raise


def _same_build(recipe: Recipe) -> str | None:
    """Return the label of torch's build, as `torch_build.attempts` takes it: that of the workflow's torch, or of the
    recipe's variant if only PyTorch's own index has that one."""
    variant = recipe.variant
    if variant and variant.cuda != recipes.TORCH_IN_INDEX:  # also where the workflow's torch is in another environment
        return f"cu{variant.cuda.replace('.', '')}"
    return recipes.torch_build() or ("" if variant or recipes.torch_cuda() else None)


def _horovod(run: _Runner, variables: dict[str, str], work: Path) -> dict[str, str]:
    """Return Horovod's build flags: MPI if this machine has it, CUDA if its framework has it, and NCCL on GPUs.

    Flags that the user has set take precedence. `work` is a folder for what only the compiler needs.
    """
    if not any(name.startswith("HOROVOD_") for name in variables):
        return {}
    flags = {"HOROVOD_WITH_MPI": "1"} if recipes.builds_mpi() else {"HOROVOD_WITHOUT_MPI": "1"}
    if not recipes.builds_mpi():
        _say("    no mpicxx here: without MPI (Debian, Ubuntu: libopenmpi-dev openmpi-bin has it)")
    recipe = run.recipe
    cuda = recipe.variant.cuda if recipe.variant else recipes.torch_cuda() if recipe.has_torch else ""
    if cuda:
        flags |= cuda_packages.compiler_flags(run.folder, recipes.toolkit(cuda), work, nccl=recipe.builds_nccl)
    return flags | {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}


def _requirements(recipe: Recipe) -> None:
    compiled = recipe.compiled
    needed = ["g++", "make"] if compiled else []
    needed += ["patch"] if any(stage.patch for stage in compiled) else []
    if missing := [PROGRAMS[name] for name in needed if shutil.which(name) is None]:
        raise UserError(
            f"the environment of {recipe.framework} cannot be built: a system package is missing",
            why=f"{', '.join(stage.title for stage in compiled)} is compiled from its source",
            next_step="install " + ", ".join(missing),
        )


@contextlib.contextmanager
def _alone(folder: Path, framework: str) -> Iterator[None]:
    """Hold the lock of this environment. The lock ends with the process that holds it."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _say(f"environment of {framework}: another process builds it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""Build a framework's environment once per user, as its recipe says (recipe.py), with uv.

Standard library only, so that conda's own Python can run this module too.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from throughline.files import UserError, write_json
from throughline.installation import choose, horovod, torch_build, uv
from throughline.installation.recipe import BUILT, PINS, READY, Recipe, Source

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
    """Build the environment if it does not exist, or if its Horovod was built before MPI was installed. Return its
    folder. Raise UserError if the build fails: then nothing of it is left."""
    recipe = _recipe(framework)
    folder = recipe.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder, framework):
        if not (folder / BUILT).is_file() or _lacks_mpi(recipe):
            _check(framework)
            build, reason = choose.build_of(framework)
            which = "the build for CPUs" if build == "none" else f"the build for GPUs with {build}"
            _say(f"environment of {framework}: {folder}\n  {which}: {reason}")
            if folder.exists():
                _say("  removing what an earlier build left")
                shutil.rmtree(folder)
            try:
                _make(recipe, folder, log)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        (folder / READY).touch()
    return folder


def fill(framework: str, log: Path) -> None:
    """Install what the framework needs into the environment of this Python (an environment of conda or a container)."""
    recipe = _recipe(framework)
    _check(framework)
    _make(recipe, Path(sys.prefix), log)


def _recipe(framework: str) -> Recipe:
    recipe = choose.environment(framework)
    if recipe is None:
        raise UserError(f"{framework} has no environment of its own", next_step="it runs in the workflow's: make run")
    return recipe


def _lacks_mpi(recipe: Recipe) -> bool:
    """True if Horovod was built without MPI, and would be built with MPI now."""
    built = json.loads((recipe.folder / BUILT).read_text(encoding="utf-8"))
    return bool(recipe.source) and not built["mpi"] and horovod.builds_mpi()


def _check(framework: str) -> None:
    if lacking := choose.lacking(framework):
        raise UserError(f"the environment of {framework} cannot be built", next_step=lacking)


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


def _make(recipe: Recipe, folder: Path, log: Path) -> None:
    """Create, fill and check the environment, with a line on stderr for each stage and all output in the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began, seconds = time.monotonic(), {}
    with log.open("w", encoding="utf-8") as output:
        stages = _stages(_Runner(recipe, folder, output, log))
        for number, (title, stage) in enumerate(stages.items(), 1):
            line, start = f"  {recipe.framework} {number}/{len(stages)}: {title}", time.monotonic()
            _say(f"{line} ...")
            stage()
            seconds[title] = round(time.monotonic() - start, 1)
            _say(f"{line}: {seconds[title]:.0f} s")
    facts = {
        "framework": recipe.framework,
        "variant": recipe.build.name if recipe.build else None,
        "mpi": horovod.builds_mpi(),
        "nccl": recipe.builds_nccl,
        "seconds": seconds,
    }
    write_json(folder / BUILT, facts)
    _say(f"  ready after {time.monotonic() - began:.0f} s")


class _Runner:
    """Runs commands with the programs of the new environment, and writes their output to the log."""

    def __init__(self, recipe: Recipe, folder: Path, output: IO[str], log: Path) -> None:
        self.recipe, self.folder, self.output, self.log = recipe, folder, output, log
        self.python = str(folder / "bin" / "python")
        self.variables = uv.variables(folder) | {
            # A calling `make` with a variable on its command line hands on flags without the number of jobs.
            "MAKEFLAGS": f"-j{min(4, len(os.sched_getaffinity(0)))}",
            "PATH": os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        for name in ("PYTHONPATH", "PYTHONHOME"):
            self.variables.pop(name, None)

    def __call__(self, *command: str, text: str = "", **variables: str) -> None:
        """Run a command, to which `text` is the standard input. Raise UserError if it fails."""
        self.output.write(f"$ {' '.join(command)}\n")
        self.output.flush()
        start = self.output.tell()
        done = subprocess.run(
            command, env=self.variables | variables, input=text, text=True, stdout=self.output,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode:
            with self.log.open(encoding="utf-8", errors="replace") as written:
                written.seek(start)
                raise failure(self.recipe.framework, written.read().splitlines(), self.log)


def failure(framework: str, lines: list[str], log: Path) -> UserError:
    """Return the UserError of a failed build, from the lines that its last command printed."""
    what, lines = f"the environment of {framework} could not be built", [line.strip() for line in lines if line]
    for sign, advice in HINTS.items():
        if line := next((line for line in lines if sign in line), None):
            return UserError(what, why=line, next_step=advice)
    errors = [line for line in lines if "error: " in line.lower()] or lines or ["the command printed nothing"]
    return UserError(what, why=errors[0][:300], next_step=f"read {log}; nothing half made is left behind")


def _stages(run: _Runner) -> dict[str, Callable[[], None]]:
    """Map the title of each stage to the function that does it."""
    recipe, stages = run.recipe, dict[str, Callable[[], None]]()
    if run.folder != Path(sys.prefix):
        python = choose.interpreter(recipe.python) or recipe.python
        stages["virtual environment"] = partial(run, *uv.command("venv", "--python", python, str(run.folder)))
    if recipe.requirements or recipe.from_index:
        stages["packages"] = partial(_install, run)
    if recipe.torch:
        stages["PyTorch"] = partial(_install_torch, run, recipe.torch)
    for source in recipe.source:
        stages[f"{source.title}, compiled from its source"] = partial(_compile, run, source)
    return {**stages, "check": partial(_import, run)}


def _install(run: _Runner) -> None:
    """Install what the lock has, apart from torch, and then what comes from an index of its own and is in no lock."""
    recipe, install = run.recipe, uv.command("pip", "install", "--python", run.python)
    words = ["--excludes", str(PINS / "apart.txt"), "--only-binary", ":all:"]
    words += ["--require-hashes", *recipe.constraints] if recipe.lock else []
    wheels = (line for line in recipe.requirements if line != recipe.torch)
    run(*install, *words, "-r", "-", text="\n".join(wheels))
    if recipe.build and recipe.from_index:
        run(*install, *recipe.constraints, "--extra-index-url", recipe.build.index, *recipe.from_index)
    if recipe.build and recipe.build.link:
        _link_libraries(run.folder, recipe.build.link)


def _link_libraries(folder: Path, package: str) -> None:
    """Link NVIDIA's libraries into the folder of a package that looks for them there, whatever LD_LIBRARY_PATH says."""
    nvidia = horovod.nvidia(folder)
    for library in sorted(nvidia.glob("*/lib/*.so.*")):
        link = nvidia.parent / package / library.name
        if link.parent.is_dir() and not link.exists():
            link.symlink_to(library)


def _install_torch(run: _Runner, requirement: str) -> None:
    """Install torch in the same build (CPU or a CUDA version) as the workflow's torch, so that both can be compared."""
    build = run.recipe.build
    other = build.torch_label if build else ""  # where only PyTorch's own index has the build
    label = other or choose.torch_label() or ("" if build or choose.torch_cuda() else None)
    install = partial(run, *uv.command("pip", "install", "--python", run.python), *run.recipe.constraints)
    torch_build.install(install, requirement, label, os.environ.get("TORCH_INDEX", ""))


def _compile(run: _Runner, source: Source) -> None:
    """Compile a package. pip downloads its archive and compares the checksum; then we apply the patch."""
    alone = ("--no-input", "--no-deps", "--no-build-isolation")
    with tempfile.TemporaryDirectory(prefix="throughline-build-") as name:
        work, variables = Path(name), dict(source.variables)
        if source.title.startswith("horovod "):
            variables |= horovod.flags(run.folder, choose.cuda_of(run.recipe), work, nccl=run.recipe.builds_nccl)
            if "HOROVOD_WITHOUT_MPI" in variables:
                _say("    no mpicxx here: without MPI (Debian, Ubuntu: libopenmpi-dev openmpi-bin has it)")
        (work / "pins.txt").write_text(f"{source.requirement}\n")
        words = ("--no-binary", ":all:", "--dest", str(work), "--requirement", str(work / "pins.txt"))
        run(run.python, "-m", "pip", "download", *alone, *words, **variables)
        for archive in [*work.glob("*.tar.gz"), *work.glob("*.zip")]:
            shutil.unpack_archive(archive, work / "source")
        (folder,) = (work / "source").iterdir()
        for cython in folder.rglob("*.pyx"):
            cython.touch()  # the archive's generated C code is for an older Python, so generate it again
        if source.patch:
            run("patch", "--batch", "-p1", "-d", str(folder), "-i", str(PINS / source.patch))
        run(run.python, "-m", "pip", "install", *alone, "--no-cache-dir", "-v", str(folder), **variables)


def _import(run: _Runner) -> None:
    """Check that the requirements of all packages are there, and that the modules can be imported."""
    if run.recipe.source:  # compiled packages are installed without dependencies; uv resolves those of wheels
        run(*uv.command("pip", "check", "--python", run.python))
    run(run.python, "-c", "import " + ", ".join(run.recipe.check))

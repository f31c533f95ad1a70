"""Which environment does a framework get on this machine: for CPUs, or a build for GPUs? And why?

What the user wants (`wanted`), the GPUs of the machine (`facts`), and for all that is on PyTorch the build of the
workflow's torch decide. docs/reference/frameworks.md explains the choice to users. Standard library only.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from throughline import handover
from throughline.files import UserError
from throughline.gpus import visible_devices
from throughline.installation import horovod
from throughline.installation.recipe import READY, Build, Recipe, package, read
from throughline.processes import output

WANTED = "THROUGHLINE_GPU"
"""The variable with the user's choice. Without it, the file `gpu` in the environment has what `make GPU=...` wrote."""
CHOICE = re.compile(r"auto|none|cuda1[123]\d?")
CPU_TORCH = "the workflow's PyTorch is a CPU build; make run GPU=auto installs the one for this machine"


@dataclass(frozen=True)
class Card:
    """A GPU: its name, its compute capability, such as (9, 0), and its memory; () and "" if unknown. mig: programs see
    one of its slices."""

    name: str
    capability: tuple[int, ...] = ()
    memory: str = ""
    mig: bool = False


@dataclass(frozen=True)
class Facts:
    """NVIDIA's GPUs in a machine, and the version of their driver ("" if unknown)."""

    cards: tuple[Card, ...] = ()
    driver: str = ""


@functools.cache
def facts() -> Facts:
    """Return the GPUs of this machine that NVIDIA's program names."""
    try:
        return nvidia_smi() if shutil.which("nvidia-smi") else Facts()
    except RuntimeError:
        return Facts()


def nvidia_smi() -> Facts:
    """Ask NVIDIA's program for the GPUs of this machine. Raise RuntimeError with what it says if it fails."""
    fields, said = ["name", "driver_version", "memory.total", "compute_cap", "mig.mode.current"], ""
    for asked in (fields, fields[:4], fields[:3]):  # old drivers do not know the last fields
        command = ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader"]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(str(error)) from None
        rows = [line.split(", ") for line in done.stdout.splitlines() if line.count(", ") == len(asked) - 1]
        if done.returncode == 0 and rows:
            return Facts(tuple(_card(dict(zip(asked, row, strict=True))) for row in rows), rows[0][1])
        said = said or " ".join(done.stdout.split())
    raise RuntimeError(said or "it names no GPU")


def _card(answers: Mapping[str, str]) -> Card:
    """Return a GPU from the answers of NVIDIA's program, which are words in brackets where it has none, as `[N/A]`."""
    stated = {field: "" if text.startswith("[") else text for field, text in answers.items()}
    capability, mode = _numbers(stated.get("compute_cap", "")), stated.get("mig.mode.current")
    return Card(stated["name"], capability, stated["memory.total"], mode == "Enabled")


def deciding() -> Facts:
    """Return the GPUs that decide: those of the machine on which the workflow was started, for all its jobs."""
    given = handover.get("cards")
    if not given:
        return facts()
    driver, cards = json.loads(given)
    return Facts(tuple(Card(name, tuple(capability)) for name, capability in cards), driver)


def packed(facts: Facts) -> str:
    """Return the text that `deciding` reads."""
    return json.dumps([facts.driver, [[card.name, list(card.capability)] for card in facts.cards]])


def wanted() -> str:
    """Return what the user wants: `auto`, `none` or a version of CUDA. Raise UserError if it is something else."""
    choice = os.environ.get(WANTED) or handover.get("gpu", "")
    if not choice:
        with contextlib.suppress(OSError):
            choice = Path(sys.prefix, "gpu").read_text().strip()
    if choice and not CHOICE.fullmatch(choice):
        raise UserError(f"GPU={choice} is no choice", next_step="take GPU=auto, none, cuda12 or cuda13")
    return choice or "auto"


def unfit(build: Build, facts: Facts) -> str | None:
    """Return why a build does not run on these GPUs; None if it does."""
    driver = re.match(r"\d+", facts.driver)
    if driver and int(driver[0]) < build.driver:
        return f"CUDA {build.cuda} needs driver {build.driver} or newer, and {facts.driver} is installed"
    lowest, *highest = map(_numbers, build.capability)
    for card in facts.cards:
        capability = ".".join(map(str, card.capability))
        has = f"{card.name} has compute capability {capability}, and the packages for CUDA {build.cuda} have code"
        if card.capability and highest and card.capability > highest[0]:
            return f"{has} up to {build.capability[1]} only"
        if card.capability and card.capability < lowest:
            return f"{has} from {build.capability[0]} on"
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def choose(builds: list[Build], wants: str, facts: Facts) -> tuple[Build | None, str]:
    """Return the build for a machine, None for CPUs, and the reason in words.

    wants: `auto` for the newest that fits, `none`, or a version such as `cuda12`: the newest up to it, fit or not.
    """
    newest = sorted(builds, key=lambda build: (build.major, build.name), reverse=True)
    if wants == "none":
        return None, "GPU=none"
    if wants != "auto":
        major = int(wants[len("cuda") :][:2])
        chosen = next((build for build in newest if build.major <= major), None)
        return chosen, f"GPU={wants}" if chosen else f"it has no build for CUDA {major} or older"
    if not facts.cards:
        return None, "this machine has no NVIDIA GPU"
    reasons = {build.name: unfit(build, facts) for build in newest}
    if fits := next((build for build in newest if reasons[build.name] is None), None):
        return fits, f"{facts.cards[0].name}, driver {facts.driver or 'unknown'}"
    said = [reason for reason in reasons.values() if reason]
    if needs := [build.driver for build in newest if unfit(build, replace(facts, driver="")) is None]:
        said.append(f"install NVIDIA's driver {min(needs)} or newer")
    return None, "; ".join(said) or "it has no build for GPUs"


def _build_for(recipe: Recipe) -> tuple[Build | None, str]:
    """Return the build of an environment that this machine gets, None for CPUs, and the reason in words."""
    cuda = torch_cuda() if recipe.torch else None
    if cuda is None:
        return choose(recipe.builds, wanted(), deciding())
    if not cuda:
        return None, CPU_TORCH
    same = next((build for build in recipe.builds if cuda in (build.cuda, f"{build.cuda}.0")), None)
    if wanted() == "none" or same is None:
        return None, f"the workflow's PyTorch, for CUDA {cuda}"
    return same, f"as the workflow's PyTorch, for CUDA {cuda}"


def environment(framework: str) -> Recipe | None:
    """Return the recipe of the environment that a framework gets on this machine; None if it is the workflow's own."""
    recipe = read(framework)
    if not recipe.python:
        return None
    build, _ = _build_for(recipe)
    return recipe.for_gpus(build) if build else recipe


def build_of(framework: str) -> tuple[str, str]:
    """Return the build of a framework that this machine gets, `none` for CPUs, and the reason in words."""
    recipe = read(framework)
    if recipe.python:
        build, reason = _build_for(recipe)
        return build.name if build else "none", reason
    cuda = torch_cuda()
    if cuda is None:
        return "none", "there is no PyTorch yet: make run"
    return (f"CUDA {cuda}", "the workflow's own environment") if cuda else ("none", CPU_TORCH)


def unused_gpus() -> Facts | None:
    """Return this machine's GPUs that a build of PyTorch runs on; None without any, or if the user wants none."""
    here = facts()
    if not here.cards or visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES")) == [] or wanted() == "none":
        return None
    return here if any(not unfit(build, here) for build in read("torch").builds) else None


def no_build(framework: str) -> str | None:
    """Return why no build of this framework runs on this machine's GPUs, although others do; None if there is one."""
    here, builds = unused_gpus(), read(framework).builds
    reasons = [unfit(build, here) for build in builds] if here else []
    if not reasons or not all(reasons):
        return None
    return f"{framework} has no build for this machine's GPUs: {'; '.join(filter(None, reasons))}"


def ready(framework: str) -> Path | None:
    """Return the file that a complete environment has; None if the framework runs in the workflow's own environment, or
    if this machine cannot build one (`lacking`)."""
    recipe = environment(framework)
    return recipe.folder / READY if recipe and not lacking(framework) else None


def lacking(framework: str) -> str | None:
    """Return why this machine cannot build the framework's environment; None if it can, or if it already exists."""
    recipe = environment(framework)
    if recipe is None or (recipe.folder / READY).is_file():
        return None
    downloads = os.environ.get("UV_PYTHON_DOWNLOADS", "never") in ("automatic", "true", "1")
    if not downloads and not interpreter(recipe.python):
        return (
            f"{framework} needs Python {recipe.python}, which was not found on this machine: install it, or let uv "
            "download it with UV_PYTHON_DOWNLOADS=automatic make frameworks"
        )
    missing = [name for name in ("g++", "make", "patch") if recipe.source and shutil.which(name) is None]
    if missing:
        return (
            f"{framework} has packages that are compiled ({', '.join(source.title for source in recipe.source)}), and "
            f"this machine lacks {', '.join(missing)}: install them (Fedora, RHEL: g++ is in gcc-c++)"
        )
    cuda, pins = cuda_of(recipe), map(package, recipe.requirements)
    if not recipe.source or not cuda or "nvidia-cuda-nvcc" in pins or horovod.toolkit(cuda):
        return None
    here = f"this machine has nvcc {version}" if (version := horovod.nvcc_version()) else "there is no nvcc here"
    return (
        f"{recipe.framework} for CUDA {cuda} needs CUDA's compiler nvcc {cuda.partition('.')[0]}, and {here}: install "
        "NVIDIA's CUDA toolkit of this version, or load its module"
        + ("; for CUDA 13 the compiler comes with the pins: make frameworks GPU=cuda13" if recipe.torch else "")
    )


@functools.cache
def interpreter(version: str) -> str | None:
    """Return a Python of this version: the one that runs now, or one that uv finds on this machine; else None."""
    if "{}.{}".format(*sys.version_info) == version:
        return sys.executable
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        return shutil.which(f"python{version}")
    words = ("python", "find", "--quiet", "--no-project", "--no-python-downloads", version)
    return (output(uv, *words) or "").strip() or None


def cuda_of(recipe: Recipe) -> str | None:
    """Return the version of CUDA that an environment's framework is built for; "" or None: for CPUs."""
    return recipe.build.cuda if recipe.build else torch_cuda() if recipe.torch else None


def torch_cuda() -> str | None:
    """Return the version of CUDA that the workflow's torch is built for, such as `13.0`; "" for a CPU build, None
    without torch. It reads a file of the package, because the import of torch takes seconds."""
    return _in_torch(r"cuda\b[^=\n]*= *['\"]([\d.]+)['\"]")


def torch_label() -> str | None:
    """Return the label of the workflow's torch, such as `cpu` of 2.13.0+cpu; "" for a build without a label."""
    return _in_torch(r"__version__ *= *['\"][^'\"+]*\+([^'\"]*)['\"]")


def _in_torch(pattern: str) -> str | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    value = re.search(f"^{pattern}", text, re.MULTILINE)
    return value[1] if value else ""

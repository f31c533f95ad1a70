"""Say what this machine can do, what is missing for the rest, and how to get it.

`make doctor` runs this file before any installation, with the standard library only. A Python from 3.7 on that is too
old says only that.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from throughline.installation.choose import Card

ROOT = Path(__file__).resolve().parents[3]
FREE_GB = 5
"""Free space that we require. An environment with PyTorch's CPU build takes 1.6 GB. The CUDA build is a download of
2.7 GB, and takes more space than that on the disk."""
NEEDS = {
    "make run: its programs": ("make git", "make git", "make git"),
    "make run: data from text, a C compiler": ("cc|gcc|clang", "gcc libc6-dev", "gcc"),
    "make frameworks": ("g++ make patch", "g++ make patch", "gcc-c++ make patch"),
    "Horovod over MPI": ("mpicxx mpirun", "libopenmpi-dev openmpi-bin", "openmpi-devel"),
    "runs on a Slurm cluster": ("sbatch srun squeue", "slurm-client", "slurm"),
    "a cluster to try, and its tests": (
        "slurmctld slurmd munged ip", "slurm-wlm munge iproute2", "slurm-slurmctld slurm-slurmd munge iproute",
    ),
    "tests of hosts behind ssh": ("ssh sshd", "openssh-client openssh-server", "openssh-clients openssh-server"),
    "tests of downloads": ("openssl", "openssl", "openssl"),
    "tests of the report": ("chromium|chromium-browser|google-chrome|google-chrome-stable", "chromium", "chromium"),
    "text in the browser's pictures": ("fc-list", "fontconfig fonts-dejavu", "fontconfig dejavu-sans-fonts"),
}  # fmt: skip
"""Map each purpose to the programs that it needs, and to the packages of Debian and of Fedora that have them.

Of programs with `|` between them one is enough.
"""


def main() -> None:
    if tuple(sys.version_info) < (3, 11):
        print(
            f"this is Python {platform.python_version()}, and Throughline needs Python 3.11, 3.12 or 3.13: install it"
        )
        return
    venv = ROOT / ".venv"
    for folder in (*venv.glob("lib/python*/site-packages"), ROOT / "src"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    if (venv / "gpu").is_file() and not os.environ.get("THROUGHLINE_GPU"):
        os.environ["THROUGHLINE_GPU"] = (venv / "gpu").read_text().strip()
    print("This machine")
    for name, fact in facts():
        print(f"  {name:<12} {fact}")
    print("\nWhat it can do")
    for purpose, lacks, command in answers():
        print(f"  {'no ' if lacks else 'yes'}  {purpose}" + (f": {lacks} missing; {command}" if lacks else ""))
    print("\nWhich build each framework gets (GPU=cuda13 or GPU=none make frameworks chooses another)")
    for line in builds():
        print(f"  {line}")


def facts() -> list[tuple[str, str]]:
    """Return (name, fact) for everything that we tell about this machine."""
    from throughline.installation import recipe

    cores = len(os.sched_getaffinity(0))
    kilobytes = dict(re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    total, free = (int(kilobytes[name]) * 1024 / 1e9 for name in ("MemTotal", "MemAvailable"))
    built = {re.sub("-[0-9a-f]{12}", "", marker.parent.name) for marker in recipe.environments().glob("*/.ready")}
    return [
        ("system", f"{release().get('PRETTY_NAME', platform.system())}, {platform.machine()}"),
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("cores", str(cores) if cores == os.cpu_count() else f"{cores} of {os.cpu_count()}, this process may use"),
        ("memory", f"{total:.0f} GB, {free:.0f} GB of it free"),
        ("disk", f"{shutil.disk_usage(ROOT).free / 1e9:.0f} GB free in {ROOT}"),
        *[("GPU", line) for line in gpus()],
        ("set up", "yes" if (ROOT / ".venv/main.ready").exists() else "not yet: make run, or make test"),
        ("frameworks", ", ".join(sorted(built)) or "no environment built yet: make frameworks"),
    ]


def gpus() -> list[str]:
    """Return a line for each GPU, or one line that says why there is none."""
    from throughline.installation import choose

    if shutil.which("nvidia-smi") is None:
        there = any(Path("/dev").glob("nvidia[0-9]*"))
        return ["there is one, but no nvidia-smi: install the driver's tools" if there else "none: runs are on the CPU"]
    try:
        seen = choose.nvidia_smi()
    except RuntimeError as error:
        return [f"nvidia-smi fails: {str(error)[:200]}"]
    return [gpu(card, seen.driver) for card in seen.cards]


def gpu(card: Card, driver: str) -> str:
    """Return the line about a GPU."""
    capability = ".".join(map(str, card.capability)) or "unknown"
    parts = [card.name, card.memory or "memory not stated", f"driver {driver}", f"compute capability {capability}"]
    slices = "in MIG mode: choose a slice with CUDA_VISIBLE_DEVICES=MIG-... (nvidia-smi -L lists them)"
    return ", ".join([*parts, slices] if card.mig else parts)


def answers() -> list[tuple[str, str, str]]:
    """Return (purpose, what is missing, how to install it) for every purpose. If nothing is missing, it is possible."""
    modules = [name for name in ("venv", "ensurepip") if not importlib.util.find_spec(name)]
    lacks = ", ".join(modules) if sys.version_info[:2] <= (3, 13) else "Python 3.11, 3.12 or 3.13"
    full = shutil.disk_usage(ROOT).free < FREE_GB * 1e9
    rows = [
        ("make run: Python", lacks, install("python3 python3-venv python3-pip", "python3.11 python3.11-pip")),
        ("make run: room on the disk", f"{FREE_GB} GB" * full, "free some, or clone on a larger disk"),
    ]
    for purpose, (programs, debian, fedora) in NEEDS.items():
        missing = [names.replace("|", " or ") for names in programs.split() if not any(map(which, names.split("|")))]
        rows.append((purpose, ", ".join(missing), install(debian, fedora)))
    header = Path(sysconfig.get_path("include"), "Python.h")
    lacks = "" if header.is_file() else "Python.h"
    return [*rows, ("compiling against Python", lacks, install("python3-dev", "python3-devel"))]


def which(program: str) -> str | None:
    """Return the path of a program. We also look in the folders of daemons, which a user's path often lacks."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def install(debian: str, fedora: str) -> str:
    """Return the command that installs packages on this distribution."""
    likes = f"{release().get('ID', '')} {release().get('ID_LIKE', '')}".split()
    if {"debian", "ubuntu"} & set(likes):
        return f"sudo apt-get install {debian}"
    return f"sudo dnf install {fedora}" if {"fedora", "rhel"} & set(likes) else f"install {debian} (Debian's names)"


def release() -> dict[str, str]:
    """Return what the system says about its distribution; empty if it says nothing."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def builds() -> list[str]:
    """Return a line for each framework: its build and the reason, what is missing to build it, and how many GPUs it
    sees. If all get the build for CPUs for the same reason, it is one line."""
    from throughline import frameworks
    from throughline.files import UserError
    from throughline.installation import choose

    try:
        chosen = {name: (*choose.build_of(name), choose.lacking(name)) for name in frameworks.NAMES}
    except UserError as error:
        return [" ".join(str(error).split())]
    if choose.unused_gpus() is None and all(build == "none" for build, _, _ in chosen.values()):
        return ["all: for CPUs, " + chosen["jax"][1]]
    seen = devices([name for name, (build, _, lacks) in chosen.items() if build != "none" and not lacks])
    lines = []
    for name, (build, reason, lacks) in chosen.items():
        texts = (f"{name:<14} {'for CPUs' if build == 'none' else build}: {reason}", lacks, seen.get(name))
        lines.append("; ".join(filter(None, texts)))
    return lines


def devices(names: list[str]) -> dict[str, str]:
    """Map each of these frameworks to what it says it sees of this machine's GPUs, if its environment is built.

    Each is started for that, once between two starts of the machine.
    """
    from concurrent.futures import ThreadPoolExecutor

    from throughline.files import UserError
    from throughline.installation import choose
    from throughline.launch import seen_devices

    here = choose.unused_gpus()
    pythons = {name: seen_devices.python_of(name, str(ROOT / ".venv/bin/python")) for name in names if here}
    built = {name: python for name, python in pythons.items() if python and Path(python).exists()}

    def answer(pair: tuple[str, str]) -> str:
        try:
            count = seen_devices.seen(*pair, "cuda", os.environ).count
        except UserError as error:
            return " ".join(str(error).split())
        return f"it sees {count} of {len(here.cards) if here else 0} GPUs"

    with ThreadPoolExecutor() as pool:
        return dict(zip(built, pool.map(answer, built.items()), strict=True))


if __name__ == "__main__":
    main()

"""`make doctor`: say what this machine can do, and what is missing for the rest. It also runs before any installation.

So it uses only the standard library and one file of the library (nvidia_smi.py), and every Python from 3.7 on can run
it. Only which build a framework gets is asked of the rest of the library, which needs Python 3.11.
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
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
ROOM_GB = 5
"""Free space that we require. An environment with PyTorch's CPU build takes 1.6 GB. The CUDA build is a download of
2.7 GB, and takes more space than that on the disk."""


class Need(NamedTuple):
    """A purpose, the programs that it needs, and the system packages that have them.

    An entry of `programs` is one program, or several separated by `|` of which one is enough.
    """

    purpose: str
    programs: tuple[str, ...]
    debian: str
    fedora: str


NEEDS = (
    Need("make run: its programs", ("make", "git"), "make git", "make git"),
    Need("make run: data from text, a C compiler", ("cc|gcc|clang",), "gcc libc6-dev", "gcc"),
    Need("make frameworks", ("g++", "make", "patch"), "g++ make patch", "gcc-c++ make patch"),
    Need("Horovod over MPI", ("mpicxx", "mpirun"), "libopenmpi-dev openmpi-bin", "openmpi-devel"),
    Need("runs on a Slurm cluster", ("sbatch", "srun", "squeue"), "slurm-client", "slurm"),
    Need("a cluster to try, and its tests", ("slurmctld", "slurmd", "munged", "ip"), "slurm-wlm munge iproute2",
         "slurm-slurmctld slurm-slurmd munge iproute"),
    Need("tests of hosts behind ssh", ("ssh", "sshd"), "openssh-client openssh-server",
         "openssh-clients openssh-server"),
    Need("tests of downloads", ("openssl",), "openssl", "openssl"),
    Need("tests of the report", ("chromium|chromium-browser|google-chrome|google-chrome-stable",), "chromium",
         "chromium"),
    Need("text in the browser's pictures", ("fc-list",), "fontconfig fonts-dejavu", "fontconfig dejavu-sans-fonts"),
)  # fmt: skip


def main() -> None:
    print("This machine")
    for name, fact in facts():
        print(f"  {name:<12} {fact}")
    print("\nWhat it can do")
    for purpose, lacks, command in answers():
        print(f"  {'no ' if lacks else 'yes'}  {purpose}" + (f": {lacks} missing; {command}" if lacks else ""))
    if tuple(sys.version_info) >= (3, 11):
        print("\nWhich build each framework gets (GPU=cuda13 or GPU=none make frameworks chooses another)")
        for line in builds():
            print(f"  {line}")


def facts() -> list[tuple[str, str]]:
    """Return (name, fact) for everything that we tell about this machine."""
    cores = len(os.sched_getaffinity(0))
    total, free = memory("MemTotal"), memory("MemAvailable")
    disk = shutil.disk_usage(ROOT)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "throughline", "environments")
    built = sorted({re.sub("-[0-9a-f]{12}", "", marker.parent.name) for marker in cache.glob("*/.ready")})
    return [
        ("system", f"{release().get('PRETTY_NAME', platform.system())}, {platform.machine()}"),
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("cores", str(cores) if cores == os.cpu_count() else f"{cores} of {os.cpu_count()}, this process may use"),
        ("memory", f"{total:.0f} GB, {free:.0f} GB of it free" if total else "unknown"),
        ("disk", f"{disk.free / 1e9:.0f} GB free in {ROOT}"),
        *[("GPU", line) for line in gpus()],
        ("set up", "yes" if (ROOT / ".venv/main.ready").exists() else "not yet: make run, or make test"),
        ("frameworks", ", ".join(built) or "no environment built yet: make frameworks"),
    ]


def answers() -> list[tuple[str, str, str]]:
    """Return (purpose, what is missing, how to install it) for every purpose. If nothing is missing, it is possible."""
    needs = [python(), room()]
    for need in NEEDS:
        missing = [names.replace("|", " or ") for names in need.programs if not any(map(which, names.split("|")))]
        needs.append((need.purpose, ", ".join(missing), install(need.debian, need.fedora)))
    header = Path(sysconfig.get_path("include"), "Python.h")
    needs.append(("compiling against Python", "" if header.is_file() else "Python.h",
                  install("python3-dev", "python3-devel")))  # fmt: skip
    return needs


def builds() -> list[str]:
    """Return a line for each framework: its build and the reason, and what is missing to build it. If all get the build
    for CPUs for the same reason, it is one line."""
    installed = ROOT / ".venv"
    sys.path[:0] = [str(ROOT / "src"), *map(str, installed.glob("lib/python*/site-packages"))]
    if (installed / "gpu").is_file() and not os.environ.get("THROUGHLINE_GPU"):
        os.environ["THROUGHLINE_GPU"] = (installed / "gpu").read_text().strip()
    from throughline import frameworks, recipes
    from throughline.files import UserError

    try:
        chosen = {name: (*recipes.build_of(name), recipes.lacking(name)) for name in frameworks.NAMES}
    except UserError as error:
        return [" ".join(str(error).split())]
    if recipes.unused_gpus() is None and all(build == "none" for build, _, _ in chosen.values()):
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

    from throughline import recipes
    from throughline.files import UserError
    from throughline.launch import seen_devices

    known = recipes.unused_gpus()
    if known is None:
        return {}
    there = len(known.cards)

    def answer(pair: tuple[str, str]) -> str:
        try:
            found = seen_devices.seen(*pair, "cuda", os.environ)
        except UserError as error:
            return " ".join(str(error).split())
        return f"it sees {found.count} of {there} GPUs"

    own = ROOT / ".venv/bin/python"
    pythons = {name: seen_devices.python_of(name, str(own)) for name in names}
    built = {name: python for name, python in pythons.items() if python and Path(python).exists()}
    with ThreadPoolExecutor() as pool:
        return dict(zip(built, pool.map(answer, built.items()), strict=True))


def python() -> tuple[str, str, str]:
    """Return the answer whether this Python can run the workflow."""
    version = sys.version_info[:2]
    parts = ["pip (ensurepip)"] * (not (importlib.util.find_spec("pip") or importlib.util.find_spec("ensurepip")))
    parts += ["venv"] * (not importlib.util.find_spec("venv") or not importlib.util.find_spec("ensurepip"))
    lacks = "Python 3.11, 3.12 or 3.13" if not (3, 11) <= version <= (3, 13) else ", ".join(parts)
    return ("make run: Python", lacks, install("python3 python3-venv python3-pip", "python3.11 python3.11-pip"))


def room() -> tuple[str, str, str]:
    """Return the answer whether the disk has room for the environment and the default job."""
    lacks = shutil.disk_usage(ROOT).free < ROOM_GB * 1e9
    return ("make run: room on the disk", f"{ROOM_GB} GB" * lacks, "free some, or clone on a larger disk")


def gpus() -> list[str]:
    """Return a line for each GPU, or one line that says why there is none."""
    program = which("nvidia-smi")
    if program is None:
        seen = any(Path("/dev").glob("nvidia[0-9]*"))
        return ["there is one, but no nvidia-smi: install the driver's tools" if seen else "none: runs are on the CPU"]
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    from throughline import nvidia_smi

    try:
        rows = nvidia_smi.rows(program)
    except RuntimeError as error:
        return [f"nvidia-smi fails: {str(error)[:200]}"]
    return [
        f"{name}, {memory}, driver {driver}, compute capability {capability or 'unknown'}"
        for name, memory, driver, capability in rows
    ]


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
    """Return the content of /etc/os-release; empty if the file does not exist."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


def memory(name: str) -> float:
    """Return the value of a line of /proc/meminfo in GB; 0 if there is no such line."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith(name + ":")), 0.0)


if __name__ == "__main__":
    main()

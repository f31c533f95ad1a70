"""Describe the environment of a run: system, processor, framework, settings.

The description has no host name, address or path. Standard library only.
"""

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from throughline import files, frameworks, gpus, processes, sources, workloads
from throughline.observe import container
from throughline.variables import VARIABLES

DECIDES = (
    "python", "framework", "packages", "code", "os", "kernel", "cpu", "cpu_cores", "cpu_sockets", "cpu_governor",
    "cpu_quota_cores", "numa_nodes", "transparent_hugepages", "driver", "mpi", "gpus", "variables",
)  # fmt: skip
"""The keys of a record's `environment` that must be the same in all repeats of a configuration."""
ASSIGNED = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables that a scheduler sets for every job. They may differ between repeats on equal devices."""

BINDERS = frozenset({"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"})
"""Variables with which a threading library binds a rank to cores."""


def describe(framework: str, model: str) -> dict[str, Any]:
    """Return the parts of a record's `environment` that describe the machine and our code. Unknown values are None."""
    changes, image = _output("git", "status", "--porcelain"), container.image(os.environ)
    return {
        **machine(),
        "driver": gpus.driver(),
        "gpu_topology": _output("nvidia-smi", "topo", "-m") or None,
        "mpi": (_output("mpirun", "--version") or "").partition("\n")[0] or None,
        "code": code(framework, model),
        "commit": _output("git", "rev-parse", "HEAD"),
        "tree_clean": None if changes is None else not changes,
        **({"container": files.scrub(image)} if image else {}),
    }


def machine() -> dict[str, Any]:
    """Return the facts about this machine's system, processor and memory. Unknown values are None."""
    sockets = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    return {
        "os": _os(),
        "kernel": platform.release(),
        "cpu": cpu_name(),
        "cpu_cores": cpu_cores(),
        "cpu_sockets": len({content(path) for path in sockets} - {None}) or None,
        "cpu_governor": content("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_quota_cores": _cpu_quota_cores(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "transparent_hugepages": _first(r"\[(\w+)\]", content("/sys/kernel/mm/transparent_hugepage/enabled")),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def digest(environment: dict[str, Any], device: dict[str, Any]) -> str | None:
    """Return a digest (12 hexadecimal digits) of everything that must be the same in all repeats: the hardware with its
    limits, the software, our code that a rank runs, and the variables. None if the software is not known."""
    if environment.get("framework") is None:
        return None
    known = {name: environment.get(name) for name in DECIDES}
    known["variables"] = {k: v for k, v in environment.get("variables", {}).items() if k not in ASSIGNED}
    known["memory_gib"] = round(environment["memory_bytes"] / 2**30)  # equal machines differ by some kilobytes
    known["device"] = device
    return files.digest(json.dumps(known, sort_keys=True))


def binding(
    ranks: Mapping[int, Mapping[str, Any] | None], variables: Mapping[str, str], asked: str = "none"
) -> dict[str, Any] | None:
    """Return the cores of each rank that was bound to some, and by what; None if no rank was. asked: its `binding`."""
    binders = ["runs.binding"] * (asked != "none") + [name for name in variables if name in BINDERS]
    bindings: dict[str, Any] = {}
    for rank, bound in ranks.items():
        if bound:
            before = set(bound["cores"]) == os.sched_getaffinity(0)
            who = "who started the workflow" if before else ", ".join(binders) or "what starts the ranks"
            bindings[str(rank)] = {**bound, "set_by": who}
    return bindings or None


def reasons(environment: dict[str, Any], kind: str, cards: Sequence[Mapping[str, str]] = ()) -> dict[str, str]:
    """Return the reason for each value of an `environment` that is None. `cards` has the reasons of each GPU in it."""
    software = environment.get("framework") or {}
    known_reasons = {
        **dict.fromkeys(("framework", "python", "packages"), "the run ended before reporting it"),
        "digest": "the run ended before reporting its software",
        "mpi": "there is no mpirun, or it does not tell its version",
        "binding": "no rank was bound: each could use every core" if software else "the run ended before reporting it",
        "cpu_governor": "the system does not show one (often so in virtual machines)",
        "cpu_quota_cores": "no control group limits it",
        **dict.fromkeys(("commit", "tree_clean"), "this is no git checkout, or git is not installed"),
    }
    gpu = "the run is on the processor" if kind == "cpu" else "the driver's tools do not say"
    unknown = {name: known_reasons.get(name, gpu) for name, value in environment.items() if value is None}
    for index, (facts, of_card) in enumerate(zip(environment.get("gpus") or (), cards, strict=False)):
        unknown |= {f"gpus.{index}.{name}": of_card.get(name, gpu) for name, value in facts.items() if value is None}
    return unknown | {f"framework.{name}": gpu for name, value in software.items() if value is None}


def code(framework: str, model: str) -> str:
    """Return a digest (12 hexadecimal digits) of our own code that a rank of this framework runs on this model.

    Of a program: of our code that runs beside it.
    """
    known, workload = frameworks.of(framework), workloads.of(model)
    if known is frameworks.PROGRAM:
        return sources.digest(sources.closure("throughline.launch.program_runner"))
    folder = str(workloads.folder(model))
    forms = sorted((sources.ROOT / "workloads" / folder).glob(f"in_{known.library}*.py"))
    # A rank loads these modules by name, so no import statement mentions them.
    loaded = [f"frameworks.{known.rank.partition(':')[0]}", *(f"workloads.{folder}.{form.stem}" for form in forms)]
    loaded += [f"{workload.data}.{half}" for half in ("reading", "decoding")] if workload.data else []
    return sources.digest(sources.closure("throughline.rank.worker", *(f"throughline.{name}" for name in loaded)))


def variables(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of `environment` that VARIABLES allows, scrubbed."""
    return {name: files.scrub(value) for name, value in sorted(environment.items()) if VARIABLES.fullmatch(name)}


def cpu_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_has_fp16() -> bool | None:
    """True if the processor's hardware multiplies in half precision; None if this is unknown."""
    x86, arm = _cpuinfo("flags"), _cpuinfo("Features")
    if x86:
        return not {"avx512_fp16", "amx_fp16"}.isdisjoint(x86.split())
    return "asimdhp" in arm.split() if arm else None


def _cpu_quota_cores(root: Path = Path("/")) -> float | None:
    """Return how many cores this process's control groups may use on average; None without a limit."""
    quotas = []
    for path, version in _control_groups("cpu", root):
        if version == 1:
            limits = [content(path / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        else:
            limits = (content(path / "cpu.max") or "").split()
        if limits and all(number.isdigit() for number in limits):
            quotas.append(int(limits[0]) / int(limits[1]))
    return min(quotas, default=None)


def free_memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that is free without swapping, within the limits of all control groups; None if unknown.

    The kernel takes back files that a group read and no longer uses (`inactive_file`), so they count as free.
    """
    available = _first(r"^MemAvailable:\s*(\d+) kB$", content(root / "proc/meminfo"))
    if available is None:
        return None
    free = [int(available) << 10]
    for path, version in _control_groups("memory", root):
        names = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
        most, used = (content(path / f"memory.{name}") or "" for name in names)
        key = "total_inactive_file" if version == 1 else "inactive_file"
        cached = _first(rf"^{key} (\d+)$", content(path / "memory.stat")) or "0"
        if most.isdigit() and used.isdigit():
            free.append(max(0, int(most) - max(0, int(used) - int(cached))))
    return min(free)


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the system has killed in this control group because memory ran out; 0 if unknown."""
    for path, version in _control_groups("memory", root):
        text = content(path / ("memory.oom_control" if version == 1 else "memory.events"))
        if killed := _first(r"^oom_kill (\d+)$", text):
            return int(killed)
    return 0


def _control_groups(kind: Literal["cpu", "memory"], root: Path) -> Iterator[tuple[Path, Literal[1, 2]]]:
    """Yield this process's control group of a kind and all groups above it, each with its version (cgroups(7)).

    Version 2 has one tree, version 1 one for each kind. In a container, the tree may begin at the process's own group.
    """
    for line in (content(root / "proc/self/cgroup") or "").splitlines():
        _, kinds, group = line.split(":", 2)
        if kinds and kind not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / (kind if kinds else "")
        here = top / group.lstrip("/")
        for path in filter(lambda path: path.is_relative_to(top), (here, *here.parents)):
            yield path, 1 if kinds else 2


def _cpuinfo(key: str) -> str | None:
    return _first(rf"^{key}\s*:\s*(.+)$", content("/proc/cpuinfo"))


def _os() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def content(path: str | Path) -> str | None:
    """Return a small file's text; None if it is empty, or cannot be read."""
    try:
        return Path(path).read_text().strip() or None
    except (OSError, ValueError):  # an interface that is down refuses to state its speed
        return None


def _first(pattern: str, text: str | None) -> str | None:
    """Return the first group of a pattern, such as `madvise` in `always [madvise] never`; None without a match."""
    match = re.search(pattern, text or "", re.MULTILINE)
    return match[1].strip() if match else None


def _output(*command: str) -> str | None:
    """Return the plain text that a program prints; None if the program is missing or fails.

    It runs in the folder of this file, so that git finds our checkout.
    """
    text = processes.output(*command, folder=Path(__file__).parent, timeout_s=20)
    return None if text is None else re.sub(r"\x1b\[[0-9;]*m", "", text).strip()

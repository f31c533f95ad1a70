"""Make a rank's report when the rank ends: its software, or the error that ended it. Standard library only."""

import contextlib
import ctypes
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from throughline import messages
from throughline.messages import RankReport
from throughline.workloads import Unsupported


def of_error(rank: int, error: BaseException, framework: Any | None) -> RankReport:
    """Return the report of a rank that an error ended. `framework` knows its own messages about lack of memory."""
    if isinstance(error, Unsupported):
        return RankReport(rank, time.time(), "unsupported", str(error))
    refused = isinstance(error, MemoryError) or (framework is not None and framework.is_out_of_memory(error))
    return RankReport(rank, time.time(), "oom" if refused else "failed", words(error))


def words(error: BaseException) -> str:
    """Return an error's type and message. If the message begins with a traceback (MXNet), return only its last line."""
    text = str(error)
    message = text.splitlines()[-1].partition(": ")[2] if text.startswith("Traceback") else text
    return f"{type(error).__name__}: {message}"


def packages(modules: Mapping[str, Any]) -> dict[str, str]:
    """Return the `__version__` of each loaded module (`sys.modules`), without the standard library and ours."""
    versions = {}
    for name, module in sorted(modules.items()):
        version = getattr(module, "__version__", None)
        third = "." not in name and not name.startswith("_") and name not in {*sys.stdlib_module_names, "throughline"}
        if third and isinstance(version, str):
            versions[name] = str(version)
    return versions


def bound() -> dict[str, list[int]] | None:
    """Return the cores that this process may use, and their NUMA nodes; None if it may use all cores of the machine."""
    cores = os.sched_getaffinity(0)
    if len(cores) == os.cpu_count():
        return None
    links = {core: Path(f"/sys/devices/system/cpu/cpu{core}").glob("node[0-9]*") for core in cores}
    nodes = {int(node.name.removeprefix("node")) for nodes_of_core in links.values() for node in nodes_of_core}
    return {"cores": sorted(cores), "numa_nodes": sorted(nodes)}


def double_of_cuda() -> str | None:
    """Return what the fake CUDA driver in this process says of itself; None if the process has none.

    Such a library answers like a GPU and computes nothing (tests/gpu/double), so nothing measured on it is a result.
    """
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libcud" in line}
    for library in (None, *sorted(mapped)):  # None: what was loaded in front of the program
        with contextlib.suppress(OSError, AttributeError):
            says = ctypes.CDLL(library).null_cuda_present
            says.restype = ctypes.c_char_p
            return str(says().decode())
    return None


def limit_memory(megabytes: int | None) -> None:
    """Limit this process's data segment, so that larger allocations fail. Call it after the libraries are loaded."""
    if megabytes is not None:  # only the soft limit, because we lift it to write the report
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def write(report: RankReport, work: Path) -> None:
    """Write the report to the folder where the launcher looks for it, after lifting the limit of memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)
    messages.write(replace(report, double_of_cuda=double_of_cuda()), work / f"rank_{report.rank}.json")

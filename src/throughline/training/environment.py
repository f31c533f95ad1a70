"""What a run ran on: system, processor, framework, settings. No host name, address or path. Standard library only."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
from pathlib import Path
from typing import Any

from throughline.files import scrub

VARIABLES = re.compile(
    r"OMP_(NUM_THREADS|PROC_BIND|PLACES|WAIT_POLICY|DYNAMIC)|MKL_(NUM_THREADS|DYNAMIC|ENABLE_INSTRUCTIONS|CBWR)"
    r"|OPENBLAS_NUM_THREADS|KMP_(AFFINITY|BLOCKTIME)|GOMP_CPU_AFFINITY|MALLOC_(ARENA_MAX|CONF)"
    r"|ATEN_CPU_CAPABILITY|DNNL_(MAX_CPU_ISA|VERBOSE)|ONEDNN_MAX_CPU_ISA"
    r"|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|MODULE_LOADING|DEVICE_ORDER)"
    r"|NVIDIA_TF32_OVERRIDE|PYTORCH_(CUDA_)?ALLOC_CONF|CUBLAS_WORKSPACE_CONFIG|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|TORCH_(NCCL|CUDNN|BLAS)_\w+|TORCHDYNAMO_DISABLE|TORCHINDUCTOR_(MAX_AUTOTUNE|FREEZING)"
    r"|NCCL_(?!HOSTID|COMM_ID|TOPO_FILE|CONF_FILE|DEBUG_FILE|GRAPH_FILE|TOPO_DUMP_FILE|GRAPH_DUMP_FILE)\w+"
    r"|HOROVOD_(FUSION_THRESHOLD|CYCLE_TIME|HIERARCHICAL_\w+|AUTOTUNE)|MXNET_\w+|XLA_FLAGS|TF_XLA_FLAGS"
)
"""Variables that change how fast a run is; no other one is recorded."""


def describe() -> dict[str, Any]:
    """The machine's and the code's part of a record's `environment`; what is not known is None."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain")
    return {
        "os": _os(),
        "kernel": platform.release(),
        "cpu": cpu_name(),
        "cpu_cores": cpu_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "commit": commit,
        "tree_clean": None if changes is None else not changes,
    }


def variables(environment: dict[str, str]) -> dict[str, str]:
    """The allow-listed variables of `environment`, scrubbed."""
    return {name: scrub(value) for name, value in sorted(environment.items()) if VARIABLES.fullmatch(name)}


def cpu_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_has_fp16() -> bool | None:
    """Whether the processor multiplies in half precision itself; None where that is not known."""
    x86, arm = _cpuinfo("flags"), _cpuinfo("Features")
    if x86:
        return not {"avx512_fp16", "amx_fp16"}.isdisjoint(x86.split())
    return "asimdhp" in arm.split() if arm else None


def nvidia_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else None


def peak_resident_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpuinfo(key: str) -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    found = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _os() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError, AttributeError):
        return platform.system()


def _git(*arguments: str) -> str | None:
    """git's answer about the folder this file lies in; None where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

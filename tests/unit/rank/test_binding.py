"""Ranks are bound to the NUMA nodes of their GPUs. A real process is bound; nvidia-smi and /sys are replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from process_helpers import needs

GPUS = "0, GPU-aa11, 00000000:17:00.0\n1, GPU-bb22, 00000000:B3:00.0\n"
BIND = """
import os, sys, threading
from pathlib import Path
from throughline.workloads import Unsupported
from throughline.rank import binding
before, stop = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: (before.set(), stop.wait()))
other.start(); before.wait()
try:
    binding.to_numa_node(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    threads = [other.native_id, threading.get_native_id()]
    print(*[sorted(os.sched_getaffinity(thread)) for thread in threads])
except Unsupported as refused:
    print(refused)
stop.set()
"""


def bind(folder: Path, kind: str = "cuda", device: int = 1, nodes: str = "01", **variables: str) -> str:
    """Start a process that binds itself, on a machine with two GPUs at two NUMA nodes. Return what it can use, or why
    it could not bind itself."""
    cores = sorted(os.sched_getaffinity(0))
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{GPUS}'\n")
    (folder / "nvidia-smi").chmod(0o755)
    for node, (core, place) in enumerate(zip(cores, ("0000:17:00.0", "0000:b3:00.0"), strict=False)):
        (folder / f"devices/system/node/node{node}").mkdir(parents=True)
        (folder / f"devices/system/node/node{node}/cpulist").write_text(f"{core}\n")
        (folder / f"bus/pci/devices/{place}").mkdir(parents=True)
        (folder / f"bus/pci/devices/{place}/numa_node").write_text(f"{nodes[node] if nodes != 'unknown' else -1}\n")
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", BIND, kind, str(device), str(folder)]
    done = subprocess.run(command, env=os.environ | path | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("device", "visible", "node"), [(0, None, 0), (1, None, 1), (0, "1", 1), (1, "GPU-bb, GPU-aa", 0)]
)
def test_a_rank_is_bound_to_the_node_of_its_gpu(tmp_path: Path, device: int, visible: str | None, node: int) -> None:
    """All of its threads are bound, also those that already exist."""
    cores = sorted(os.sched_getaffinity(0))
    needs(len(cores) > 1, "two cores")
    variables = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    assert bind(tmp_path, device=device, **variables) == f"{[cores[node]]} {[cores[node]]}"


def test_what_cannot_be_bound_is_unsupported(tmp_path: Path) -> None:
    needs(len(os.sched_getaffinity(0)) > 1, "two cores")
    assert "this run is on the processor" in bind(tmp_path / "a", "cpu")
    assert "does not say at which NUMA node GPU 1 is" in bind(tmp_path / "b", nodes="unknown")
    assert "does not say at which NUMA node GPU 0 is" in bind(tmp_path / "c", device=0, CUDA_VISIBLE_DEVICES="MIG-cc")

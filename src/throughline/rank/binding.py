"""Bind a rank to the cores that are nearest to its GPU. Standard library only."""

import os
import subprocess
from pathlib import Path

from throughline.workloads import Unsupported

LIST_GPUS = ["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader"]
"""Ranks run with CUDA_DEVICE_ORDER=PCI_BUS_ID, so CUDA numbers the GPUs as nvidia-smi does."""


def to_numa_node(kind: str, device: int, system: Path = Path("/sys")) -> None:
    """Bind all threads of this process to the NUMA node of its GPU. `device` is its number among the visible GPUs.

    With one NUMA node there is nothing to bind. Raise Unsupported if the system does not name the GPU's NUMA node.
    """
    if kind != "cuda":
        bound = "runs.binding: numa binds a rank to the NUMA node of its GPU"
        raise Unsupported(f"{bound}, and this run is on the processor")
    nodes = system / "devices/system/node"
    if len(list(nodes.glob("node[0-9]*"))) < 2:
        return
    try:
        node = int((system / "bus/pci/devices" / _address(device) / "numa_node").read_text())
        near = _cores((nodes / f"node{node}" / "cpulist").read_text())
    except (OSError, ValueError, subprocess.SubprocessError):
        raise Unsupported(f"the system does not say at which NUMA node GPU {device} is (runs.binding: numa)") from None
    if not (cores := near & os.sched_getaffinity(0)):
        raise Unsupported(f"GPU {device} is at NUMA node {node}, and this process may use none of its cores")
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def _address(device: int) -> str:
    """Return a GPU's PCI address in the form of /sys. Raise ValueError or a SubprocessError if nvidia-smi has none."""
    listed = subprocess.run(LIST_GPUS, capture_output=True, text=True, timeout=60, check=True).stdout
    gpus = [[part.strip() for part in line.split(",")] for line in listed.splitlines()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    name = visible.split(",")[device].strip() if visible else str(device)
    for index, uuid, address in gpus:
        if name == index or (name.startswith("GPU-") and uuid.startswith(name)):
            domain, _, rest = address.lower().partition(":")
            return f"{int(domain, 16):04x}:{rest}"
    raise ValueError(f"nvidia-smi lists no GPU {name}")


def _cores(text: str) -> set[int]:
    """Return the numbers in a list such as `0-3,8-11`."""
    spans = [part.partition("-") for part in text.strip().split(",")]
    return {core for first, _, last in spans for core in range(int(first), int(last or first) + 1)}

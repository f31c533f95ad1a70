"""Which facts may explain that a device or a node is slow, and which figures each of them explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bad = Literal["low", "high", "other"]
Part = Literal["GPU", "GPU memory", "PCIe", "NVLink", "host", "host memory", "network", "software", "disk"]
OF_GPU: dict[str, frozenset[Part]] = {
    "step": frozenset({"GPU", "GPU memory", "PCIe", "host", "host memory", "software"}),
    "matmul": frozenset({"GPU", "GPU memory", "software"}),
    "memory": frozenset({"GPU", "GPU memory", "software"}),
    "copies": frozenset({"PCIe", "host memory", "software"}),
    "all-reduce": frozenset({"NVLink", "PCIe", "host", "software"}),
}
"""Map each measurement on a GPU to the parts of a node that it needs."""
FAULTY = "faulty memory"
OF_CPU: frozenset[Part] = frozenset({"host", "host memory", "software"})
THROTTLES = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown (temperature or power)",
    "sw_thermal_slowdown": "temperature, as the driver sees it",
    "hw_thermal_slowdown": "temperature, as the hardware sees it",
    "hw_power_brake_slowdown": "power brake of the machine",
    "applications_clocks_setting": "a clock that somebody has set",
    "sync_boost": "sync boost: it waits for the slowest GPU of its group",
    "display_clock_setting": "a clock for a display",
}
"""The reasons of NVIDIA's driver for a lower clock, in words. An idle GPU is none."""


@dataclass(frozen=True)
class Fact:
    """A fact that may explain slowness.

    of: where it is in a record: `telemetry` and `hardware` have the parts `device` and `machine`, `software` is the
    environment, and `settings` what was built; key: its name there; part: what of a node it is about, so that it
    explains only figures that need this part; bad: how it explains slowness; least: the smallest difference that
    counts, as a share of the peers' value or, if absolute, in its unit; why: what it explains; same_index: only devices
    with the same index on other nodes are its peers, because a slot decides it.
    """

    of: str
    key: str
    words: str
    part: Part
    bad: Bad
    unit: str = ""
    least: float = 0.02
    absolute: bool = False
    why: str | None = None
    same_index: bool = False


FACTS = (
    Fact("telemetry.device", "throttle_reasons", "reason for a lower clock", "GPU", "other"),
    Fact("telemetry.device", "sm_clock_mhz", "clock", "GPU", "low", "MHz"),
    Fact("telemetry.device", "memory_clock_mhz", "memory clock", "GPU memory", "low", "MHz"),
    Fact("hardware.device", "power_limit_enforced_w", "power limit", "GPU", "low", "W", 0.01, why="lower power limit"),
    Fact("hardware.device", "power_limit_w", "power limit that is set", "GPU", "low", "W", 0.01,
         why="lower power limit"),
    Fact("hardware.device", "sm_clock_set_mhz", "clock that is set", "GPU", "low", "MHz", why="lower clock setting"),
    Fact("hardware.device", "memory_clock_set_mhz", "memory clock that is set", "GPU memory", "low", "MHz"),
    Fact("telemetry.device", "temperature_c", "temperature", "GPU", "high", "°C", 8, True),
    Fact("hardware.device", "pcie_width", "PCIe width", "PCIe", "low", "lanes", why="fewer PCIe lanes"),
    Fact("hardware.device", "pcie_generation", "PCIe generation", "PCIe", "low", why="slower PCIe"),
    Fact("hardware.device", "pcie_replays", "PCIe replays", "PCIe", "high", least=10, absolute=True,
         why="faults on PCIe"),
    Fact("hardware.device", "nvlinks", "active NVLinks", "NVLink", "low", why="an NVLink is down"),
    Fact("hardware.device", "ecc", "ECC", "GPU memory", "other"),
    Fact("hardware.device", "mig", "MIG mode", "GPU", "other", why="MIG mode"),
    Fact("hardware.device", "ecc_uncorrected_ever", "uncorrected ECC errors", "GPU memory", "high", "", 1, True,
         FAULTY),
    Fact("hardware.device", "ecc_uncorrected", "recent uncorrected ECC errors", "GPU memory", "high", "", 1, True,
         FAULTY),
    Fact("hardware.device", "ecc_corrected", "corrected ECC errors", "GPU memory", "high", "", 10, True),
    Fact("hardware.device", "rows_remapped_uncorrected", "remapped rows (uncorrected)", "GPU memory", "high", "", 1,
         True, FAULTY),
    Fact("hardware.device", "rows_pending", "rows wait to be remapped", "GPU memory", "other", why=FAULTY),
    Fact("hardware.device", "rows_failed", "remapping of rows failed", "GPU memory", "other", why=FAULTY),
    Fact("hardware.device", "pages_retired", "retired pages", "GPU memory", "high", "", 1, True, FAULTY),
    Fact("hardware.device", "name", "model of the device", "GPU", "other", why="another device"),
    Fact("hardware.machine", "cpu_quota_cores", "processor quota", "host", "low", "cores",
         why="quota of its control group"),
    Fact("hardware.machine", "cpu_cores", "processor cores", "host", "low", why="fewer cores"),
    Fact("telemetry.machine", "cpu_others_share", "processor time of other processes", "host", "high", "%", 5, True,
         "other processes"),
    Fact("telemetry.machine", "cpu_steal_share", "processor time taken by the host", "host", "high", "%", 2, True,
         "other virtual machines"),
    Fact("hardware.machine", "cpu_governor", "CPU governor", "host", "other", why="CPU governor"),
    Fact("hardware.machine", "cpu_clock_limit_mhz", "limit of the processor's clock", "host", "low", "MHz",
         why="limit of the processor's clock"),
    Fact("hardware.machine", "cpu_clock_mhz", "processor clock", "host", "low", "MHz", 0.05),
    Fact("hardware.machine", "cpu_boost", "processor boost", "host", "other", why="processor boost"),
    Fact("hardware.machine", "cpu_throttled", "times the processor was throttled", "host", "high", "", 10, True,
         "the processor's temperature"),
    Fact("hardware.machine", "memory_channels", "memory channels", "host memory", "low", why="fewer memory channels"),
    Fact("hardware.machine", "memory_bytes", "memory", "host memory", "low", "bytes", 0.01, why="less memory"),
    Fact("hardware.machine", "memory_errors_uncorrected", "uncorrected memory errors", "host memory", "high", "", 1,
         True, FAULTY),
    Fact("hardware.machine", "memory_errors_corrected", "corrected memory errors", "host memory", "high", "", 10, True),
    Fact("hardware.machine", "network_gbit_per_s", "speed of its network interfaces", "network", "low", "Gbit/s",
         why="slower network link"),
    Fact("hardware.machine", "infiniband_gbit_per_s", "speed of InfiniBand", "network", "low", "Gbit/s",
         why="slower InfiniBand link"),
    Fact("hardware.machine", "infiniband_ports", "active InfiniBand ports", "network", "low",
         why="an InfiniBand port is down"),
    Fact("hardware.device", "numa_node", "NUMA node of the GPU", "PCIe", "other", why="another NUMA node",
         same_index=True),
    Fact("hardware.machine", "numa_nodes", "NUMA nodes", "host memory", "other"),
    Fact("hardware.machine", "cpu", "processor", "host", "other", why="another processor"),
    Fact("hardware.machine", "transparent_hugepages", "transparent huge pages", "host memory", "other"),
    Fact("hardware.machine", "driver", "driver", "software", "other", why="another driver"),
    Fact("hardware.machine", "kernel", "kernel", "software", "other"),
    Fact("software", "torch", "PyTorch", "software", "other", why="another version of PyTorch"),
    Fact("software", "cuda", "CUDA", "software", "other", why="another version of CUDA"),
    Fact("software", "nccl", "NCCL", "software", "other", why="another version of NCCL"),
    Fact("settings", "file_system", "file system", "disk", "other", why="another file system"),
)  # fmt: skip
"""What explains most stands first."""


def needed(what: str, kind: str, on_cpu: bool) -> frozenset[Part]:
    """Return the parts of a node that a measurement needs. kind: of its place."""
    if what == "disk":
        return frozenset({"disk"})
    several: set[Part] = {"network"} if kind in ("pair", "link", "all") else set()
    if what == "step" and kind != "device":
        several.add("NVLink")
    return (OF_CPU if on_cpu else OF_GPU[what]) | several

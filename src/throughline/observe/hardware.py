"""Read what may explain a slow node: clocks, limits, links and faults of its processors, memory, network and GPUs.

The facts have no names of hosts, addresses or serial numbers. A fact that the system does not show to a user without
root is None, with a reason. The sampler reads them once, right after the timed window: the devices still work then, and
an idle GPU would show a slower link.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from throughline import gpus
from throughline.messages import Message
from throughline.observe import environment
from throughline.observe.environment import content
from throughline.observe.telemetry_cards import Cards

try:
    import pynvml as nvml
except ImportError:
    nvml = None

Question = Callable[[], Any]

UNKNOWN_SPEED = 2**31 - 1
"""Some drivers state this speed in Mbit/s if they do not know one."""
MAC = re.compile(r"(?<=[a-z])([0-9a-f]{12})$")
"""The address in the name of an interface that is named after its address, such as `enx0123456789ab`."""
NO_EDAC = "no driver counts errors of the memory (EDAC)"
NO_CPUFREQ = "the system shows no clocks of its processors (often so in virtual machines)"


class Hardware(Message):
    """The facts of one node. reasons: why a fact is None, by dotted keys: `machine.<fact>`, `devices.<index>.<fact>`.

    devices: the GPUs of the node's ranks, in the order of the ranks.
    """

    node: int
    machine: dict[str, Any]
    devices: list[dict[str, Any]]
    reasons: dict[str, str]


def read(node: int, cards: Cards, root: Path = Path("/")) -> Hardware:
    """Return the facts of this node and of the GPUs in `cards`. `root` is another root of /proc and /sys in tests."""
    machine, absent = machine_facts(root)
    reasons = {f"machine.{name}": reason for name, reason in absent.items()}
    devices = []
    for index, (card, known) in enumerate(zip(cards.cards, cards.facts, strict=True)):
        facts, why = facts_of(card.handle, root)
        devices.append({**known, **facts})
        why = {name: reason for name, reason in card.reasons.items() if name in known} | why
        reasons |= {f"devices.{index}.{name}": reason for name, reason in why.items()}
    if cards.reason:
        reasons["devices"] = cards.reason
    return Hardware(node, machine, devices, reasons)


def machine_facts(root: Path = Path("/")) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the facts of this machine, and the reason for each that is None."""
    described = environment.machine()
    facts = {
        **{name: described[name] for name in ("cpu", "cpu_cores", "cpu_quota_cores", "numa_nodes", "kernel")},
        "driver": gpus.driver(),
        "transparent_hugepages": described["transparent_hugepages"],
        **_clocks(root / "sys/devices/system/cpu"),
        "memory_bytes": described["memory_bytes"],
        **_memory(root / "sys/devices/system/edac/mc"),
        "network": list(_interfaces(root / "sys/class/net")) or None,
        "infiniband": list(_ports(root / "sys/class/infiniband")) or None,
    }
    absent = {
        "cpu_quota_cores": "no control group limits it",
        "driver": "there is no driver of NVIDIA",
        "network": "no interface but loopback is up",
        "infiniband": "no InfiniBand device",
        "cpu_throttled": "the system does not count it",
        **dict.fromkeys(("memory_channels", "memory_errors_corrected", "memory_errors_uncorrected"), NO_EDAC),
        **dict.fromkeys(("cpu_governor", "cpu_clock_mhz", "cpu_clock_limit_mhz", "cpu_clock_most_mhz"), NO_CPUFREQ),
        "cpu_boost": "the system does not say",
    }
    return facts, {name: absent.get(name, "the system does not say") for name, fact in facts.items() if fact is None}


def _clocks(cpus: Path) -> dict[str, Any]:
    """Return governor, clocks and limits of all processors.

    The limit is the lowest among them, the highest possible clock is the highest, and the present clock is the median.
    """

    def all_of(name: str) -> list[str]:
        return [text for path in cpus.glob(f"cpu[0-9]*/{name}") if (text := content(path))]

    def mhz(name: str, choose: Callable[[Iterable[float]], float]) -> float | None:
        values = [int(text) / 1000 for text in all_of(f"cpufreq/{name}") if text.isdigit()]
        return choose(values) if values else None

    throttled = [int(text) for text in all_of("thermal_throttle/core_throttle_count") if text.isdigit()]
    boost, turbo_is_off = content(cpus / "cpufreq/boost"), content(cpus / "intel_pstate/no_turbo")
    return {
        "cpu_governor": ", ".join(sorted(set(all_of("cpufreq/scaling_governor")))) or None,
        "cpu_clock_mhz": mhz("scaling_cur_freq", statistics.median),
        "cpu_clock_limit_mhz": mhz("scaling_max_freq", min),
        "cpu_clock_most_mhz": mhz("cpuinfo_max_freq", max),
        "cpu_boost": boost == "1" if boost else turbo_is_off == "0" if turbo_is_off else None,
        "cpu_throttled": sum(throttled) if throttled else None,
    }


def _memory(controllers: Path) -> dict[str, Any]:
    """Return how many channels have a module, and the errors of all controllers, where the kernel counts them (EDAC).

    Everybody may read these files if the board's driver is loaded.
    """

    def count(name: str) -> int | None:
        counts = [int(text) for path in controllers.glob(f"mc*/{name}") if (text := content(path) or "").isdigit()]
        return sum(counts) if counts else None

    places = [(path.parent.parent.name, content(path) or "") for path in controllers.glob("mc*/*/dimm_location")]
    channels = {(controller, text.split(" slot")[0]) for controller, text in places if text.startswith("channel")}
    return {
        "memory_channels": len(channels) or None,
        "memory_errors_corrected": count("ce_count"),
        "memory_errors_uncorrected": count("ue_count"),
    }


def _interfaces(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the network interfaces that are up, without loopback. If there are devices, virtual ones are left out."""
    up = [path for path in sorted(folder.glob("*")) if path.name != "lo" and content(path / "carrier") == "1"]
    for path in [path for path in up if (path / "device").exists()] or up:
        speed = content(path / "speed") or ""
        known = speed.isdigit() and 0 < int(speed) < UNKNOWN_SPEED
        yield {"name": MAC.sub("", path.name), "gbit_per_s": int(speed) / 1000 if known else None}


def _ports(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the ports of InfiniBand (and RoCE) devices with their rate and state."""
    for port in sorted(folder.glob("*/ports/*")):
        state = (content(port / "state") or "").partition(": ")[2].lower()
        yield {
            "name": f"{port.parent.parent.name}/{port.name}",
            "gbit_per_s": gbit_per_s(port),
            "state": state or None,
            "link_layer": content(port / "link_layer"),
        }


def gbit_per_s(port: Path) -> float | None:
    """Return the rate of an InfiniBand port, from `100 Gb/sec (4X EDR)`; None if it does not say."""
    rate = re.match(r"([\d.]+) Gb/sec", content(port / "rate") or "")
    return float(rate[1]) if rate else None


def facts_of(handle: Any, root: Path = Path("/")) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the facts of a GPU, and the reason for each that is None."""
    answers: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, question in _questions(handle, root).items():
        try:
            answers[name] = question()
        except (nvml.NVMLError, OSError, ValueError) as error:
            answers[name] = None
            reasons[name] = f"NVML: {error}" if isinstance(error, nvml.NVMLError) else str(error)
    return answers, reasons


def _questions(handle: Any, root: Path) -> dict[str, Question]:
    """Return the questions about links, limits of the temperature, faults of the memory, and the NUMA node.

    Counts of faults are since the driver was loaded, or ever.
    """
    limit = nvml.nvmlDeviceGetTemperatureThreshold

    def ecc(kind: str, since: str) -> Question:
        wanted = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        return lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, wanted, getattr(nvml, f"NVML_{since}_ECC"))

    def rows(index: int, kind: type) -> Question:
        return lambda: kind(nvml.nvmlDeviceGetRemappedRows(handle)[index])

    causes = ("MULTIPLE_SINGLE_BIT_ECC_ERRORS", "DOUBLE_BIT_ECC_ERROR")
    return {
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "pcie_generation_most": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "pcie_width_most": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        "pcie_replays": lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle),
        "nvlinks": lambda: _nvlinks(handle),
        "temperature_slowdown_c": lambda: limit(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        "temperature_most_c": lambda: limit(handle, nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
        "ecc_corrected": ecc("CORRECTED", "VOLATILE"),
        "ecc_uncorrected": ecc("UNCORRECTED", "VOLATILE"),
        "ecc_corrected_ever": ecc("CORRECTED", "AGGREGATE"),
        "ecc_uncorrected_ever": ecc("UNCORRECTED", "AGGREGATE"),
        "rows_remapped_corrected": rows(0, int),
        "rows_remapped_uncorrected": rows(1, int),
        "rows_pending": rows(2, bool),
        "rows_failed": rows(3, bool),
        "pages_retired": lambda: sum(
            len(nvml.nvmlDeviceGetRetiredPages(handle, getattr(nvml, f"NVML_PAGE_RETIREMENT_CAUSE_{cause}")))
            for cause in causes
        ),
        "numa_node": lambda: _numa_node(handle, root),
    }


def _nvlinks(handle: Any) -> list[bool]:
    """Return for each NVLink of the GPU whether it is active. Raise NVMLError if the GPU has none."""
    states: list[bool] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError:
            if not link:
                raise
            break  # the GPU has no more
    return states


def _numa_node(handle: Any, root: Path) -> int:
    """Return the NUMA node of the GPU's PCIe slot. Raise ValueError if the system does not say."""
    bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    name = (bus.decode() if isinstance(bus, bytes) else bus).lower()
    node = content(root / "sys/bus/pci/devices" / name[-12:] / "numa_node")
    if node is None or not node.isdigit():
        raise ValueError(f"the system does not say: {'the slot belongs to no node' if node else 'no file numa_node'}")
    return int(node)

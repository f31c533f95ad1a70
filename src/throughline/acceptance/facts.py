"""What may explain that a device or a node is slow: facts in its records that its peers do not share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from throughline import statistics
from throughline.acceptance.measured import Run
from throughline.numbers import reading
from throughline.records.acceptance import DifferingFact

Value = float | str
Bad = Literal["low", "high", "other"]
MAJORITY = 0.75
"""A text differs from the peers' only if this share of them have the same one."""
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

    of: where it is in a record: `telemetry` and `hardware` have the parts `device` and `machine`, and `software` is the
    environment; key: its name there; bad: how it explains slowness; least: the smallest difference that counts, as a
    share of the peers' value or, if absolute, in its unit; why: what it explains; same_index: only devices with the
    same index on other nodes are its peers, because a slot decides it.
    """

    of: str
    key: str
    words: str
    bad: Bad
    unit: str = ""
    least: float = 0.02
    absolute: bool = False
    why: str | None = None
    same_index: bool = False


FACTS = (
    Fact("telemetry.device", "throttle_reasons", "reasons for a lower clock", "other"),
    Fact("telemetry.device", "sm_clock_mhz", "clock", "low", "MHz"),
    Fact("telemetry.device", "memory_clock_mhz", "memory clock", "low", "MHz"),
    Fact("hardware.device", "power_limit_enforced_w", "power limit", "low", "W", 0.01, why="lower power limit"),
    Fact("hardware.device", "power_limit_w", "power limit that is set", "low", "W", 0.01, why="lower power limit"),
    Fact("hardware.device", "sm_clock_set_mhz", "clock that is set", "low", "MHz", why="lower clock setting"),
    Fact("hardware.device", "memory_clock_set_mhz", "memory clock that is set", "low", "MHz"),
    Fact("telemetry.device", "temperature_c", "temperature", "high", "°C", 8, True),
    Fact("hardware.device", "pcie_width", "PCIe width", "low", "lanes", why="fewer PCIe lanes"),
    Fact("hardware.device", "pcie_generation", "PCIe generation", "low", why="slower PCIe"),
    Fact("hardware.device", "pcie_replays", "PCIe replays", "high", least=10, absolute=True, why="faults on PCIe"),
    Fact("hardware.device", "nvlinks", "active NVLinks", "low", why="an NVLink is down"),
    Fact("hardware.device", "ecc", "ECC", "other"),
    Fact("hardware.device", "mig", "MIG mode", "other", why="MIG mode"),
    Fact("hardware.device", "ecc_uncorrected_ever", "uncorrected ECC errors", "high", "", 1, True, "faulty memory"),
    Fact("hardware.device", "ecc_uncorrected", "recent uncorrected ECC errors", "high", "", 1, True, "faulty memory"),
    Fact("hardware.device", "ecc_corrected", "corrected ECC errors", "high", "", 10, True),
    Fact("hardware.device", "rows_remapped_uncorrected", "remapped rows (uncorrected)", "high", "", 1, True,
         "faulty memory"),
    Fact("hardware.device", "rows_pending", "rows wait to be remapped", "other", why="faulty memory"),
    Fact("hardware.device", "rows_failed", "remapping of rows failed", "other", why="faulty memory"),
    Fact("hardware.device", "pages_retired", "retired pages", "high", "", 1, True, "faulty memory"),
    Fact("hardware.device", "name", "model of the device", "other", why="another device"),
    Fact("hardware.machine", "cpu_quota_cores", "processor quota", "low", "cores", why="quota of its control group"),
    Fact("hardware.machine", "cpu_cores", "processor cores", "low", why="fewer cores"),
    Fact("telemetry.machine", "cpu_others_share", "processor time of other processes", "high", "%", 5, True,
         "other processes"),
    Fact("telemetry.machine", "cpu_steal_share", "processor time taken by the host", "high", "%", 2, True,
         "other virtual machines"),
    Fact("hardware.machine", "cpu_governor", "CPU governor", "other", why="CPU governor"),
    Fact("hardware.machine", "cpu_clock_limit_mhz", "limit of the processor's clock", "low", "MHz",
         why="limit of the processor's clock"),
    Fact("hardware.machine", "cpu_clock_mhz", "processor clock", "low", "MHz", 0.05),
    Fact("hardware.machine", "cpu_boost", "processor boost", "other", why="processor boost"),
    Fact("hardware.machine", "cpu_throttled", "times the processor was throttled", "high", "", 10, True,
         "the processor's temperature"),
    Fact("hardware.machine", "memory_speed_mt_per_s", "speed of the memory", "low", "MT/s", why="slower memory"),
    Fact("hardware.machine", "memory_channels", "memory channels", "low", why="fewer memory channels"),
    Fact("hardware.machine", "memory_modules", "memory modules", "low", why="fewer memory modules"),
    Fact("hardware.machine", "memory_bytes", "memory", "low", "bytes", 0.01, why="less memory"),
    Fact("hardware.machine", "memory_errors_uncorrected", "uncorrected memory errors", "high", "", 1, True,
         "faulty memory"),
    Fact("hardware.machine", "memory_errors_corrected", "corrected memory errors", "high", "", 10, True),
    Fact("hardware.machine", "network_gbit_per_s", "speed of its network interfaces", "low", "Gbit/s",
         why="slower network link"),
    Fact("hardware.machine", "infiniband_gbit_per_s", "speed of InfiniBand", "low", "Gbit/s",
         why="slower InfiniBand link"),
    Fact("hardware.machine", "infiniband_ports", "active InfiniBand ports", "low", why="an InfiniBand port is down"),
    Fact("hardware.device", "numa_node", "NUMA node of the GPU", "other", why="another NUMA node",
         same_index=True),
    Fact("hardware.machine", "numa_nodes", "NUMA nodes", "other"),
    Fact("hardware.machine", "cpu", "processor", "other", why="another processor"),
    Fact("hardware.machine", "transparent_hugepages", "transparent huge pages", "other"),
    Fact("hardware.machine", "driver", "driver", "other", why="another driver"),
    Fact("hardware.machine", "kernel", "kernel", "other"),
    Fact("software", "torch", "PyTorch", "other", why="another version of PyTorch"),
    Fact("software", "cuda", "CUDA", "other", why="another version of CUDA"),
    Fact("software", "nccl", "NCCL", "other", why="another version of NCCL"),
)  # fmt: skip
"""What explains most stands first."""


def different(
    here: Sequence[Run], peers: Sequence[Sequence[Run]], node: int, of_peers: Sequence[int], alike: Sequence[bool]
) -> list[DifferingFact]:
    """Return the facts that differ here from all peers, what explains most first.

    here: the runs of the slow place; peers: those of each other place; node, of_peers: the node of each place, whose
    part of a record is asked; alike: whether each other place is a device with the same index.
    """
    own = _facts([_of(run, node) for run in here])
    others = [_facts([_of(run, other) for run in runs]) for runs, other in zip(peers, of_peers, strict=True)]
    same = [values for values, is_alike in zip(others, alike, strict=True) if is_alike]
    found = (_difference(fact, own, same if fact.same_index else others) for fact in FACTS)
    return [difference for difference in found if difference]


def _of(run: Run, node: int) -> dict[str, Value]:
    """Return all known facts of a node in one record, by the fact's place and key."""
    index = run.measurement.place.nodes.index(node)
    record = run.record
    values: dict[str, Value] = {}
    for observed in record.telemetry or ():
        if observed.node == index:
            values |= _telemetry([device.model_dump() for device in observed.devices], observed.machine)
    for hardware in record.hardware or ():
        if hardware.node == index:
            machine = hardware.machine.model_dump()
            devices = [device.model_dump() for device in hardware.devices]
            values |= {f"hardware.machine.{name}": value for name, value in _plain(_with_links(machine))}
            values |= {f"hardware.device.{name}": value for name, value in _worst(devices)}
    if len(run.measurement.place.nodes) == 1:
        software = record.environment.get("framework")
        values |= {f"software.{name}": value for name, value in _plain(software if isinstance(software, dict) else {})}
    return values


def _telemetry(devices: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> dict[str, Value]:
    """Return the means over the window. Of several devices, the worst one counts."""
    means = [
        {name: part["mean"] for name, part in device.items() if isinstance(part, dict) and "mean" in part}
        for device in devices
    ]
    values: dict[str, Value] = {f"telemetry.device.{name}": value for name, value in _worst(means)}
    reasons = [device["throttle_reasons"] for device in devices if device.get("throttle_reasons") is not None]
    if reasons:
        named = {THROTTLES[name] for names in reasons for name in names if name in THROTTLES}
        values["telemetry.device.throttle_reasons"] = ", ".join(sorted(named)) or "none"
    for name in ("cpu_others_share", "cpu_steal_share"):
        if machine.get(name) is not None:
            values[f"telemetry.machine.{name}"] = 100 * machine[name].mean
    return values


def _with_links(machine: dict[str, Any]) -> dict[str, Any]:
    """Add the speeds of a node's network as numbers: the sums of its interfaces, and of its active ports."""
    speeds = [card["gbit_per_s"] for card in machine.get("network") or () if card["gbit_per_s"]]
    ports = [port for port in machine.get("infiniband") or () if (port["state"] or "").upper().endswith("ACTIVE")]
    rates = [port["gbit_per_s"] for port in ports if port["gbit_per_s"]]
    return machine | {
        "network_gbit_per_s": sum(speeds) or None,
        "infiniband_gbit_per_s": sum(rates) or None,
        "infiniband_ports": len(ports) if machine.get("infiniband") else None,
    }


def _plain(values: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Yield the values that can be compared. A truth value becomes a word, and a list of them counts the true ones."""
    for name, value in values.items():
        if isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, int | float):
            yield name, float(value)
        elif isinstance(value, str):
            yield name, value
        elif isinstance(value, list) and value and all(isinstance(one, bool) for one in value):
            yield name, float(sum(value))


def _worst(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Value]]:
    """Yield the facts of one device; of several devices, the worst number, and a text that all share."""
    plain = [dict(_plain(device)) for device in devices]
    high = {fact.key for fact in FACTS if fact.bad == "high"}
    for name in dict.fromkeys(name for device in plain for name in device):
        values = [device[name] for device in plain if name in device]
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) == len(values):
            yield name, (max if name in high else min)(numbers)
        elif len(set(values)) == 1:
            yield name, values[0]


def _facts(repeats: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """Return the median of each number over the repeats, and the most frequent text."""
    facts: dict[str, Value] = {}
    for name in dict.fromkeys(name for values in repeats for name in values):
        values = [one[name] for one in repeats if name in one]
        numbers = [value for value in values if isinstance(value, float)]
        middle = statistics.median(numbers)
        facts[name] = middle if middle is not None and len(numbers) == len(values) else _usual(values)[0]
    return facts


def _usual(values: Iterable[Value]) -> tuple[Value, float]:
    """Return the most frequent value and its share."""
    counted = Counter(values)
    value, count = counted.most_common(1)[0]
    return value, count / counted.total()


def _difference(fact: Fact, own: Mapping[str, Value], others: Sequence[Mapping[str, Value]]) -> DifferingFact | None:
    """Return how a fact differs from that of all peers; None if it does not, or if it is not known."""
    name = f"{fact.of}.{fact.key}"
    here, theirs = own.get(name), [values[name] for values in others if name in values]
    if here is None or not theirs:
        return None
    if fact.bad == "other":
        usual, share = _usual(theirs)
        if here == usual or share < MAJORITY:
            return None
        why = str(here) if fact.key == "throttle_reasons" and here != "none" else fact.why
        return DifferingFact(fact=fact.words, here=_text(here, fact), others=_text(usual, fact), why=why)
    numbers = [value for value in theirs if isinstance(value, float)]
    middle = statistics.median(numbers)
    if not isinstance(here, float) or middle is None:
        return None
    beyond = here - max(numbers) if fact.bad == "high" else min(numbers) - here
    needed = fact.least if fact.absolute else fact.least * abs(middle)
    if beyond <= 0 or abs(here - middle) < needed:
        return None
    return DifferingFact(fact=fact.words, here=_text(here, fact), others=_text(middle, fact), why=fact.why)


def _text(value: Value, fact: Fact) -> str:
    if isinstance(value, str):
        return value
    if fact.unit == "bytes":
        return f"{value / 2**30:,.0f} GiB"
    whole: Callable[[float], str] = lambda number: f"{number:,.0f}"  # noqa: E731
    number = whole(value) if value == round(value) or abs(value) >= 100 else reading(value)
    return f"{number} {fact.unit}".strip()

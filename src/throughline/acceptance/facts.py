"""What may explain that a place is slow: facts in its records that its peers do not share, and what each explains."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from throughline import statistics
from throughline.acceptance.measured import Measured, Run
from throughline.numbers import reading
from throughline.records.acceptance import DifferingFact, SlowFigure
from throughline.records.run import Interface, NodeHardware, NodeTelemetry
from throughline.study.acceptance import Place

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
    bad: Literal["low", "high", "other"]
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


Value = float | str | frozenset[str]
Owner = tuple[int, int | None]
"""Whose facts they are: a node, and the device of it that was measured alone."""
Trained = Mapping[tuple[int, int | None, int], Sequence[NodeTelemetry]]
"""The telemetry of training steps, by node, device and repeat."""
Item = TypeVar("Item")
WHILE_TRAINING = " while it trained"
MAJORITY = 0.75
"""A value differs from the peers' only if this share of them have the same text, or a better number."""
FAR = 3 * 1.4826
"""A number differs only if it is so many median absolute deviations from the peers' median: 3 standard deviations."""


def differing(
    measured: Measured, figure: SlowFigure, nodes: Sequence[int], slow: Iterable[Place]
) -> list[DifferingFact]:
    """Return the facts of a slow place that differ from those of its peers, in the records of one figure.

    Facts that explain the figure come first, what explains most before the others. nodes: whose facts are asked, of a
    pair both; slow: all slow places, which are no peers.
    """
    kind = "pair" if figure.kind == "link" else figure.kind
    runs = [run for run in measured.runs if (run.measurement.what, run.place.kind) == (figure.what, kind)]
    trained: Trained = {} if figure.what == "step" or all(map(_was_sampled, runs)) else _while_training(measured)
    if not any((node, run.place.device, run.measurement.spec.repeat) in trained for run in runs for node in run.nodes):
        trained = {}
    values = _values(runs, trained)
    owners = [(node, figure.place.device) for node in nodes]
    bad = {*owners, *((place.nodes[0], place.device) for place in slow if place.kind != "pair")}
    peers = {owner: facts for owner, facts in values.items() if owner not in bad}
    parts = needed(figure.what, kind, runs[0].measurement.spec.device == "cpu")
    differences = []
    for node, device in owners:
        of_node = f" (node {node})" if len(nodes) > 1 else ""
        for fact in sorted(FACTS, key=lambda fact: fact.part not in parts):
            here = values.get((node, device), {}).get(fact)
            theirs = [
                facts[fact]
                for (_, other), facts in peers.items()
                if fact in facts and (not fact.same_index or (device is not None and other == device))
            ]
            difference = _difference(fact, here, theirs)
            if difference:
                when = WHILE_TRAINING if trained and fact.of.startswith("telemetry") else ""
                why = difference.why if fact.part in parts else None
                differences.append(difference.model_copy(update={"fact": f"{fact.words}{when}{of_node}", "why": why}))
    return differences


def odd(measured: Measured) -> dict[int, list[DifferingFact]]:
    """Return the facts of each node that are worse than those of most others, though nothing of it may be slow.

    Only facts count that are a fault or a setting. Clocks, temperatures and counters of small events differ by chance.
    """
    runs = [run for run in measured.runs if run.place.kind == "node"]
    values = {node: facts for (node, _), facts in _values(runs, {}).items()}
    steady = [
        fact for fact in FACTS if fact.of.startswith(("hardware", "software")) and fact.why and not fact.same_index
    ]
    differences: dict[int, list[DifferingFact]] = {}
    for fact in [fact for fact in steady if fact.bad != "high" or fact.why == FAULTY]:
        for node, here in values.items():
            theirs = [facts[fact] for other, facts in values.items() if other != node and fact in facts]
            if len(theirs) > 1 and (difference := _difference(fact, here.get(fact), theirs)):
                differences.setdefault(node, []).append(difference)
    return differences


def _was_sampled(run: Run) -> bool:
    """Return whether telemetry has samples. The window of most measurements is too short for them."""
    return any(node.samples for node in run.record.telemetry)


def _while_training(measured: Measured) -> Trained:
    """Return the telemetry of the training steps of single devices and nodes."""
    return {
        (run.nodes[0], run.place.device, run.measurement.spec.repeat): run.record.telemetry
        for run in measured.runs
        if run.measurement.what == "step" and len(run.nodes) == 1 and _was_sampled(run)
    }


def _values(runs: Sequence[Run], trained: Trained) -> dict[Owner, dict[Fact, Value]]:
    """Return the facts of every owner over all repeats. trained: telemetry that takes the place of the runs' own."""
    values: dict[Owner, dict[Fact, list[Value]]] = {}
    for run in runs:
        device = run.place.device
        for index, node in enumerate(run.nodes):
            telemetry = [entry for entry in run.record.telemetry if entry.node == index]
            if trained:
                telemetry = [*trained.get((node, device, run.measurement.spec.repeat), ())]
            for fact, value in _of_run(run, index, telemetry).items():
                values.setdefault((node, device), {}).setdefault(fact, []).append(value)
    return {owner: {fact: _usual(repeats) for fact, repeats in facts.items()} for owner, facts in values.items()}


def _of_run(run: Run, index: int, telemetry: Sequence[NodeTelemetry]) -> dict[Fact, Value]:
    """Return the facts of the node that has this index in a run. Of several devices, the worst one counts."""
    hardware = [node for node in run.record.hardware or () if node.node == index]
    software = run.record.environment.get("framework")
    sources: dict[str, list[dict[str, Any]]] = {
        "telemetry.device": [_means(device.model_dump()) for node in telemetry for device in node.devices],
        "telemetry.machine": [
            {name: 100 * series.mean for name, series in node.machine.items() if series} for node in telemetry
        ],
        "hardware.device": [device for node in hardware for device in node.devices],
        "hardware.machine": [_with_links(node) for node in hardware],
        "settings": [run.record.settings or {}],
        "software": [software] if isinstance(software, dict) and len(run.nodes) == 1 else [],
    }
    values = {fact: _worst(fact, [source.get(fact.key) for source in sources[fact.of]]) for fact in FACTS}
    return {fact: value for fact, value in values.items() if value is not None}


def _means(device: Mapping[str, Any]) -> dict[str, Any]:
    """Return the means over the window, and the reasons for a lower clock."""
    means = {name: part["mean"] for name, part in device.items() if isinstance(part, dict) and "mean" in part}
    reasons = device.get("throttle_reasons")
    named = None if reasons is None else frozenset(THROTTLES[name] for name in reasons if name in THROTTLES)
    return means | {"throttle_reasons": named}


def _with_links(node: NodeHardware) -> dict[str, Any]:
    """Return a machine's facts, with the speeds of its network: the sums of its interfaces, and of its active ports."""
    speeds = [card.gbit_per_s for card in node.interfaces("network") if card.gbit_per_s]
    ports = active_ports(node)
    return node.machine | {
        "network_gbit_per_s": sum(speeds) or None,
        "infiniband_gbit_per_s": sum(port.gbit_per_s or 0 for port in ports) or None,
        "infiniband_ports": len(ports) if node.interfaces("infiniband") else None,
    }


def active_ports(node: NodeHardware) -> list[Interface]:
    """Return the ports of InfiniBand that can carry data."""
    return [port for port in node.interfaces("infiniband") if port.state == "active"]


def _worst(fact: Fact, values: Iterable[Any]) -> Value | None:
    """Return the worst number, a text that all share, or all reasons. A list of truth values counts the true ones."""
    plain = [value for value in map(_plain, values) if value is not None]
    numbers, sets = _of_type(plain, float), _of_type(plain, frozenset)
    if plain and len(numbers) == len(plain):
        return max(numbers) if fact.bad == "high" else min(numbers)
    if sets:
        return frozenset().union(*sets)
    return plain[0] if len(set(plain)) == 1 else None


def _plain(value: Any) -> Value | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return float(sum(value)) if value and all(isinstance(item, bool) for item in value) else None
    if isinstance(value, int | float):
        return float(value)
    return value if isinstance(value, str | frozenset) else None


def _usual(values: Sequence[Value]) -> Value:
    """Return the median of numbers over the repeats, the most frequent text, or the reasons of half of the repeats."""
    numbers, sets = _of_type(values, float), _of_type(values, frozenset)
    middle = statistics.median(numbers)
    if sets:
        return _shared(sets, 0.5)
    return middle if middle is not None and len(numbers) == len(values) else Counter(values).most_common(1)[0][0]


def _of_type(values: Iterable[Any], kind: type[Item]) -> list[Item]:
    return [value for value in values if isinstance(value, kind)]


def _shared(sets: Sequence[frozenset[str]], share: float) -> frozenset[str]:
    """Return what at least this share of the sets have."""
    counts = Counter(item for items in sets for item in items)
    return frozenset(item for item, count in counts.items() if count >= share * len(sets))


def _difference(fact: Fact, here: Value | None, theirs: Sequence[Value]) -> DifferingFact | None:
    """Return how a fact differs from that of most peers; None if it does not, or if it is not known."""
    if here is None or not theirs:
        return None
    others: Value | None
    why = fact.why
    if isinstance(here, frozenset):
        sets = _of_type(theirs, frozenset)
        lacking = Counter(reason for reasons in sets for reason in here - reasons)
        more = [reason for reason in sorted(here) if lacking[reason] >= MAJORITY * len(sets)]
        here = why = ", ".join(more)
        others = ", ".join(sorted(_shared(sets, 0.5))) or "none"
        differs = bool(more)
    elif fact.bad == "other":
        others, count = Counter(theirs).most_common(1)[0]
        differs = here != others and count >= MAJORITY * len(theirs)
    else:
        numbers = _of_type(theirs, float)
        others = statistics.median(numbers)
        differs = isinstance(here, float) and others is not None and _is_worse(fact, here, numbers, others)
    if not differs or others is None:
        return None
    return DifferingFact(fact=fact.words, here=_text(here, fact), others=_text(others, fact), why=why)


def _is_worse(fact: Fact, here: float, theirs: Sequence[float], middle: float) -> bool:
    """Return whether most peers have a better number, from which this one is far away. One odd peer hides nothing."""
    better = sum((here > other) if fact.bad == "high" else (here < other) for other in theirs)
    usual = FAR * (statistics.median_absolute_deviation(theirs) or 0.0)
    least = fact.least if fact.absolute else fact.least * abs(middle)
    return better >= MAJORITY * len(theirs) and abs(here - middle) >= max(least, usual)


def _text(value: Value, fact: Fact) -> str:
    if not isinstance(value, float):
        return str(value)
    if fact.unit == "bytes":
        return f"{value / 2**30:,.0f} GiB"
    number = f"{value:,.0f}" if value == round(value) or abs(value) >= 100 else reading(value)
    return f"{number} {fact.unit}".strip()

"""The sampler of one node: it samples the machine, the run's processes and its GPUs once a second.

The node's agent runs the sampler in a thread. Before the first sample, the sampler finds the faults of this node's GPUs
for which the run is refused. Ten times a second it looks at the progress of the first rank, and takes an additional
sample at each edge of the timed window. After the second edge it reads the facts of the hardware. At the end it writes
WORK/telemetry_<node>.json with raw counters and WORK/hardware_<node>.json, and nothing before that, so that it does not
use the disk while a run is timed. It needs the workflow's own environment, with psutil and nvidia-ml-py.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from throughline import messages, processes
from throughline.messages import GpuFault, LaunchPlan, NodeSamples, Reasons, Sample
from throughline.observe import hardware
from throughline.observe.hardware import Hardware
from throughline.observe.telemetry_cards import Cards
from throughline.rank import heartbeat

INTERVAL_S = 1.0
LOOK_S = 0.1
"""How often we look for an edge of the timed window."""
DISCOVER_S = 30.0
"""How often we look for new processes of the run. Each look reads the whole process table."""
INFINIBAND = {"infiniband_received_bytes": "port_rcv_data", "infiniband_sent_bytes": "port_xmit_data"}
"""Map each of our counters to the kernel's counter, which counts units of four bytes (sysfs-class-infiniband)."""
MEGABIT = 125_000
"""Bytes of a megabit."""


class Busiest:
    """A counter that grows with the fastest of several counters: the busiest disk or link limits a node."""

    def __init__(self) -> None:
        self.before: Mapping[str, float] = {}
        self.total = 0.0

    def add(self, counters: Mapping[str, float]) -> float | None:
        """Take the present values, and return the counter; None without any. A new or fallen value adds nothing."""
        if not counters:
            return None
        gains = (value - self.before[name] for name, value in counters.items() if name in self.before)
        self.total += max([0.0, *gains])
        self.before = counters
        return self.total


def disk_seconds() -> dict[str, float]:
    """Return the seconds in which each disk worked on at least one request (/proc/diskstats)."""
    every = psutil.disk_io_counters(perdisk=True, nowrap=False)
    return {name: disk.busy_time / 1000 for name, disk in every.items() if hasattr(disk, "busy_time")}


class Links:
    """The network links of a node: its interfaces whose speed the system states, without loopback, and InfiniBand's."""

    def __init__(self, ports: Iterable[Path] = ()) -> None:
        """ports: the folders of the counters of InfiniBand's ports."""
        speeds = {name: state.speed for name, state in psutil.net_if_stats().items() if name != "lo"}
        self.speeds = {name: float(speed * MEGABIT) for name, speed in speeds.items() if 0 < speed < 2**31}
        rates = {port: hardware.gbit_per_s(port.parent) for port in ports}
        self.ports = {port: rate * 1000 * MEGABIT for port, rate in rates.items() if rate}

    def seconds(self, interfaces: Mapping[str, Any]) -> dict[str, float]:
        """Return the seconds in which each link would have carried its bytes at full speed, by direction."""
        seconds: dict[str, float] = {}
        for name in self.speeds.keys() & interfaces.keys():
            seconds[f"{name} in"] = interfaces[name].bytes_recv / self.speeds[name]
            seconds[f"{name} out"] = interfaces[name].bytes_sent / self.speeds[name]
        for port, rate in self.ports.items():
            for counter in ("port_rcv_data", "port_xmit_data"):
                seconds[f"{port} {counter}"] = 4 * int((port / counter).read_text()) / rate  # it counts four bytes
        return seconds


class Machine:
    """Counters of the whole node (CPU seconds, bytes, seconds of busy disks and links), and its memory in use."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.ports = sorted(Path("/sys/class/infiniband").glob("*/ports/*/counters"))
        if not self.ports:
            self.reasons |= dict.fromkeys(INFINIBAND, "no InfiniBand device")
        self.disk, self.link, self.links = Busiest(), Busiest(), Links(self.ports)

    def read(self) -> dict[str, float | None]:
        cpu, memory = psutil.cpu_times(), psutil.virtual_memory()
        disk = psutil.disk_io_counters(nowrap=False)
        interfaces: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            interfaces |= psutil.net_io_counters(pernic=True, nowrap=False)
        loopback = interfaces.pop("lo", None)
        if disk is None:
            self.reasons |= dict.fromkeys(("disk_read_bytes", "disk_written_bytes"), "the system shows no disk")
        if loopback is None:
            self.reasons["loopback_bytes"] = "there is no interface lo"
        if not interfaces:
            names = ("network_received_bytes", "network_sent_bytes")
            self.reasons |= dict.fromkeys(names, "no interface but loopback")
        link_seconds, no_speed = partial(self.links.seconds, interfaces), "no network interface states its speed"
        return {
            "busy_s": cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq,
            "steal_s": cpu.steal,
            "memory_used_bytes": memory.total - memory.available,
            "memory_used_share": (memory.total - memory.available) / memory.total,
            "disk_busy_s": self._busy("disk_busy_s", self.disk, disk_seconds, "the system does not count it"),
            "network_busy_s": self._busy("network_busy_s", self.link, link_seconds, no_speed),
            "disk_read_bytes": disk.read_bytes if disk else None,
            "disk_written_bytes": disk.write_bytes if disk else None,
            "network_received_bytes": sum(card.bytes_recv for card in interfaces.values()) if interfaces else None,
            "network_sent_bytes": sum(card.bytes_sent for card in interfaces.values()) if interfaces else None,
            "loopback_bytes": loopback.bytes_sent if loopback else None,
            **{name: self._infiniband(name) for name in INFINIBAND},
        }

    def _busy(self, name: str, busiest: Busiest, read: Callable[[], Mapping[str, float]], reason: str) -> float | None:
        """Return a counter of busy seconds; None, with a reason, if the system does not have it."""
        try:
            seconds = busiest.add(read())
        except (OSError, RuntimeError, ValueError) as error:
            seconds, reason = None, type(error).__name__
        if seconds is None:
            self.reasons[name] = reason
        return seconds

    def _infiniband(self, name: str) -> float | None:
        """Return the bytes of all ports together; None if unknown."""
        try:
            return 4.0 * sum(int((port / INFINIBAND[name]).read_text()) for port in self.ports) if self.ports else None
        except (OSError, ValueError) as error:
            self.reasons[name] = type(error).__name__
            return None


class Processes:
    """The use of resources by all ranks and all descendants of the agent, also those that have ended, but not by us.

    Linux adds the time of a process that has ended to that of its parent. The disk counters of its end are lost.
    """

    COUNTERS = ("cpu_s", "disk_read_bytes", "disk_written_bytes")

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.reasons: dict[str, str] = {}
        self.known: dict[int, tuple[psutil.Process, dict[str, float]]] = {}
        self.parents: dict[int, int] = {}
        """Map each process that was ever known to its parent."""
        self.ended: list[dict[str, float]] = []

    def discover(self, ranks: Iterable[int]) -> None:
        """Find new processes. The ranks are named, because those of a starter are no descendants of the agent."""
        named = list(ranks)
        for pid in [*named, *processes.descendants(self.agent, *named)]:
            if pid not in self.known:
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(pid)
                    self.parents[pid] = process.ppid()
                    self.known[pid] = process, dict.fromkeys(self.COUNTERS, 0.0)

    def read(self) -> dict[str, float | None]:
        resident = threads = 0
        for pid, (process, counters) in list(self.known.items()):
            try:
                with process.oneshot():
                    cpu = process.cpu_times()
                    counters["cpu_s"] = cpu.user + cpu.system + cpu.children_user + cpu.children_system
                    resident += process.memory_info().rss
                    threads += process.num_threads()
                    self._read_disk(process, counters)
            except psutil.Error:
                del self.known[pid]
                if self.parents[pid] == self.agent or self.parents[pid] in self.parents:
                    counters["cpu_s"] = 0.0  # its parent has it
                self.ended.append(counters)
        used = self.ended + [counters for _, counters in self.known.values()]
        totals = {name: sum(counters[name] for counters in used) for name in self.COUNTERS}
        agent = psutil.Process(self.agent).cpu_times()
        totals["cpu_s"] += agent.children_user + agent.children_system
        return {**totals, **dict.fromkeys(self.reasons), "memory_bytes": resident, "threads": threads}

    def _read_disk(self, process: psutil.Process, counters: dict[str, float]) -> None:
        try:
            disk = process.io_counters()
        except (psutil.AccessDenied, AttributeError, RuntimeError, ValueError, OSError) as error:
            # If the system does not count this, psutil lacks the method, or finds the file empty or too short.
            for name in self.COUNTERS[1:]:
                self.reasons[name] = f"/proc/<pid>/io: {type(error).__name__}"
        else:
            counters["disk_read_bytes"] = disk.read_bytes
            counters["disk_written_bytes"] = disk.write_bytes


class Sampler:
    """The samples of a node, in a thread of its agent.

    folder, work: the folders of the agent and of the run; refused: the faults of the GPUs for which a run is refused.
    """

    def __init__(self, plan: LaunchPlan, node: int, folder: Path, work: Path) -> None:
        self.node, self.ranks, self.folder, self.work = node, plan.ranks_of(node), folder, work
        self.machine = Machine()
        self.processes = Processes(os.getpid())
        self.cards = Cards(plan)
        refused, self.warnings = self.cards.faults(plan.earlier_gpus)
        self.refused = refused + [GpuFault(text) for text in self.warnings if plan.strict]
        self.samples: list[Sample] = []
        self.hardware: Hardware | None = None
        self.phase, self.discovered = "start", 0.0

    def sample(self) -> None:
        now = time.monotonic()
        if now - self.discovered > DISCOVER_S or self.phase == "start":
            self.processes.discover(filter(None, (heartbeat.process_id(self._beat(rank)) for rank in self.ranks)))
            self.discovered = now
        cost = time.thread_time()
        self.samples.append(Sample(now, cost, self.machine.read(), self.processes.read(), self.cards.read()))

    def look(self) -> None:
        """Sample at an edge of the timed window. Right after its end, the devices still work: read their facts then."""
        if self.edge():
            self.sample()
            if self.phase != "training" and self.hardware is None:
                self.hardware = hardware.read(self.node, self.cards)

    def edge(self) -> bool:
        """True if this node's first rank has entered or left the timed window since the last look."""
        before, self.phase = self.phase, heartbeat.read(self._beat(self.ranks[0])).phase
        if before != self.phase and before not in ("warm-up", "training", "end"):  # more processes may exist now
            self.discovered = 0.0
        return before != self.phase and "training" in (before, self.phase)

    def _beat(self, rank: int) -> Path:
        return heartbeat.file(rank, self.folder, self.work)

    def run(self, closing: threading.Event) -> None:
        """Take samples until `closing` is set, and write them."""
        due = time.monotonic()
        while True:
            if time.monotonic() >= due:
                self.sample()
                due = max(due + INTERVAL_S, time.monotonic())
            else:
                self.look()
            if closing.wait(max(0.0, min(LOOK_S, due - time.monotonic()))):
                break
        self.look()  # since the last look, the rank may have left the window and ended
        messages.write(self.seen(), self.work / f"telemetry_{self.node}.json")
        read = self.hardware or hardware.read(self.node, self.cards)
        messages.write(read, self.work / f"hardware_{self.node}.json")

    def seen(self) -> NodeSamples:
        devices = [card.reasons for card in self.cards.cards]
        return NodeSamples(
            interval_s=INTERVAL_S,
            cpus=psutil.cpu_count() or 1,
            memory_bytes=psutil.virtual_memory().total,
            cards=self.cards.facts,
            warnings=self.warnings,
            reasons=Reasons(self.machine.reasons, self.processes.reasons, devices, self.cards.reason),
            samples=self.samples,
        )

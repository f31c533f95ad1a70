"""How busy a node's disks and network links are: counters of the seconds in which the busiest one was busy.

A node may have several disks and links. What limits it is the busiest one of the moment, so a counter grows between
two samples by the largest gain among them.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

MEGABIT = 125_000
"""Bytes of a megabit."""


class Busiest:
    """A counter that grows with the fastest of several counters."""

    def __init__(self) -> None:
        self.before: Mapping[str, float] = {}
        self.total = 0.0

    def add(self, counters: Mapping[str, float]) -> float:
        """Take the present values, and return the counter. A value that is new or has fallen adds nothing."""
        gains = (value - self.before[name] for name, value in counters.items() if name in self.before)
        self.total += max([0.0, *gains])
        self.before = counters
        return self.total


class Disks:
    """The seconds in which the busiest disk worked on at least one request (/proc/diskstats)."""

    def __init__(self) -> None:
        self.busiest = Busiest()

    def read(self) -> float | None:
        every = psutil.disk_io_counters(perdisk=True, nowrap=False)
        busy = {name: disk.busy_time / 1000 for name, disk in every.items() if hasattr(disk, "busy_time")}
        return self.busiest.add(busy) if busy else None


class Links:
    """The seconds in which the busiest link would have carried its bytes at full speed, each direction by itself.

    Loopback is no link. An interface counts if the system states its speed, which a virtual one may make up.
    """

    def __init__(self, ports: Iterable[Path] = ()) -> None:
        """ports: the folders of the counters of InfiniBand's ports."""
        speeds = {name: state.speed * MEGABIT for name, state in psutil.net_if_stats().items() if name != "lo"}
        self.speeds = {name: float(speed) for name, speed in speeds.items() if 0 < speed < 2**31 * MEGABIT}
        self.ports = {port: rate for port in ports if (rate := _rate(port.parent / "rate"))}
        self.busiest = Busiest()

    def read(self, interfaces: Mapping[str, Any]) -> float | None:
        """interfaces: what psutil counts of each interface."""
        known = {name: card for name, card in interfaces.items() if name in self.speeds}
        if not known and not self.ports:
            return None
        seconds: dict[str, float] = {}
        for name, card in known.items():
            seconds[f"{name} in"] = card.bytes_recv / self.speeds[name]
            seconds[f"{name} out"] = card.bytes_sent / self.speeds[name]
        for port, rate in self.ports.items():
            for counter in ("port_rcv_data", "port_xmit_data"):
                seconds[f"{port} {counter}"] = 4 * int((port / counter).read_text()) / rate  # it counts four bytes
        return self.busiest.add(seconds)


def _rate(file: Path) -> float | None:
    """Return the bytes per second of an InfiniBand port, from `100 Gb/sec (4X EDR)`; None if it does not say."""
    try:
        rate = re.match(r"([\d.]+) Gb/sec", file.read_text())
    except OSError:
        return None
    return float(rate[1]) * 1000 * MEGABIT if rate else None

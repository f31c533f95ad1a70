"""How busy the busiest disk and the busiest network link of a node are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from throughline.observe import telemetry
from throughline.observe.telemetry import Busiest, Links, disk_seconds


def test_the_busiest_of_each_moment_counts() -> None:
    counter = Busiest()
    every = [{"a": 5.0, "b": 9.0}, {"a": 6.0, "b": 9.2}, {"a": 6.1, "b": 9.7, "new": 50.0}, {"a": 6.1, "b": 0.0}]
    assert [counter.add(values) for values in every] == pytest.approx([0.0, 1.0, 1.5, 1.5])


def test_a_disk_counts_by_its_busy_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"sda": SimpleNamespace(busy_time=1000), "sdb": SimpleNamespace(busy_time=0)}
    monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: now)
    busiest = Busiest()
    busiest.add(disk_seconds())
    now["sdb"] = SimpleNamespace(busy_time=700)
    assert busiest.add(disk_seconds()) == pytest.approx(0.7)
    now.clear()
    assert busiest.add(disk_seconds()) is None


def test_a_link_counts_by_its_full_speed_in_its_busier_direction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    states = {"lo": 0, "eth0": 1000, "eth1": 10_000, "unknown": 0}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {n: SimpleNamespace(speed=s) for n, s in states.items()})
    port = tmp_path / "1/counters"
    port.mkdir(parents=True)
    (port.parent / "rate").write_text("100 Gb/sec (4X EDR)\n")

    def counted(eth0: int, eth1: int, infiniband: int) -> dict[str, Any]:
        (port / "port_rcv_data").write_text(f"{infiniband // 4}\n")
        (port / "port_xmit_data").write_text("0\n")
        given = {"eth0": eth0, "eth1": eth1, "unknown": eth0}
        return {name: SimpleNamespace(bytes_recv=0, bytes_sent=sent) for name, sent in given.items()}

    links, busiest = Links([port]), Busiest()
    assert busiest.add(links.seconds(counted(0, 0, 0))) == 0.0
    assert busiest.add(links.seconds(counted(62_500_000, 125_000_000, 0))) == pytest.approx(0.5)  # eth0 is slower
    assert busiest.add(links.seconds(counted(62_500_000, 125_000_000, 10**10))) == pytest.approx(0.5 + 0.8)
    states.clear()
    assert not Links().seconds({"eth0": SimpleNamespace(bytes_recv=1, bytes_sent=1)})


def test_this_machine_has_the_counters_or_says_why() -> None:
    machine = telemetry.Machine()
    read = machine.read()
    assert 0 < (read["memory_used_share"] or 0) < 1
    for name in ("disk_busy_s", "network_busy_s"):
        assert read[name] is not None or machine.reasons[name]

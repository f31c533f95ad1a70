"""From counters and gauges to figures over exactly the timed window, and the reason if there is no figure."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import training_fixtures
from process_helpers import until
from throughline import messages, processes, records
from throughline.messages import LaunchPlan, Memory, NodeSamples, Reasons, Sample, Window
from throughline.observe import telemetry, telemetry_record, telemetry_window
from throughline.observe.telemetry import Busiest, Links, disk_seconds
from throughline.observe.telemetry_cards import LIMITS
from throughline.observe.telemetry_record import Observation
from throughline.records.run import NodeTelemetry

SPEED = {
    "busy_s": 1.5, "steal_s": 0.01, "disk_read_bytes": 100.0, "disk_written_bytes": 200.0, "disk_busy_s": 0.5,
    "network_busy_s": 0.25, "network_received_bytes": 10.0, "network_sent_bytes": 10.0, "loopback_bytes": 10.0,
}  # fmt: skip


def sampled(until: int = 10, **changes: Any) -> NodeSamples:
    """Return samples at 0, 1, ... s of a machine with 4 cores. Everything grows evenly, and the run uses one core."""
    samples = []
    nothing = {"infiniband_received_bytes": None, "infiniband_sent_bytes": None}
    for at in range(until + 1):
        machine = {name: speed * at for name, speed in SPEED.items()} | {"memory_used_bytes": 1000 + at}
        machine["memory_used_share"] = machine["memory_used_bytes"] / 9000
        used = {"cpu_s": 1.0 * at, "disk_read_bytes": 0.0, "disk_written_bytes": 0.0, "memory_bytes": 50, "threads": 3}
        samples.append(Sample(float(at), 0.002 * at, machine | nothing, used, []))
    reasons = Reasons(dict.fromkeys(nothing, "no InfiniBand device"), {}, [], "the run is on the processor")
    return replace(NodeSamples(1.0, 4, 9000, [], [], reasons, samples), **changes)


def over(window: Window, *counter: float | None) -> dict[str, float] | None:
    """Return the figures of a counter that has these values at 0, 1, ... s."""
    at = [float(second) for second in range(len(counter))]
    return telemetry_window.mean_rate(at, telemetry_window.rates(at, counter), window)


def test_a_counter_counts_for_the_part_within_the_window() -> None:
    # 10 a second from 0 to 1 s, 30 a second from 1 to 2 s, 50 a second from 2 to 3 s
    figures = over(Window(0.5, 2.5), 0.0, 10.0, 40.0, 90.0)
    assert figures == {"mean": pytest.approx((5 + 30 + 25) / 2), "min": 10.0, "max": 50.0}


def test_slivers_at_the_edges_are_no_extremes() -> None:
    figures = over(Window(0.99, 3.01), 0.0, 1000.0, 1010.0, 1030.0, 1030.0)
    assert figures is not None and (figures["min"], figures["max"]) == (10.0, 20.0)
    assert figures["mean"] == pytest.approx((10 + 10 + 20) / 2.02)


def test_samples_that_do_not_cover_the_window_give_no_figure() -> None:
    assert over(Window(0.2, 0.9), 0.0, 1.0, None, 3.0) is not None
    assert over(Window(0.2, 2.9), 0.0, 1.0, None, 3.0) is None
    assert over(Window(0.2, 2.9)) is None


def test_a_node_over_its_window() -> None:
    node = telemetry_window.condensed(sampled(), 0, Window(2.5, 7.5))
    NodeTelemetry.model_validate(node)
    assert node["samples"] == 5
    assert node["machine"]["cpu_share"]["mean"] == pytest.approx(1.5 / 4)
    assert node["machine"]["cpu_others_share"]["mean"] == pytest.approx(0.5 / 4)
    assert node["machine"]["memory_used_bytes"] == {"mean": 1005.0, "min": 1003.0, "max": 1007.0}
    assert node["machine"]["memory_used_share"]["mean"] == pytest.approx(1005 / 9000)
    assert node["machine"]["disk_busy_share"]["mean"] == pytest.approx(0.5), "a share of time, not of processors"
    assert node["machine"]["network_busy_share"]["mean"] == pytest.approx(0.25)
    assert node["processes"]["cpu_cores"]["mean"] == pytest.approx(1.0)
    assert node["cost_cpu_share"] == pytest.approx(0.002)


def test_every_figure_that_is_none_has_a_reason() -> None:
    node = telemetry_window.condensed(sampled(), 0, Window(2.5, 7.5))
    rates = {"machine": ["infiniband_received", "infiniband_sent"], "processes": ["network"]}
    for part, names in rates.items():
        empty = [f"{part}.{name}" for name, series in node[part].items() if series is None]
        assert empty == [f"{part}.{name}_bytes_per_s" for name in names] and set(empty) <= set(node["reasons"])
    assert node["reasons"]["devices"] == "the run is on the processor"


@pytest.mark.parametrize(
    ("samples", "window", "why"),
    [
        (None, Window(1.0, 9.0), "left nothing"),
        (sampled(), None, "no timed window"),
        (sampled(), Window(1.0, 1.4), "shorter than the sampling interval"),
    ],
)
def test_without_samples_or_a_window_nothing_is_made_up(samples: Any, window: Any, why: str) -> None:
    node = telemetry_window.condensed(samples, 1, window)
    NodeTelemetry.model_validate(node)
    assert not any(node["machine"].values()) and not any(node["processes"].values())
    assert why in node["reasons"]["telemetry"]


def test_the_table_says_what_each_second_was_like() -> None:
    text = telemetry_window.table([(0, sampled(3), Window(0.5, 2.5)), (1, None, None), (2, sampled(2), None)])
    rows = list(csv.DictReader(io.StringIO(text)))
    first = [(row["node"], row["at_s"], row["in_window"]) for row in rows[:4]]
    assert first == [("0", "-0.5", "0"), ("0", "0.5", "1"), ("0", "1.5", "1"), ("0", "2.5", "0")]
    assert (rows[0]["machine_cpu_share"], rows[1]["machine_cpu_share"]) == ("", "0.375")
    assert rows[4]["node"] == "2" and rows[4]["in_window"] == ""
    assert telemetry_window.table([(0, None, None)]) == "node,at_s,in_window\n"


def plan(framework: str = "torch", **changes: Any) -> LaunchPlan:
    return training_fixtures.plan("2n2g", **{"reach": "slurm", "run": {"framework": framework}, **changes})


def test_every_node_has_the_window_of_its_own_clock(tmp_path: Path) -> None:
    for node in (0, 1):
        messages.write(sampled(), tmp_path / f"telemetry_{node}.json")
    windows = [(2.0, 7.0), (2.5, 7.5), (1002.0, 1007.0), (1001.0, 1006.0)]
    reports = {rank: training_fixtures.report(rank, window=Window(*window)) for rank, window in enumerate(windows)}
    nodes = telemetry_record.observations(plan(), tmp_path, reports, {})
    assert [node.window for node in nodes] == [Window(2.0, 7.5), Window(1001.0, 1007.0)]
    first, _ = telemetry_record.observations(plan(telemetry=False), tmp_path, reports, {})
    assert first.reason == "telemetry was switched off"


def test_figures_say_which_nodes_they_cover(tmp_path: Path) -> None:
    messages.write(sampled(), tmp_path / "telemetry_0.json")
    reports = {rank: training_fixtures.report(rank, window=Window(2.0 + rank, 7.0)) for rank in range(4)}
    blind = {1: "its sampler ended early with signal 9"}
    asked = plan("torch-horovod")
    both = telemetry_record.observations(asked, tmp_path, reports, blind)
    assert [node.window for node in both] == [Window(2.0, 7.0), Window(4.0, 7.0)]
    nodes = [telemetry_window.condensed(node.sampled, node.node, node.window, node.reason) for node in both]
    assert "telemetry" not in nodes[0]["reasons"] and nodes[1]["reasons"] == {"telemetry": blind[1]}
    (warning,) = telemetry_record.warnings(both, nodes, asked, 1)
    assert warning == (
        "node 1: there are no figures of this node, because its sampler ended early with signal 9; "
        "the run's use of processors, memory and GPUs covers only node 0"
    )
    simulated = plan("torch-horovod", reach="simulated")
    (only,) = telemetry_record.observations(simulated, tmp_path, reports, {})
    assert only.window == Window(2.0, 7.0)


def test_memory_is_the_highest_of_all_ranks_and_nodes() -> None:
    both = [Observation(node, sampled(), Window(2.5, 7.5)) for node in (0, 1)]
    held = [Memory(None, 70 + rank, {"needed_bytes": "not counted"}) for rank in (0, 1)]
    reports = {rank: training_fixtures.report(rank, memory=memory) for rank, memory in enumerate(held)}
    part = {"utilization": {"cpu": 0.5, "gpu": None}, "warnings": ["one"]}
    record = telemetry_record.parts(training_fixtures.spec(), plan(), reports, both, part)
    records.Memory.model_validate(record["memory"])
    assert record["memory"] == {
        "needed_bytes": None,
        "reserved_bytes": 71,
        "device_used_bytes": 1007,
        "device_total_bytes": 9000,
        "reasons": {"needed_bytes": "not counted"},
    }
    assert record["utilization"] == {"cpu": 0.5, "gpu": None}


def test_time_that_the_host_took_is_told_of() -> None:
    stolen = sampled()
    for sample in stolen.samples:
        sample.machine["steal_s"] = 0.2 * sample.at  # stolen from 4 cores
    both = [Observation(node, samples, Window(2.5, 7.5)) for node, samples in enumerate((sampled(), stolen))]
    telemetry = [telemetry_window.condensed(seen.sampled, seen.node, seen.window) for seen in both]
    (warning,) = telemetry_record.warnings(both, telemetry, plan(), 1)
    assert warning.startswith("node 1: its host took 5.0% of the processors' time within the window (steal)")


def test_nodes_whose_cards_are_set_otherwise_are_told_of() -> None:
    card = {"name": "H100", **dict.fromkeys(LIMITS), "power_limit_w": 700.0}
    first, alike, capped = (sampled(cards=[card, {**card, "power_limit_w": limit}]) for limit in (700.0, 700.0, 400.0))
    both = [Observation(node, samples, None) for node, samples in enumerate((first, alike, None, capped))]
    telemetry = [telemetry_window.condensed(seen.sampled, seen.node, None) for seen in both]
    (warning,) = telemetry_record.warnings(both, telemetry, plan(), 1)
    assert warning.startswith("node 3: GPU 1: power_limit_w is 400.0, and 700.0 on node 0")


def test_the_time_of_a_process_that_ends_between_two_samples_counts(tmp_path: Path) -> None:
    """A program ends right after its last step. The time is that of a grandchild, which another process waits for."""
    work = "import time; input(); [None for _ in iter(lambda: time.process_time() < 0.5, False)]; time.sleep(0.2)"
    wait = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); input()"
    with subprocess.Popen([sys.executable, "-c", wait, work], stdin=subprocess.PIPE) as child:
        watched = telemetry.Processes(os.getpid())
        until(lambda: len(processes.descendants(child.pid)) == 1)
        watched.discover([])
        before = watched.read()["cpu_s"] or 0.0
        assert child.stdin
        child.stdin.write(b"\n")
        child.stdin.flush()
        until(lambda: not processes.descendants(child.pid))
        between = watched.read()["cpu_s"] or 0.0
        child.communicate(b"\n")
        after = watched.read()["cpu_s"] or 0.0
    assert 0.3 < between - before < 0.8 and between <= after < between + 0.3


def test_a_system_that_counts_no_process_s_disk_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil has no such method where /proc/<pid>/io is missing."""
    monkeypatch.delattr(psutil.Process, "io_counters")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watched = telemetry.Processes(os.getpid())
    watched.discover([])
    used = watched.read()
    child.communicate()
    assert used["disk_read_bytes"] is None and "AttributeError" in watched.reasons["disk_read_bytes"]
    assert used["memory_bytes"]


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

"""What a record says about hardware that may explain a slow node or GPU: read from synthetic systems and cards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nvml_double
import training_fixtures
from throughline import messages
from throughline.observe import environment, hardware, telemetry_record
from throughline.observe.hardware import Hardware
from throughline.records.run import NodeHardware

ASK = """
import sys, json
from dataclasses import asdict
from pathlib import Path
from throughline import messages
from throughline.observe import hardware
from throughline.observe.telemetry_cards import Cards
from throughline.spec import read
cards = Cards(read(messages.LaunchPlan, json.loads(sys.argv[1])))
print(json.dumps(asdict(hardware.read(3, cards, Path(sys.argv[2])))))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_double.build(tmp_path_factory.mktemp("nvml"))


def of_cards(library: Path, root: Path, **answers: float) -> NodeHardware:
    plan = training_fixtures.plan("1n2g", kind="cuda")
    command = [sys.executable, "-c", ASK, messages.text(plan), str(root)]
    done = subprocess.run(command, env=nvml_double.variables(library, **answers), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return NodeHardware.model_validate(json.loads(done.stdout))


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys" / name).write_text(text + "\n")


def test_what_links_and_faults_of_a_card_tell(library: Path, tmp_path: Path) -> None:
    write(tmp_path, {"bus/pci/devices/0000:10:00.0/numa_node": "1", "bus/pci/devices/0000:20:00.0/numa_node": "-1"})
    node = of_cards(library, tmp_path, pcie=3, lanes=8, replays=12, down=2, corrected=5)
    first, second = node.devices
    assert node.node == 3
    assert first.items() >= {
        "name": "Double 1", "power_limit_w": 700.0, "sm_clock_most_mhz": 1980, "pcie_generation": 3, "pcie_width": 8,
        "pcie_generation_most": 5, "pcie_width_most": 16, "pcie_replays": 12, "ecc_corrected": 5,
        "ecc_corrected_ever": 105, "ecc_uncorrected": 0, "rows_remapped_corrected": 1, "rows_failed": False,
        "pages_retired": 2, "temperature_slowdown_c": 90, "temperature_most_c": None, "numa_node": 1,
    }.items()  # fmt: skip
    assert first["nvlinks"] == [True, True, False, True]
    assert "Not Supported" in node.reasons["devices.0.temperature_most_c"]
    assert second["numa_node"] is None and "does not say" in node.reasons["devices.1.numa_node"]


def test_a_card_without_links_has_reasons(library: Path, tmp_path: Path) -> None:
    node = of_cards(library, tmp_path, nvlinks=0, fail_pages=3, fail_clock=3)
    absent = {name for name, fact in node.devices[0].items() if fact is None}
    assert {"nvlinks", "pages_retired", "numa_node", "sm_clock_set_mhz", "mig"} <= absent
    assert absent == {key.removeprefix("devices.0.") for key in node.reasons if key.startswith("devices.0.")}


def test_what_a_system_tells_of_itself(tmp_path: Path) -> None:
    write(tmp_path, {
        **{f"devices/system/cpu/cpu{core}/cpufreq/scaling_governor": "performance" for core in (0, 1)},
        "devices/system/cpu/cpu2/cpufreq/scaling_governor": "powersave",
        "devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "3500000",
        "devices/system/cpu/cpu2/cpufreq/scaling_max_freq": "2000000",
        "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3500000",
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3400000",
        "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7",
        "devices/system/cpu/intel_pstate/no_turbo": "1",
        "devices/system/edac/mc/mc0/ce_count": "4", "devices/system/edac/mc/mc0/ue_count": "0",
        **{f"devices/system/edac/mc/mc0/dimm{slot}/dimm_location": f"channel {slot % 2} slot {slot // 2}"
           for slot in range(4)},
        "class/net/lo/carrier": "1", "class/net/veth1/carrier": "1", "class/net/veth1/speed": "10000",
        "class/net/enx0123456789ab/carrier": "1", "class/net/enx0123456789ab/speed": "100000",
        "class/net/enx0123456789ab/device/vendor": "x",
        "class/net/eth1/carrier": "0", "class/net/eth1/device/vendor": "x",
        "class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)",
        "class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
    })  # fmt: skip
    facts, reasons = hardware.machine_facts(tmp_path)
    assert facts.items() >= {
        "cpu_governor": "performance, powersave", "cpu_clock_mhz": 3400, "cpu_clock_limit_mhz": 2000,
        "cpu_clock_most_mhz": 3500, "cpu_boost": False, "cpu_throttled": 7, "memory_errors_corrected": 4,
        "memory_channels": 2,
    }.items()  # fmt: skip
    hardware_of = NodeHardware(node=0, machine=facts, devices=[], reasons=reasons)
    assert [(nic.name, nic.gbit_per_s) for nic in hardware_of.interfaces("network")] == [("enx", 100)]
    (port,) = hardware_of.interfaces("infiniband")
    assert (port.name, port.gbit_per_s, port.state, port.link_layer) == ("mlx5_0/1", 200, "active", "InfiniBand")
    assert {name for name, fact in facts.items() if fact is None} == set(reasons)


def test_a_system_that_tells_nothing_has_reasons(tmp_path: Path) -> None:
    write(tmp_path, {"class/net/veth1/carrier": "1", "class/net/veth1/speed": "-1"})
    facts, reasons = hardware.machine_facts(tmp_path)
    NodeHardware(node=0, machine=facts, devices=[], reasons=reasons)
    assert facts["network"] == [{"name": "veth1", "gbit_per_s": None}]
    assert {name for name, fact in facts.items() if fact is None} == set(reasons)


def test_every_node_is_in_the_record_and_none_in_its_digest(tmp_path: Path) -> None:
    facts, _ = hardware.machine_facts()
    for node in (0, 1):
        messages.write(Hardware(node, {**facts, "cpu_cores": 4 + node}, [], {}), tmp_path / f"hardware_{node}.json")
    plan = training_fixtures.plan("2n2g", reach="slurm", run={"framework": "torch"})
    reports = {rank: training_fixtures.report(rank) for rank in range(4)}
    observed = telemetry_record.observations(plan, tmp_path, reports, {})
    part: dict[str, Any] = {"utilization": {"cpu": 0.5, "gpu": None}, "warnings": []}
    written = telemetry_record.parts(training_fixtures.spec(), plan, reports, observed, part)["hardware"]
    nodes = [NodeHardware.model_validate(node) for node in written]
    assert [(node.node, node.machine["cpu_cores"]) for node in nodes] == [(0, 4), (1, 5)]
    assert not {name for name in hardware.machine_facts()[0] if "clock" in name} & set(environment.DECIDES)
    nothing = telemetry_record.observations(plan, tmp_path / "none", reports, {})
    assert "hardware" not in telemetry_record.parts(training_fixtures.spec(), plan, reports, nothing, part)

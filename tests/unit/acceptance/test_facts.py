"""Each fact that may explain a slow GPU is read from the record, compared with the peers, and put in words."""

from __future__ import annotations

from typing import Any

import pytest

from throughline.acceptance import facts, findings
from throughline.acceptance.measured import Run
from throughline.records import RunRecord
from throughline.records.hardware import GpuFacts, MachineFacts
from throughline.study.acceptance import Measurement
from unit.acceptance import fleets

MACHINE = {
    "cpu_governor": "performance",
    "memory_speed_mt_per_s": 4800,
    "network": [{"name": "a", "gbit_per_s": 100.0}],
}
GPU = {
    "power_limit_enforced_w": 700.0, "ecc": True, "pages_retired": 0, "rows_remapped_uncorrected": 0,
    "pcie_width": 16, "pcie_generation": 5, "nvlinks": [True] * 18,
}  # fmt: skip
EXPLANATIONS = {
    "clock": ({"telemetry": {"sm_clock_mhz": 1410.0}}, "its clock was 1,410 MHz, theirs 1,755 MHz"),
    "power limit": (
        {"gpu": {"power_limit_enforced_w": 500.0}},
        "power limit was 500 W, theirs 700 W; reason: lower power",
    ),
    "temperature": ({"telemetry": {"temperature_c": 84.0}}, "its temperature was 84 °C, theirs 60 °C"),
    "throttle reasons": ({"telemetry": {"throttle_reasons": ["sw_power_cap"]}}, "reason: power cap"),
    "ECC": ({"gpu": {"ecc": False}}, "its ECC was no, theirs yes"),
    "retired pages": ({"gpu": {"pages_retired": 3}}, "its retired pages was 3, theirs 0; reason: faulty memory"),
    "PCIe width": ({"gpu": {"pcie_width": 8}}, "PCIe width was 8 lanes, theirs 16 lanes; reason: fewer PCIe lanes"),
    "PCIe speed": ({"gpu": {"pcie_generation": 3}}, "PCIe generation was 3, theirs 5; reason: slower PCIe"),
    "NVLink": (
        {"gpu": {"nvlinks": [True] * 17 + [False]}},
        "active NVLinks was 17, theirs 18; reason: an NVLink is down",
    ),
    "NUMA node": ({"gpu": {"numa_node": 7}}, "its NUMA node of the GPU was 7, theirs 1; reason: another NUMA node"),
    "NIC": ({"machine": {"network": [{"name": "a", "gbit_per_s": 10.0}]}}, "was 10 Gbit/s, theirs 100 Gbit/s"),
    "other processes": ({"others": 0.6}, "processor time of other processes was 60 %, theirs 1 %; reason: other"),
    "memory speed": ({"machine": {"memory_speed_mt_per_s": 4000}}, "was 4,000 MT/s, theirs 4,800 MT/s; reason: slower"),
    "governor": ({"machine": {"cpu_governor": "powersave"}}, "CPU governor was powersave, theirs performance"),
}


def run(measurement: Measurement, differs: dict[str, Any]) -> Run:
    """Return a run of one GPU with all facts. Two GPUs of a node are on two NUMA nodes."""
    record = fleets.record(measurement, 700.0)
    telemetry = record["telemetry"][0]
    for name, value in differs.get("telemetry", {}).items():
        steady = value if isinstance(value, list) else dict.fromkeys(("mean", "min", "max"), value)
        telemetry["devices"][0][name] = steady
    telemetry["machine"]["cpu_others_share"] = dict.fromkeys(("mean", "min", "max"), differs.get("others", 0.01))
    gpu = {
        **dict.fromkeys(GpuFacts.model_fields),
        **GPU,
        "numa_node": measurement.place.device,
        **differs.get("gpu", {}),
    }
    machine = {**dict.fromkeys(MachineFacts.model_fields), **MACHINE, **differs.get("machine", {})}
    record["hardware"] = [{"node": 0, "machine": machine, "devices": [gpu], "reasons": {}}]
    return Run(measurement, RunRecord.model_validate(record))


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_a_fact_that_the_peers_do_not_share_is_named(name: str) -> None:
    differs, words = EXPLANATIONS[name]
    made = [one for one in fleets.asked(repeats=1).measurements() if one.what == "matmul"]
    slow = next(one for one in made if (one.place.nodes, one.place.device) == ((3,), 1))
    others = [one for one in made if one != slow]
    places = [one.place for one in others]
    peers = [[run(one, {})] for one in others]
    same = [place.device == 1 for place in places]
    nodes = [place.nodes[0] for place in places]
    assert facts.different([run(slow, {})], peers, 3, nodes, same) == []
    assert words in findings.why(facts.different([run(slow, differs)], peers, 3, nodes, same))

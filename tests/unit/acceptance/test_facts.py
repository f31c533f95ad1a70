"""Each fact that may explain a slow GPU is read from the record, compared with the peers, and put in words."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from throughline.acceptance import facts, findings
from throughline.acceptance.measured import Measured, Run
from throughline.records import RunRecord
from throughline.records.acceptance import SlowFigure
from throughline.study.acceptance import Measurement, Place, PlaceKind
from unit.acceptance import fleets

MACHINE = {"cpu_governor": "performance", "memory_channels": 8, "network": [{"name": "a", "gbit_per_s": 100.0}]}
GPU = {
    "power_limit_enforced_w": 700.0, "ecc": True, "pages_retired": 0, "rows_remapped_uncorrected": 0,
    "pcie_width": 16, "pcie_generation": 5, "nvlinks": [True] * 18,
}  # fmt: skip
SLOW_CARD = {"network": [{"name": "a", "gbit_per_s": 10.0}]}
EXPLANATIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "clock": ("matmul", {"telemetry": {"sm_clock_mhz": 1410.0}}, "its clock was 1,410 MHz, theirs 1,755 MHz"),
    "power limit": ("matmul", {"gpu": {"power_limit_enforced_w": 500.0}}, "500 W, theirs 700 W; reason: lower power"),
    "temperature": ("step", {"telemetry": {"temperature_c": 84.0}}, "its temperature was 84 °C, theirs 60 °C"),
    "throttle reasons": ("matmul", {"telemetry": {"throttle_reasons": ["sw_power_cap"]}}, "reason: power cap"),
    "ECC": ("memory", {"gpu": {"ecc": False}}, "its ECC was no, theirs yes"),
    "retired pages": ("memory", {"gpu": {"pages_retired": 3}}, "pages was 3, theirs 0; reason: faulty memory"),
    "PCIe width": ("copies", {"gpu": {"pcie_width": 8}}, "was 8 lanes, theirs 16 lanes; reason: fewer PCIe lanes"),
    "PCIe speed": ("copies", {"gpu": {"pcie_generation": 3}}, "generation was 3, theirs 5; reason: slower PCIe"),
    "NVLink": ("all-reduce", {"gpu": {"nvlinks": [True] * 17 + [False]}}, "active NVLinks was 17, theirs 18; reason"),
    "NUMA node": ("copies", {"gpu": {"numa_node": 7}}, "of the GPU was 7, theirs 1; reason: another NUMA node"),
    "NIC": ("pair", {"machine": SLOW_CARD}, "was 10 Gbit/s, theirs 100 Gbit/s; reason: slower network link"),
    "other processes": ("step", {"others": 0.6}, "of other processes was 60 %, theirs 1 %; reason: other processes"),
    "memory channels": (
        "copies",
        {"machine": {"memory_channels": 4}},
        "was 4, theirs 8; reason: fewer memory",
    ),
    "governor": ("step", {"machine": {"cpu_governor": "powersave"}}, "powersave, theirs performance; reason: CPU gov"),
}
"""Map a fact to a figure that it explains, to a GPU that has it, and to the words."""


def run(measurement: Measurement, differs: dict[str, Any]) -> Run:
    """Return a run of one GPU with all facts. Two GPUs of a node are on two NUMA nodes."""
    record = fleets.record(measurement, 700.0)
    telemetry = record["telemetry"][0] = fleets.telemetry(0, 1)
    for name, value in differs.get("telemetry", {}).items():
        steady = value if isinstance(value, list) else dict.fromkeys(("mean", "min", "max"), value)
        telemetry["devices"][0][name] = steady
    telemetry["machine"]["cpu_others_share"] = dict.fromkeys(("mean", "min", "max"), differs.get("others", 0.01))
    gpu = {**GPU, "numa_node": measurement.place.device, **differs.get("gpu", {})}
    machine = {**MACHINE, **differs.get("machine", {})}
    record["hardware"] = [{"node": 0, "machine": machine, "devices": [gpu], "reasons": {}}]
    return Run(measurement, RunRecord.model_validate(record), measurement.place.nodes)


def told(what: str, differs: dict[str, Any], of_peers: Sequence[dict[str, Any]] = ({},) * 7) -> str:
    """Return what is said of a GPU with these facts. of_peers: the facts of the 7 others; what: its slow figure."""
    kind: PlaceKind = "pair" if what == "pair" else "node" if what == "all-reduce" else "device"
    figure = "all-reduce" if what == "pair" else what
    runs, others = [], iter(of_peers)
    for made in fleets.asked(repeats=1).measurements():
        if made.what == "step" and made.place.kind == "device":
            place = replace(made.place, kind=kind)
            is_slow = (place.nodes, place.device) == ((3,), 1)
            runs.append(run(replace(made, what=figure, place=place), differs if is_slow else next(others)))
    slow = SlowFigure(
        what=figure, figure="", size=None, kind=kind, place=Place(kind, (3,), 1), distance=-0.1, others=7,
        others_low=0.0, others_high=0.0,
    )  # fmt: skip
    return findings.why(facts.differing(Measured(runs), slow, (3,), [slow.place]))


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_a_fact_that_the_peers_do_not_share_is_named(name: str) -> None:
    what, differs, words = EXPLANATIONS[name]
    assert told(what, {}) == findings.UNEXPLAINED
    assert words in told(what, differs)


@pytest.mark.parametrize(
    ("what", "name"),
    [("matmul", "PCIe width"), ("matmul", "NIC"), ("matmul", "governor"), ("matmul", "NUMA node"), ("copies", "NIC"),
     ("copies", "power limit"), ("all-reduce", "NIC"), ("step", "NVLink"), ("pair", "throttle reasons"),
     ("pair", "retired pages")],
)  # fmt: skip
def test_what_does_not_explain_a_figure_is_told_and_is_no_reason(what: str, name: str) -> None:
    said = told(what, EXPLANATIONS[name][1])
    assert said.startswith("its ") and "reason:" not in said, said


def clock(mhz: float) -> dict[str, Any]:
    return {"telemetry": {"sm_clock_mhz": mhz}}


def throttled(*reasons: str) -> dict[str, Any]:
    return {"telemetry": {"throttle_reasons": list(reasons)}}


BOTH = {"gpu": {"power_limit_enforced_w": 500.0, "pcie_width": 8}}
SPREAD = [clock(1755.0 + 60 * step) for step in (-3, -2, -1, 0, 1, 2, 3)]
CAPPED = throttled("sw_power_cap")
SOME = [CAPPED, {}] * 3 + [CAPPED]


@pytest.mark.parametrize(
    ("what", "differs", "peers", "said"),
    [
        ("matmul", BOTH, [{}] * 7, "reason: lower power limit"),
        ("copies", BOTH, [{}] * 7, "its PCIe width was 8 lanes, theirs 16 lanes; its power limit was 500 W, "),
        ("matmul", clock(1410.0), [clock(1410.0), *[{}] * 6], "its clock was 1,410 MHz, theirs 1,755 MHz"),
        ("matmul", clock(1410.0), [*[clock(1410.0)] * 3, *[{}] * 4], findings.UNEXPLAINED),
        ("matmul", clock(1560.0), SPREAD, findings.UNEXPLAINED),
        ("matmul", clock(1200.0), SPREAD, "its clock was 1,200 MHz"),
        ("matmul", throttled("sw_power_cap", "hw_slowdown"), SOME, "reason: hardware slowdown (temperature or power)"),
        ("matmul", CAPPED, SOME, findings.UNEXPLAINED),
        ("matmul", {}, [CAPPED] * 7, findings.UNEXPLAINED),
    ],
    ids=[
        "the explanation of a matrix product", "the explanation of copies comes first", "one odd peer hides nothing",
        "many peers have it and are not slow", "within the spread of the peers", "beyond the spread of the peers",
        "a reason that some peers do not have", "a reason that most peers have", "only the peers have a reason",
    ],
)  # fmt: skip
def test_a_fact_counts_if_most_peers_are_better(
    what: str, differs: dict[str, Any], peers: list[dict[str, Any]], said: str
) -> None:
    assert said in told(what, differs, peers)

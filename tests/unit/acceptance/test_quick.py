"""A quick acceptance: what its two records of a node say, who has not passed, and how often it is a false alarm."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import slow_parts

from throughline import records
from throughline.acceptance import verdict
from throughline.files import write_json
from throughline.launch.quick_check import NodeCheck
from throughline.records.acceptance import Acceptance, unfinished
from throughline.study.acceptance import Measurement, Plan
from unit.acceptance import fleets
from unit.acceptance.fleets import judged, slow


def asked(nodes: int = 4, **accept: Any) -> Plan:
    return fleets.asked(nodes=nodes, quick=True, **accept)


def test_equal_nodes_pass_and_everything_but_the_links_is_compared(tmp_path: Path) -> None:
    found = judged(tmp_path, asked(pairs="none"))
    assert found.summary == "The 4 nodes are fit: no device or node is slow; links were not compared."
    assert {(figure.what, figure.kind, len(figure.standings)) for figure in found.figures if figure.judged} == {
        ("matmul", "device", 8), ("memory", "device", 8), ("copies", "device", 8), ("step", "node", 4),
        ("all-reduce", "node", 4), ("disk", "node", 4),
    }  # fmt: skip
    assert {len(place.repeats) for figure in found.figures for place in figure.standings} == {3}
    assert verdict.not_passed(found) == {}


@pytest.mark.parametrize(
    ("speed", "place"),
    [
        (slow(3, 1, "matmul"), "node 3, GPU 1"),
        (slow(2, None, "step", "all-reduce"), "node 2"),
        (slow(2, None, "disk", by=0.1), "node 2"),
    ],
)
def test_a_slow_device_or_node_has_not_passed_by_so_much(tmp_path: Path, speed: fleets.Share, place: str) -> None:
    found = judged(tmp_path, asked(), speed=speed)
    assert [str(finding.place) for finding in found.findings] == [place]
    ((node, why),) = verdict.not_passed(found).items()
    assert f"node {node}" in place and " slower than " in why and why.startswith(f"{place}: ")


def test_a_lower_clock_while_training_explains_a_slow_device(tmp_path: Path) -> None:
    def throttled(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes == (3,) and measured.what == "step":
            record["telemetry"][0]["devices"][1]["throttle_reasons"] = ["sw_power_cap"]

    found = judged(tmp_path, asked(), speed=slow(3, 1, "matmul"), change=throttled)
    assert "reason: power cap" in found.findings[0].sentence


def test_a_node_with_a_fault_has_not_passed_though_it_is_fast(tmp_path: Path) -> None:
    def facts(measured: Measurement, record: dict[str, Any]) -> None:
        device = {"nvlinks": [True] * 18, "pcie_width": 16}
        devices = [dict(device) for _ in range(measured.spec.topology.devices)]
        if measured.place.nodes == (1,):
            devices[0]["nvlinks"] = [True] * 17 + [False]
        machine = {
            "driver": "580.1" if measured.place.nodes != (2,) else "570.2",
            "cpu_throttled": len(record["started"]),
        }
        record["hardware"] = [{"node": 0, "machine": machine, "devices": devices, "reasons": {}}]

    found = judged(tmp_path, asked(pairs="none"), change=facts)
    assert found.summary == "Not fit (4 nodes): unlike the others: node 1, node 2."
    end = "It is the machine: nothing of it is slow, and it is not like the others."
    assert verdict.not_passed(found) == {
        1: f"node 1: its active NVLinks was 17, theirs 18; reason: an NVLink is down. {end}",
        2: f"node 2: its driver was 570.2, theirs 580.1; reason: another driver. {end}",
    }
    assert judged(tmp_path, fleets.asked(pairs="none"), change=facts).verdict == "fit", "only if it is quick"


def without(made: Plan, folder: Path, *nodes: int) -> Acceptance:
    """Judge nodes of which these have not answered."""
    fleets.write(made, folder)
    for file, visit in made.visits.items():
        if set(visit[0].place.nodes) & set(nodes):
            (folder / file).unlink()
            if len(visit[0].place.nodes) == 1:
                paths = [replace(one, record=str(folder / one.record)) for one in visit]
                NodeCheck(paths, folder / file, (), 1.0).blame("no answer within 60 s")
                note = records.read_unfinished(unfinished(folder / file))
                failed = {one.record: note.failed[str(folder / one.record)] for one in visit}
                write_json(
                    unfinished(folder / file), note.model_copy(update={"failed": failed}).model_dump(by_alias=True)
                )
    return verdict.judge(made, folder)


def test_a_node_that_does_not_answer_is_named_and_its_pairs_are_not_missing(tmp_path: Path) -> None:
    found = without(asked(), tmp_path, 2)
    told = "node 2 has not ended its check: no answer within 60 s. It is the machine: it could not be measured."
    assert verdict.not_passed(found) == {2: told}
    assert found.verdict == "outliers" and {run.place.nodes for run in found.missing} == {(2,)}
    assert "broken: node 2; 2 runs are missing (node 2)" in found.summary


def test_if_half_of_the_nodes_do_not_answer_none_of_them_is_blamed(tmp_path: Path) -> None:
    found = without(asked(pairs="none"), tmp_path, 1, 2)
    assert (found.verdict, verdict.not_passed(found)) == ("inconclusive", {})


@pytest.mark.slow
@pytest.mark.parametrize("fleet", slow_parts.QUICK[1::2], ids=["normal", "heavy tails"])
def test_equal_nodes_rarely_get_an_alarm(fleet: slow_parts.QuickFleet) -> None:
    """128 nodes with 8 devices each. The seed is fixed; `benchmarks/slow_parts.py --quick` simulates more."""
    assert slow_parts.alarms(fleet, 20) <= 1

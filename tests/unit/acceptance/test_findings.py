"""Who is slow by name, whether it is the machine, the program or a link, and what explains it."""

import json
from pathlib import Path
from typing import Any

import pytest

from throughline.acceptance import verdict
from throughline.files import write_json
from throughline.records.acceptance import STATUS
from throughline.study.acceptance import Measurement
from unit.acceptance import fleets
from unit.acceptance.fleets import Share, all_of, busy, judged, slow, slow_network, slow_pairs

CPU: dict[str, Any] = {"kind": "cpu", "devices": 1}


def slow_inside(measured: Measurement) -> float:
    inside = measured.what == "all-reduce" and measured.place.kind == "node"
    return slow(1, None, "all-reduce", by=0.5)(measured) if inside else slow(1, 0, "matmul")(measured)


def fast_once(measured: Measurement) -> float:
    """Make three of six pairs slow by node 0, of which one was fast once, and the link of two others very slow."""
    place = measured.place
    if place.kind == "pair" and place.nodes == (1, 2):
        return 0.01
    if 0 not in place.nodes or place.kind == "all":
        return 1.0
    return 1.3 if place.nodes == (0, 3) and measured.spec.repeat == 1 else 0.1


FOUND: dict[str, tuple[dict[str, Any], Share, set[tuple[str, str]], str]] = {
    "only the training step": (
        {},
        slow(2, 0, "step"),
        {("node 2, GPU 0", "program")},
        "(copy from the host, copy to the host, matrix product, memory are as fast as the others')",
    ),
    "a node in place of its devices": ({}, slow(1, None, "matmul", "memory"), {("node 1", "machine")}, "without train"),
    "a node in place of its pairs": (
        {},
        slow_network(2),
        {("node 2", "link")},
        "it is the node's link: alone, this node is as fast as the others",
    ),
    "a node that is slow in most of its pairs": (
        {},
        slow_pairs((0, 2), (2, 3)),
        {("node 2", "link")},
        "2 of its 3 pairs are slow, so it is probably the node's link: alone, this node is as fast",
    ),
    "one repeat, and nothing alone": (
        {"nodes": 8, "repeats": 1, "measure": ["all-reduce"], **CPU},
        slow(2, None, "all-reduce", by=0.5),
        {("node 2", "not known")},
        "7 of its 7 pairs are slow, so it is the node's link or the node itself: nothing of it was compared alone",
    ),
    "inside a node, with a slow device": (
        {},
        slow_inside,
        {("node 1", "link"), ("node 1, GPU 0", "machine")},
        "it is the exchange between the devices of this node",
    ),
    "a slow link beside pairs of a slow node": (
        CPU,
        fast_once,
        {("node 0", "machine"), ("nodes 1 and 2", "link")},
        "it is the link between the two: neither node is nearly as slow in its other pairs",
    ),
    "a slow pair": (
        {},
        slow_pairs((1, 3)),
        {("nodes 1 and 3", "link")},
        "it is the link between the two: neither node is nearly as slow in its other pairs",
    ),
    "two slow pairs of a node": (
        {"nodes": 6},
        slow_pairs((1, 3), (1, 4)),
        {("nodes 1 and 3", "link"), ("nodes 1 and 4", "link")},
        "or the network of one: node 1 may be slow in 1 of 4 other pairs, node ",
    ),
    "pairs of one round": (
        {"nodes": 6, "pairs": 1},
        slow_pairs((1, 4)),
        {("nodes 1 and 4", "link")},
        "or the network of one: node 1 has no other pairs, node 4 has no other pairs",
    ),
    "pairs of two rounds": (
        {"nodes": 5, "pairs": 2},
        slow_pairs((0, 4)),
        {("nodes 0 and 4", "link")},
        "or the network of one: node 0 has no other pairs, node 4 may be slow in 0 of ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_what_is_slow_is_named_with_its_cause(name: str, tmp_path: Path) -> None:
    how, speed, expected, because = FOUND[name]
    findings = judged(tmp_path, fleets.asked(**how), speed=speed).findings
    assert {(str(finding.place), finding.cause) for finding in findings} == expected
    assert any(because in finding.because for finding in findings), [finding.because for finding in findings]


def test_a_slow_gpu_is_named_with_its_clock_and_the_reason(tmp_path: Path) -> None:
    """Its worst figure is the matrix product, whose window is too short for telemetry."""

    def cap(measured: Measurement, record: dict[str, Any]) -> None:
        if (measured.place.nodes, measured.place.device, measured.what) == ((3,), 1, "step"):
            card = record["telemetry"][0]["devices"][0]
            card["sm_clock_mhz"] = dict.fromkeys(("mean", "min", "max"), 1410.0)
            card["throttle_reasons"] = ["sw_power_cap"]

    speed = all_of(slow(3, 1, "matmul", by=0.9), slow(3, 1, "step", by=0.95))
    found = judged(tmp_path, speed=speed, change=cap)
    assert STATUS[found.verdict] == 1
    (finding,) = found.findings
    assert (str(finding.place), finding.cause) == ("node 3, GPU 1", "machine")
    assert [figure.what for figure in finding.slow] == ["matmul", "step"]
    assert finding.sentence.startswith("node 3, GPU 1: matrix product ")
    assert "% slower than 7 other devices (range of the others ±" in finding.sentence
    assert "its clock while it trained was 1,410 MHz, theirs 1,755 MHz; reason: power cap." in finding.sentence


@pytest.mark.parametrize("by", [0.01, 0.5])
def test_a_pair_that_is_a_little_behind_does_not_put_a_slow_link_in_doubt(tmp_path: Path, by: float) -> None:
    """The pair of nodes 2 and 3 loses 40 % in two of three repeats."""

    def share(measured: Measurement) -> float:
        return (
            0.6 if measured.place.nodes == (2, 3) and measured.spec.repeat < 3 else slow_pairs((1, 2), by=by)(measured)
        )

    (finding,) = judged(tmp_path, speed=share).findings
    because = {0.01: "neither node is nearly as slow", 0.5: "node 2 may be slow in 1"}[by]
    assert finding.place.nodes == (1, 2) and because in finding.because


@pytest.mark.parametrize("step", [True, False])
def test_what_a_node_did_while_it_trained_may_explain_its_link(tmp_path: Path, step: bool) -> None:
    """A pair has no training step: those of its nodes alone are asked. Without a step, nothing was sampled."""
    made = fleets.asked(**CPU, measure=["step", "matmul", "all-reduce"] if step else ["matmul", "all-reduce"])
    (finding,) = judged(tmp_path, made, speed=slow(3, None, "all-reduce", by=0.5), change=busy(3)).findings
    assert (str(finding.place), finding.cause) == ("node 3", "link")
    told = "other processes while it trained was 60 %, theirs 1 %; reason: other processes"
    assert (told if step else "nothing that was observed explains it") in finding.sentence


def test_a_node_on_the_processor_is_judged_like_a_device_and_named_once(tmp_path: Path) -> None:
    """Its pairs are slow because the node is."""
    speed = all_of(slow(3, None, "matmul", "memory", "all-reduce", by=0.7), slow(3, None, "step", by=0.75))
    (finding,) = judged(tmp_path, fleets.asked(**CPU), speed=speed, change=busy(3)).findings
    assert (str(finding.place), finding.cause) == ("node 3", "machine")
    assert "processor time of other processes while it trained was 60 %, theirs 1 %" in finding.sentence


def test_facts_of_a_pair_are_those_of_the_node_that_slurm_puts_there(tmp_path: Path) -> None:
    """Slurm sorts nodes by name: node 3 has joined later, and its name comes first."""

    def old_network(measured: Measurement, record: dict[str, Any]) -> None:
        nodes = sorted(measured.place.nodes, reverse=3 in measured.place.nodes)
        for part in record["telemetry"] if measured.place.kind == "pair" else ():
            share = 0.9 if nodes[part["node"]] == 3 else 0.01
            part["machine"] = {"cpu_others_share": dict.fromkeys(("mean", "min", "max"), share)}

    made = fleets.asked(**CPU, measure=["matmul", "all-reduce"])
    fleets.write(made, tmp_path, speed=slow(3, None, "all-reduce", by=0.5), change=old_network)
    for visit, several in made.visits.items():
        if several[0].place.kind == "pair" and 3 in several[0].place.nodes:
            content = json.loads((tmp_path / visit).read_text())
            write_json(tmp_path / visit, content | {"nodes": [3, several[0].place.nodes[0]]})
    (finding,) = verdict.judge(made, tmp_path).findings
    assert str(finding.place) == "node 3"
    assert [(fact.here, fact.others) for fact in finding.facts] == [("90 %", "1 %")]

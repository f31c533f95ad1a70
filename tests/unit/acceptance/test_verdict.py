"""The verdict on a fleet: who is slow by name, machine or program or link, what explains it, and what is missing."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from throughline.acceptance import one_node, verdict
from throughline.commands import accept
from throughline.files import UserError, write_json
from throughline.records import SCHEMA
from throughline.records.acceptance import Acceptance
from throughline.records.visit import unfinished
from throughline.report.render import acceptance as shown
from throughline.study.accept_section import Expectation
from throughline.study.acceptance import Measurement
from unit.acceptance import fleets


def judged(folder: Path, made: Any = None, **how: Any) -> Acceptance:
    made = made or fleets.asked()
    fleets.write(made, folder, **how)
    return verdict.judge(made, folder)


def of(node: int, device: int | None, *whats: str, slow: float = 0.93) -> fleets.Share:
    """Make measurements slow: of one device, or of everything that a node takes part in if the device is None."""

    def share(measured: Measurement) -> float:
        place = measured.place
        mine = node in place.nodes and (device is None or place.device == device)
        return slow if mine and measured.what in whats else 1.0

    return share


@pytest.mark.slow
def test_an_equal_fleet_is_fit(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert (found.verdict, found.findings, found.missing, found.unjudged) == ("fit", [], [], [])
    assert verdict.status(found) == 0
    assert {(figure.what, figure.kind) for figure in found.figures if figure.judged} == {
        *((what, "device") for what in ("step", "matmul", "memory", "copies")),
        ("step", "node"), ("all-reduce", "node"), ("all-reduce", "pair"), ("all-reduce", "link"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_slow_gpu_is_named_with_its_clock_and_the_reason(tmp_path: Path) -> None:
    """Its worst figure is the matrix product, whose window is too short for telemetry."""

    def cap(measured: Measurement, record: dict[str, Any]) -> None:
        if (measured.place.nodes, measured.place.device, measured.what) == ((3,), 1, "step"):
            card = record["telemetry"][0]["devices"][0]
            card["sm_clock_mhz"] = dict.fromkeys(("mean", "min", "max"), 1410.0)
            card["throttle_reasons"] = ["sw_power_cap"]

    def share(measured: Measurement) -> float:
        return of(3, 1, "matmul", slow=0.9)(measured) * of(3, 1, "step", slow=0.95)(measured)

    found = judged(tmp_path, speed=share, change=cap)
    assert verdict.status(found) == 1
    (finding,) = found.findings
    assert (finding.place.words, finding.cause) == ("node 3, GPU 1", "machine")
    assert {one.what for one in finding.slow} == {"matmul", "step"}
    text = finding.sentence
    assert text.startswith("node 3, GPU 1: ") and "% slower than 7 other devices (range of the others ±" in text
    assert text.index("matrix product") < text.index("training step")
    assert "its clock while it trained was 1,410 MHz, theirs 1,755 MHz; reason: power cap." in text
    assert "it is the machine and not the program" in text.lower()


def test_what_nothing_explains_is_said_so_and_a_slow_step_alone_is_the_program(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, speed=of(2, 0, "step")).findings
    assert finding.cause == "program"
    assert "nothing that was observed explains it" in finding.sentence
    assert "copy from the host, copy to the host, matrix product, memory are as fast" in finding.sentence


def test_a_node_takes_the_place_of_its_slow_devices(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, speed=of(1, None, "matmul", "memory")).findings
    assert (finding.place.words, finding.place.kind, finding.cause) == ("node 1", "node", "machine")


@pytest.mark.slow
def test_a_node_whose_pairs_are_all_slow_is_named_instead_of_its_pairs(tmp_path: Path) -> None:
    def share(measured: Measurement) -> float:
        return 0.5 if measured.place.kind in ("pair", "all") and 2 in measured.place.nodes else 1.0

    (finding,) = judged(tmp_path, speed=share).findings
    assert (finding.place.words, finding.cause) == ("node 2", "link")
    assert "all-reduce with other nodes" in finding.sentence


def test_pairs_of_a_slow_node_do_not_hide_a_slow_link(tmp_path: Path) -> None:
    """Three of six pairs are slow by node 0, but one of them was fast once, so its network is not called slow."""

    def speed(measured: Measurement) -> float:
        place = measured.place
        if place.kind == "pair" and place.nodes == (1, 2):
            return 0.01
        if 0 not in place.nodes or place.kind == "all":
            return 1.0
        return 1.3 if place.nodes == (0, 3) and measured.spec.repeat == 1 else 0.1

    found = judged(tmp_path, fleets.asked(kind="cpu", devices=1), speed=speed)
    assert {finding.place.words for finding in found.findings} == {"node 0", "nodes 1 and 2"}


@pytest.mark.parametrize("step", [True, False])
def test_what_a_node_did_while_it_trained_may_explain_its_link(tmp_path: Path, step: bool) -> None:
    """A pair has no training step: those of its nodes alone are asked. Without a step, nothing was sampled."""

    def busy(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes == (3,) and measured.what == "step":
            record["telemetry"][0]["machine"]["cpu_others_share"] = dict.fromkeys(("mean", "min", "max"), 0.6)

    measure = ["step", "matmul", "all-reduce"] if step else ["matmul", "all-reduce"]
    made = fleets.asked(kind="cpu", devices=1, measure=measure)
    (finding,) = judged(tmp_path, made, speed=of(3, None, "all-reduce", slow=0.5), change=busy).findings
    assert (finding.place.words, finding.cause) == ("node 3", "link")
    told = "other processes while it trained was 60 %, theirs 1 %; reason: other processes"
    assert (told in finding.sentence) == step
    assert ("nothing that was observed explains it" in finding.sentence) != step


def test_facts_of_a_pair_are_those_of_the_node_that_slurm_puts_there(tmp_path: Path) -> None:
    """Slurm sorts nodes by name: node 3 has joined later, and its name comes first."""

    def old_network(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.kind == "pair":
            nodes = [3, *(node for node in measured.place.nodes if node != 3)][:2] if 3 in measured.place.nodes else ()
            for part in record["telemetry"]:
                is_old = nodes and nodes[part["node"]] == 3
                part["machine"] = {"cpu_others_share": dict.fromkeys(("mean", "min", "max"), 0.9 if is_old else 0.01)}

    made = fleets.asked(kind="cpu", devices=1, measure=["matmul", "all-reduce"])
    fleets.write(made, tmp_path, speed=of(3, None, "all-reduce", slow=0.5), change=old_network)
    for visit, several in made.visits().items():
        if several[0].place.kind == "pair" and 3 in several[0].place.nodes:
            other = several[0].place.nodes[0]
            content = json.loads((tmp_path / visit).read_text())
            write_json(tmp_path / visit, content | {"nodes": [3, other]})
    (finding,) = verdict.judge(made, tmp_path).findings
    assert finding.place.words == "node 3"
    assert [(fact.here, fact.others) for fact in finding.facts] == [("90 %", "1 %")]


def test_a_slow_pair_is_named(tmp_path: Path) -> None:
    def share(measured: Measurement) -> float:
        return 0.5 if measured.place.nodes == (1, 3) else 1.0

    (finding,) = judged(tmp_path, speed=share).findings
    assert (finding.place.words, finding.cause) == ("nodes 1 and 3", "link")


def pairs(*slow: tuple[int, ...], by: float = 0.5) -> fleets.Share:
    """Make these pairs slow. by: their share of the usual speed."""
    return lambda measured: by if measured.place.nodes in slow else 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "slow", "because"),
    [
        ({}, [(1, 3)], "it is the link between the two: neither of them is nearly as slow in its other pairs"),
        ({"nodes": 6}, [(1, 3), (1, 4)], "or the network of one: node 1 may be slow in 1 of its 4 other pairs, too"),
        ({"nodes": 6, "pairs": 1}, [(1, 4)], "or the network of one: neither has another pair to compare with"),
        ({"nodes": 5, "pairs": 2}, [(0, 4)], "or the network of node 0: node 4 is not nearly as slow in its"),
    ],
)
def test_what_is_said_of_a_slow_pair_is_known(
    tmp_path: Path, how: dict[str, Any], slow: list[tuple[int, int]], because: str
) -> None:
    found = judged(tmp_path, fleets.asked(**how), speed=pairs(*slow)).findings
    assert sorted((finding.place.nodes, finding.cause) for finding in found) == [(list(pair), "link") for pair in slow]
    assert all(because in finding.because for finding in found), [finding.because for finding in found]


@pytest.mark.parametrize(("speed", "because"), [(0.01, "neither of them is nearly"), (0.5, "node 2 may be slow in 1")])
def test_a_pair_that_is_a_little_behind_does_not_put_a_slow_link_in_doubt(
    tmp_path: Path, speed: float, because: str
) -> None:
    """The pair of nodes 2 and 3 loses 40 % in two of three repeats."""

    def share(measured: Measurement) -> float:
        return 0.6 if measured.place.nodes == (2, 3) and measured.spec.repeat < 3 else pairs((1, 2), by=speed)(measured)

    (finding,) = judged(tmp_path, speed=share).findings
    assert finding.place.nodes == [1, 2] and because in finding.because


def test_a_node_that_is_slow_in_most_of_its_pairs_is_named_instead(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, speed=pairs((0, 2), (2, 3))).findings
    assert (finding.place.words, finding.cause) == ("node 2", "link")
    assert "all-reduce with node " in finding.sentence
    assert "2 of its 3 pairs are slow, so it is probably the node's link: alone, this node is as" in finding.sentence


def test_with_one_repeat_a_node_is_named_once_and_what_nobody_measured_is_not_claimed(tmp_path: Path) -> None:
    made = fleets.asked(nodes=8, kind="cpu", devices=1, repeats=1, measure=["all-reduce"])
    (finding,) = judged(tmp_path, made, speed=of(2, None, "all-reduce", slow=0.5)).findings
    assert (finding.place.words, finding.cause) == ("node 2", "not known")
    assert finding.because == (
        "7 of its 7 pairs are slow, so it is the node's link or the node itself: nothing of it was compared alone"
    )


def test_devices_that_are_slow_alone_are_not_called_equal(tmp_path: Path) -> None:
    def share(measured: Measurement) -> float:
        inside = measured.what == "all-reduce" and measured.place.kind == "node"
        return of(1, None, "all-reduce", slow=0.5)(measured) if inside else of(1, 0, "matmul")(measured)

    found = judged(tmp_path, speed=share).findings
    (exchange,) = [finding for finding in found if finding.place.words == "node 1"]
    assert exchange.because == "it is the exchange between the devices of this node"


def test_a_node_on_the_processor_is_judged_like_a_device(tmp_path: Path) -> None:
    """Its pairs are slow because the node is: it is named once."""
    made = fleets.asked(kind="cpu", devices=1)

    def quota(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes == (3,) and measured.what == "step":
            record["telemetry"][0]["machine"]["cpu_others_share"] = dict.fromkeys(("mean", "min", "max"), 0.6)

    everything = of(3, None, "step", "matmul", "memory", "all-reduce", slow=0.7)
    (finding,) = judged(tmp_path, made, speed=everything, change=quota).findings
    assert (finding.place.words, finding.cause) == ("node 3", "machine")
    assert "processor time of other processes while it trained was 60 %, theirs 1 %" in finding.sentence


@pytest.mark.slow
def test_what_is_missing_is_named_and_the_rest_is_judged(tmp_path: Path) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    gone = next(one for one in made.measurements() if one.place.nodes == (0,) and one.what == "memory")
    (tmp_path / gone.record).unlink()
    found = verdict.judge(made, tmp_path)
    assert (found.verdict, verdict.status(found)) == ("not measured", 2)
    assert [one.record for one in found.missing] == [gone.record]
    assert any("node 0, GPU 0: memory is missing (1 run): its node was away" in line for line in verdict.lines(found))
    (tmp_path / gone.log).write_text("rank 0: killed by signal 9")
    (told,) = verdict.judge(made, tmp_path).missing
    assert told.reason == f"it did not finish; {gone.log} says why"
    other = next(one for one in made.measurements() if one.place.nodes == (2,))
    content = json.loads((tmp_path / other.record).read_text())
    (tmp_path / other.record).write_text(json.dumps(content | {"status": "oom", "samples_per_s": None, "reason": "no"}))
    assert "oom: no" in {one.reason for one in verdict.judge(made, tmp_path).missing}


def not_ended(folder: Path, visit: str, made: list[str], failed: dict[str, Any]) -> None:
    """Leave what a node job leaves that did not end."""
    (folder / visit).unlink()
    write_json(unfinished(folder / visit), {"schema": SCHEMA, "records": made, "failed": failed})


def test_a_record_of_an_earlier_visit_does_not_count(tmp_path: Path) -> None:
    """Snakemake has removed the file of a node job that it wanted to have again, and that did not take place."""
    made = fleets.asked()
    fleets.write(made, tmp_path)
    visit, several = next((visit, several) for visit, several in made.visits().items() if "node3/" in visit)
    (tmp_path / visit).unlink()
    found = verdict.judge(made, tmp_path)
    assert found.verdict == "not measured"
    assert {one.record for one in found.missing} == {one.record for one in several}
    assert "its record is of an earlier node job" in found.missing[0].reason

    write_json(tmp_path / visit, {"schema": SCHEMA, "records": []})
    not_ended(tmp_path, visit, [one.record for one in several[:2]], {several[2].record: {"reason": "x", "broken": []}})
    found = verdict.judge(made, tmp_path)
    assert len(found.missing) == len(several) - 2
    assert found.missing[0].reason == "x"


def test_a_node_that_is_away_leaves_the_verdict_open_although_it_has_figures(tmp_path: Path) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    found = verdict.judge(made, tmp_path, {3: "Slurm says that it is down"})
    assert (found.verdict, found.missing) == ("not measured", [])
    assert found.summary == "The verdict on 4 nodes is inconclusive: node 3 is away."
    told = "node 3 is away, because Slurm says that it is down; its figures are of 2026-11-20"
    assert told in list(verdict.lines(found)) and told in verdict.paragraph(found)
    for one in made.measurements():
        if one.place.nodes == (3,):
            (tmp_path / one.record).unlink()
    found = verdict.judge(made, tmp_path, {3: "Slurm says that it is down"})
    assert found.away_in_words() == []
    assert {one.reason for one in found.missing} == {"node 3 is away, because Slurm says that it is down"}
    fleets.write(made, tmp_path, speed=of(1, 0, "matmul"))
    assert verdict.judge(made, tmp_path, {3: "it is off"}).verdict == "outliers"


def test_figures_of_two_nights_get_a_remark(tmp_path: Path) -> None:
    def earlier(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes == (3,):
            record |= {"started": "2026-11-19T13:00:00Z", "ended": "2026-11-19T13:01:00Z"}

    assert not any("hours apart" in remark for remark in judged(tmp_path / "one").remarks)
    found = judged(tmp_path / "two", change=earlier)
    assert any("up to 23 hours apart (2026-11-19 to 2026-11-20)" in remark for remark in found.remarks)


def test_a_gpu_that_was_refused_for_its_faults_is_named(tmp_path: Path) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    fault = "has 3 uncorrected ECC errors since the driver was loaded"
    for visit, several in made.visits().items():
        if "node3/" in visit:
            bad = [one.record for one in several if one.place.device in (None, 1)]
            reason = f"the GPUs of node 3 are not fit to be measured: GPU 1 {fault}"
            failure = {"reason": reason, "broken": [{"node": 3, "device": 1, "fault": fault}]}
            not_ended(tmp_path, visit, [one.record for one in several], dict.fromkeys(bad, failure))
            for record in bad:
                (tmp_path / record).unlink()
    found = verdict.judge(made, tmp_path)
    (finding,) = found.findings
    assert (verdict.status(found), finding.cause) == (1, "machine")
    assert finding.sentence == f"node 3, GPU 1 {fault}. It is the machine: a measurement there was refused."
    assert "broken: node 3, GPU 1; " in found.summary and "slow:" not in found.summary
    assert {one.reason for one in found.missing} == {reason}
    assert fault in verdict.paragraph(found)


@pytest.mark.parametrize(("lacking", "status"), [((3,), 1), ((0, 1, 2, 3), 2)])
def test_a_node_that_lacks_a_gpu_is_named_if_others_have_theirs(
    tmp_path: Path, lacking: tuple[int, ...], status: int
) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    for visit, several in made.visits().items():
        if (node := several[0].place.nodes[0]) in lacking and several[0].place.visit == f"node{node}":
            fault = "lacks a GPU: there are 1, and 2 are to be measured"
            failure = {"reason": "too few", "broken": [{"node": node, "device": None, "fault": fault}]}
            not_ended(tmp_path, visit, [], {several[-1].record: failure})
    found = verdict.judge(made, tmp_path)
    assert verdict.status(found) == status
    assert [one.place.words for one in found.findings] == (["node 3"] if status == 1 else [])


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, 0.0, -1.0])
def test_a_figure_that_is_no_positive_number_is_missing(tmp_path: Path, value: float | None) -> None:
    """Otherwise its place would vanish, and the fleet would be fit without it."""

    def nothing(measured: Measurement, record: dict[str, Any]) -> None:
        if (measured.place.nodes, measured.what) == ((3,), "memory"):
            record["figures"][0]["value"] = value

    found = judged(tmp_path, change=nothing)
    assert found.verdict == "not measured"
    assert {one.what for one in found.missing} == {"memory"}
    assert found.missing[0].reason == f"its figure vector_memory is {'not there' if value is None else value}"


def test_a_run_without_its_figure_is_missing(tmp_path: Path) -> None:
    def none(measured: Measurement, record: dict[str, Any]) -> None:
        if (measured.place.nodes, measured.what) == ((3,), "matmul"):
            record["figures"] = []

    assert {one.what for one in judged(tmp_path, change=none).missing} == {"matmul"}


def test_of_two_nodes_that_differ_the_verdict_is_open(tmp_path: Path) -> None:
    made = fleets.asked(nodes=2, devices=1)
    equal = judged(tmp_path / "equal", made)
    assert equal.summary == "The 2 nodes are fit: no device or node is slow; links were not compared."
    found = judged(tmp_path / "unequal", made, speed=of(1, None, "matmul", slow=0.8))
    assert found.verdict == "not measured"
    assert "of two nobody can tell which one is wrong" in found.unjudged[0]


@pytest.mark.parametrize("slow", [(0, 3), (1,), (0, 1, 2)])
def test_two_slow_nodes_of_four_leave_the_verdict_open(tmp_path: Path, slow: tuple[int, ...]) -> None:
    """One of four is found. Three of four are taken for what is usual, and a fast node is no fault."""
    made = fleets.asked(nodes=4, devices=1, kind="cpu")
    found = judged(
        tmp_path, made, speed=lambda one: 0.7 if one.place.nodes[0] in slow and one.place.kind == "node" else 1.0
    )
    assert found.verdict == {1: "outliers", 2: "not measured", 3: "fit"}[len(slow)]
    if len(slow) == 2:
        assert "places differ, and nobody can tell which ones are slow" in found.summary
        assert found.unjudged[0].startswith("matrix product: node 0, node 3 (2 of 4) are 29.")
    assert any("can be told from the rest: at most 1 of 4 nodes, 1 of 6 pairs;" in one for one in verdict.lines(found))


def sometimes(measured: Measurement) -> float:
    """Make node 2 slow in two of three repeats."""
    return 0.6 if measured.place.nodes == (2,) and measured.spec.repeat > 1 else 1.0


def test_a_place_that_is_far_behind_in_some_repeats_leaves_the_verdict_open(tmp_path: Path) -> None:
    found = judged(tmp_path, speed=sometimes)
    assert (found.verdict, found.findings) == ("not measured", [])
    assert found.summary.startswith(
        "The verdict on 4 nodes is inconclusive: it is not certain whether these are slow: node 2"
    )
    (told,) = [line for line in verdict.lines(found) if line.startswith("not certain: ")]
    assert "node 2 by 40 % (" in told and "more repeats" in told
    assert "Not certain: " in verdict.paragraph(found)


def test_what_lies_within_the_tolerance_is_certain_enough(tmp_path: Path) -> None:
    found = judged(tmp_path, fleets.asked(tolerance=0.5), speed=sometimes)
    assert (found.verdict, found.unsure_in_words()) == ("fit", [])


def test_the_pairs_of_a_node_that_is_named_are_no_riddle(tmp_path: Path) -> None:
    def share(measured: Measurement) -> float:
        return 0.5 if measured.place.kind in ("pair", "all") and 2 in measured.place.nodes else 1.0

    found = judged(tmp_path, speed=share)
    assert found.summary == "Not fit (4 nodes): slow: node 2."
    assert found.unsure_in_words() == []
    shown.write(found, tmp_path / "standings.csv", tmp_path / "pairs.csv")
    rows = list(csv.DictReader((tmp_path / "standings.csv").open(encoding="utf-8")))
    told = {row["slow"] for row in rows if row["place"] == "nodes 0 and 2"}
    assert "because of node 2" in told
    assert "not certain" not in {row["slow"] for row in rows}


def test_a_slow_link_explains_no_slow_device(tmp_path: Path) -> None:
    def share(measured: Measurement) -> float:
        shaky = measured.place.nodes == (2,) and measured.what == "memory" and measured.spec.repeat > 1
        slow = measured.place.kind in ("pair", "all") and 2 in measured.place.nodes
        return 0.5 if slow else 0.6 if shaky and measured.place.device == 0 else 1.0

    found = judged(tmp_path, speed=share)
    assert [finding.place.words for finding in found.findings] == ["node 2"]
    assert found.unsure_in_words()[0].startswith("not certain: node 2, GPU 0 by 40 % (memory) lie")


def test_a_slow_gpu_leaves_another_place_of_its_node_uncertain(tmp_path: Path) -> None:
    def share(measured: Measurement) -> float:
        other = (measured.place.nodes, measured.place.device) == ((3,), 0)
        shaky = 0.6 if other and measured.what == "memory" and measured.spec.repeat > 1 else 1.0
        return shaky * of(3, 1, "matmul")(measured)

    found = judged(tmp_path, speed=share)
    assert [finding.place.words for finding in found.findings] == ["node 3, GPU 1"]
    assert "node 3, GPU 0 by 40 %" in found.unsure_in_words()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, "The 4 nodes are fit: no device, node or link is slow."),
        ({"kind": "cpu"}, "The 4 nodes are fit: no node or link is slow."),
        ({"pairs": "none"}, "The 4 nodes are fit: no device or node is slow; links were not compared."),
        ({"measure": ["matmul"]}, "The 4 nodes are fit: no device is slow; nodes and links were not compared."),
        ({"nodes": 1, "devices": 8}, "The node is fit: no device is slow; nodes were not compared."),
    ],
)
def test_a_fit_fleet_says_what_was_compared(tmp_path: Path, how: dict[str, Any], told: str) -> None:
    made = fleets.asked(**how)
    found = judged(tmp_path, made)
    assert found.summary == told
    alone = [remark for remark in found.remarks if remark.startswith("these figures were not compared")]
    assert len(alone) == (made.fleet.nodes == (0,))
    if alone:
        assert alone[0].endswith(": all-reduce (nodes), all-reduce of a small message (nodes), training step (nodes)")


def test_a_single_device_has_no_peers(tmp_path: Path) -> None:
    found = judged(tmp_path, fleets.asked(nodes=1, devices=1))
    assert found.verdict == "not measured"
    assert "no figure has peers" in found.unjudged[0]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "status", "word"), [(690.0, 0, "above"), (705.0, 0, "below"), (794.5, 1, "below")])
def test_what_is_expected_is_compared_with_the_slowest(tmp_path: Path, value: float, status: int, word: str) -> None:
    row = Expectation(what="matmul", at="device", value=value, unit="TFLOPS", source="a published table")
    found = judged(tmp_path, fleets.asked(expected=[row]))
    assert verdict.status(found) == status
    assert f"% {word} the expected" in found.expected[0].sentence


def test_a_published_figure_is_set_beside_the_slowest_and_fails_nobody(tmp_path: Path) -> None:
    rows = [
        Expectation(what="matmul", at="device", value=800.0, unit="TFLOPS", source="a published table"),
        Expectation(what="matmul", at="device", size=77, value=1.0, unit="TFLOPS", source="a published table"),
    ]
    found = judged(tmp_path, fleets.asked(published=rows))
    assert (found.verdict, found.expected) == ("fit", [])
    assert found.published[0].share == pytest.approx(0.87, abs=0.01) and not found.published[0].short
    assert "% of the published 800.0 TFLOPS (a published table)." in found.published[0].sentence
    assert found.published[1].share is None and "was not measured" in found.published[1].sentence


def test_expected_figures_that_were_not_measured_leave_the_verdict_open(tmp_path: Path) -> None:
    row = Expectation(what="matmul", at="device", size=77, value=1.0, unit="TFLOPS", source="a published table")
    found = judged(tmp_path, fleets.asked(expected=[row]))
    assert (found.verdict, found.expected[0].reached) == ("not measured", None)


def test_the_hardware_limits_what_a_device_can_reach(tmp_path: Path) -> None:
    found = judged(tmp_path)
    limits = {(figure.what, figure.kind): figure.limit for figure in found.figures if "algorithm" not in figure.figure}
    assert limits["all-reduce", "node"] == pytest.approx(450), "18 links of 25 GB/s in one direction"
    assert limits["matmul", "device"] == pytest.approx(989.4)
    assert limits["memory", "device"] == pytest.approx(3350)
    assert limits["step", "device"] is None


def test_the_latency_of_small_messages_is_judged_and_less_is_better(tmp_path: Path) -> None:
    found = judged(tmp_path)
    (latency,) = [one for one in found.figures if one.figure == "latency" and one.kind == "pair"]
    assert (latency.size, latency.unit, latency.better) == (1024, "us", "less")
    assert latency.standings[0].median == pytest.approx((2**10 + 2**20) / 300e3, rel=0.02)


def test_the_command_prints_the_verdict_and_its_status_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = judged(tmp_path, speed=of(3, 1, "matmul"))
    monkeypatch.chdir(tmp_path)
    write_json(tmp_path / "results/acceptance.json", found.model_dump(by_alias=True))
    assert accept.main() == 1
    printed = capsys.readouterr().out
    assert "node 3, GPU 1: matrix product" in printed and "names of the nodes" not in printed
    (tmp_path / "results/acceptance.local.json").write_text("{}")
    assert accept.main() == 1
    assert "results/acceptance.local.json" in capsys.readouterr().out.splitlines()[-1]
    paragraph = verdict.paragraph(found)
    assert "\n" not in paragraph and found.findings[0].sentence in paragraph
    assert " on 4 nodes with 2 x NVIDIA H100 80GB HBM3 each, 3 repeats; " in paragraph


def test_the_command_says_when_it_was_measured_and_what_another_call_may_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    first = made.measurements()[0]
    content = json.loads((tmp_path / first.record).read_text())
    refused = content | {"status": "unsupported", "samples_per_s": None, "reason": "no fp8"}
    (tmp_path / first.record).write_text(json.dumps(refused))
    found = verdict.judge(made, tmp_path)
    file = tmp_path / "acceptance.json"
    write_json(file, found.model_dump(by_alias=True))
    assert accept.main(file) == 2
    printed = capsys.readouterr().out
    assert "Measured from 2026-11-20T12:00:00Z to 2026-11-20T12:01:30Z." in printed
    assert "unsupported: no fp8; another call does not try it again" in printed and "Next: " not in printed


NAMES = {0: "green-0.example.org", 1: "me@green-1", 2: "green-2.a.org", 3: "green-2.b.org"}


@pytest.mark.parametrize(
    ("name", "number"), [("green-0", 0), ("green-0.example.org", 0), ("green-1.example.org", 1), ("green-2.b.org", 3)]
)
def test_a_node_is_known_by_its_name_with_or_without_its_domain(name: str, number: int) -> None:
    assert one_node.number(name, NAMES) == number


@pytest.mark.parametrize("name", ["green", "green-2", "me@green-1", ""])
def test_a_name_of_no_node_or_of_two_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="4 nodes are known"):
        one_node.number(name, NAMES)


def test_a_prolog_asks_about_its_own_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = fleets.asked()

    def speed(measured: Measurement) -> float:
        return 0.5 if measured.place.nodes == (1, 2) else of(3, 1, "matmul")(measured)

    fleets.write(made, tmp_path, speed=speed)
    lost = next(one for one in made.measurements() if one.place.nodes == (0,))
    (tmp_path / lost.record).unlink()
    file = tmp_path / "acceptance.json"
    write_json(file, verdict.judge(made, tmp_path).model_dump(by_alias=True))

    def asked(name: str) -> tuple[int, str]:
        status = accept.main(file, node=name)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    status, said = asked("violet")
    assert status == 2 and "0 nodes are known" in said
    names = {str(number): name for number, name in enumerate(["red", "green", "blue", "violet"])}
    write_json(tmp_path / "acceptance.local.json", {"nodes": names})
    status, said = asked("violet")
    assert status == 1 and said.startswith("node 3, GPU 1: matrix product") and "nodes 1 and 2" not in said
    assert [asked(name)[0] for name in ("blue", "green")] == [1, 1], "the link between the two is slow"
    status, said = asked("red")
    assert status == 2 and "is missing (1 run)" in said
    status, said = asked("black")
    assert status == 2 and "no node of this name" in said and "4 nodes are known" in said and "black" not in said


def test_a_node_is_fit_whose_fleet_is_not(tmp_path: Path) -> None:
    """What other nodes lack, or its pairs with them, is not its own."""
    made = fleets.asked()
    fleets.write(made, tmp_path, speed=of(3, 1, "matmul"))
    for one in made.measurements():
        if 1 in one.place.nodes:
            (tmp_path / one.record).unlink()
    found = verdict.judge(made, tmp_path, {1: "it is off"})
    assert found.verdict == "outliers"
    assert one_node.told(found, 0) == (0, ["node 0 is fit"])
    assert one_node.told(found, 1)[0] == 2
    assert one_node.told(found, 7) == (2, ["node 7 was not asked for"])


def test_a_node_is_not_fit_if_it_is_below_what_is_expected(tmp_path: Path) -> None:
    row = Expectation(what="matmul", at="device", value=700.0, unit="TFLOPS", source="an order")
    found = judged(tmp_path, fleets.asked(expected=[row]), speed=lambda one: 0.95 if one.place.nodes == (2,) else 1.0)
    found = found.model_copy(update={"findings": []})
    status, lines = one_node.told(found, 2)
    assert status == 1 and lines[0].startswith("node 2, GPU 0: matrix product is 9")
    assert one_node.told(found, 0)[0] == 0


@pytest.mark.parametrize("content", [None, "{", '{"schema": 99}', "[" * 100_000])
def test_a_verdict_that_cannot_be_read_is_open_and_not_an_outlier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    """A prolog drains a node on 1."""
    file = tmp_path / "acceptance.json"
    if content is not None:
        file.write_text(content)
    assert accept.main(file) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_the_paragraph_counts_one_as_one(tmp_path: Path) -> None:
    found = judged(tmp_path, fleets.asked(nodes=1, devices=1, repeats=1))
    assert " on 1 node with 1 x NVIDIA H100 80GB HBM3, 1 repeat; " in verdict.paragraph(found)


def test_models_that_differ_are_named(tmp_path: Path) -> None:
    def older(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes[0] >= 2:
            record["device"]["name"] = "NVIDIA A100-SXM4-80GB"

    found = judged(tmp_path, fleets.asked(measure=["matmul"]), change=older)
    (told,) = [one for one in found.remarks if one.startswith("the devices are of different models")]
    assert told.endswith("NVIDIA A100-SXM4-80GB in node 2, node 3; NVIDIA H100 80GB HBM3 in node 0, node 1")
    assert " on 4 nodes with 2 devices each, 3 repeats; " in verdict.paragraph(found)
    assert not any("models" in one for one in judged(tmp_path, fleets.asked(measure=["matmul"])).remarks)


@pytest.mark.parametrize(("nodes", "outcome"), [(4, "not measured"), (16, "fit")])
def test_among_many_peers_what_lies_in_their_spread_is_no_doubt(tmp_path: Path, nodes: int, outcome: str) -> None:
    """All places differ by 20 % from run to run. Sixteen of them show that this is usual."""
    chance = random.Random(3)
    found = judged(
        tmp_path, fleets.asked(nodes=nodes, devices=1, kind="cpu", measure=["matmul"]),
        speed=lambda _: math.exp(chance.gauss(0, 0.2)),
    )  # fmt: skip
    distances = [one.distance or 0.0 for figure in found.figures for one in figure.standings]
    assert min(distances) < -0.1 and found.verdict == outcome

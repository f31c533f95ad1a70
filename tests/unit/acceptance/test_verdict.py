"""The verdict on a fleet: fit, outliers or inconclusive; what is missing, what nobody can tell, what is expected."""

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from throughline.acceptance import verdict
from throughline.files import write_json
from throughline.records import SCHEMA
from throughline.records.acceptance import STATUS, Acceptance, unfinished
from throughline.report.render import acceptance as shown
from throughline.study.accept_section import Expectation
from throughline.study.acceptance import Measurement
from unit.acceptance import fleets
from unit.acceptance.fleets import Share, all_of, judged, slow, slow_network

CPU: dict[str, Any] = {"kind": "cpu", "devices": 1}


def places(found: Acceptance) -> list[str]:
    return [str(finding.place) for finding in found.findings]


def doubts(found: Acceptance) -> list[str]:
    return [line for line in verdict.notes(found) if line.startswith("Not certain: ")]


def sometimes(measured: Measurement) -> float:
    """Make node 2 slow in two of three repeats."""
    return 0.6 if measured.place.nodes == (2,) and measured.spec.repeat > 1 else 1.0


def shaky(node: int) -> Share:
    """Make the memory of the first GPU of a node slow in two of three repeats."""

    def share(measured: Measurement) -> float:
        here = (measured.place.nodes, measured.place.device, measured.what) == ((node,), 0, "memory")
        return 0.6 if here and measured.spec.repeat > 1 else 1.0

    return share


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, "The 4 nodes are fit: no device, node or link is slow."),
        (CPU, "The 4 nodes are fit: no node or link is slow."),
        ({"pairs": "none"}, "The 4 nodes are fit: no device or node is slow; links were not compared."),
        ({"measure": ["matmul"]}, "The 4 nodes are fit: no device is slow; nodes and links were not compared."),
        ({"nodes": 2, "devices": 1}, "The 2 nodes are fit: no device or node is slow; links were not compared."),
        ({"nodes": 1, "devices": 8}, "The node is fit: no device is slow; nodes were not compared."),
    ],
)
def test_a_fit_fleet_says_what_was_compared(tmp_path: Path, how: dict[str, Any], told: str) -> None:
    found = judged(tmp_path, fleets.asked(**how))
    assert (found.summary, STATUS[found.verdict], found.findings, found.missing) == (told, 0, [], [])
    alone = [remark for remark in found.remarks if remark.startswith("These figures were not compared")]
    if how.get("nodes") == 1:
        assert alone[0].endswith(
            ": all-reduce (nodes), all-reduce of a small message (nodes), disk read (nodes), "
            "disk write (nodes), training step (nodes)"
        )
    elif "devices" not in how:
        assert not alone
    if not how:
        assert {(figure.what, figure.kind) for figure in found.figures if figure.judged} == {
            *((what, "device") for what in ("step", "matmul", "memory", "copies")),
            ("step", "node"), ("disk", "node"), ("all-reduce", "node"), ("all-reduce", "pair"), ("all-reduce", "link"),
        }  # fmt: skip


def test_a_single_device_has_no_peers_and_is_counted_as_one(tmp_path: Path) -> None:
    found = judged(tmp_path, fleets.asked(nodes=1, devices=1, repeats=1))
    assert found.verdict == "inconclusive" and "no figure has peers" in found.unjudged[0]
    assert " on 1 node with 1 x NVIDIA H100 80GB HBM3, 1 repeat; " in verdict.paragraph(found)


def test_nothing_but_gaps_is_inconclusive(tmp_path: Path) -> None:
    made = fleets.asked(nodes=2, devices=1)
    found = verdict.judge(made, tmp_path)
    assert (found.verdict, found.figures, len(found.missing)) == ("inconclusive", [], len(made.measurements()))
    assert "Measured never to never on 2 nodes" in verdict.paragraph(found)


def test_of_two_places_nobody_can_tell_which_one_is_wrong(tmp_path: Path) -> None:
    found = judged(tmp_path, fleets.asked(nodes=2, devices=1), speed=slow(1, None, "matmul", by=0.8))
    assert found.verdict == "inconclusive"
    assert "of two nobody can tell which one is wrong" in found.unjudged[0]


@pytest.mark.parametrize(
    ("nodes", "outcome"), [((1,), "outliers"), ((0, 3), "inconclusive"), ((0, 1, 2), "fit")], ids=str
)
def test_two_slow_nodes_of_four_leave_the_verdict_open(tmp_path: Path, nodes: tuple[int, ...], outcome: str) -> None:
    """One of four is found. Three of four are taken for what is usual, and a fast node is no fault."""
    made = fleets.asked(nodes=4, **CPU)
    found = judged(
        tmp_path, made, speed=lambda one: 0.7 if one.place.nodes[0] in nodes and one.place.kind == "node" else 1.0
    )
    assert found.verdict == outcome
    if outcome == "inconclusive":
        assert "places differ, and nobody can tell which ones are slow" in found.summary
        assert found.unjudged[0].startswith("matrix product: node 0, node 3 (2 of 4) are 29.")
    assert any("At most 1 of 4 nodes, 1 of 6 pairs can be called slow;" in one for one in found.remarks)


def test_a_place_that_is_far_behind_in_some_repeats_leaves_the_verdict_open(tmp_path: Path) -> None:
    found = judged(tmp_path, speed=sometimes)
    assert (found.verdict, found.findings) == ("inconclusive", [])
    assert found.summary.startswith(
        "The verdict on 4 nodes is inconclusive: it is not certain whether these are slow: node 2"
    )
    assert "node 2 by 40 % (" in doubts(found)[0] and "more repeats" in doubts(found)[0]
    assert "Not certain: " in verdict.paragraph(found)
    within = judged(tmp_path, fleets.asked(tolerance=0.5), speed=sometimes)
    assert (within.verdict, doubts(within)) == ("fit", []), "what lies within the tolerance is certain enough"


@pytest.mark.parametrize(
    ("speed", "named", "doubt"),
    [
        (slow_network(2), "node 2", None),
        (all_of(slow_network(2), shaky(2)), "node 2", "node 2 GPU 0 by 40 % (memory) lie"),
        (all_of(slow(3, 1, "matmul"), shaky(3)), "node 3, GPU 1", "node 3 GPU 0 by 40 %"),
    ],
    ids=["its pairs", "a device is not slow by its link", "another device of its node"],
)
def test_what_a_finding_explains_is_not_in_doubt(tmp_path: Path, speed: Share, named: str, doubt: str | None) -> None:
    found = judged(tmp_path, speed=speed)
    assert places(found) == [named] and found.summary.startswith(f"Not fit (4 nodes): slow: {named.replace(',', '')}")
    assert (doubt in doubts(found)[0]) if doubt else doubts(found) == []
    shown.write(found, tmp_path / "standings.csv", tmp_path / "pairs.csv")
    rows = list(csv.DictReader((tmp_path / "standings.csv").open(encoding="utf-8")))
    told = {row["slow"] for row in rows if row["place"] == "nodes 0 and 2"}
    assert ("because of node 2" in told) == (named == "node 2")
    assert ("not certain" in {row["slow"] for row in rows}) == (doubt is not None)


@pytest.mark.parametrize(("nodes", "outcome"), [(4, "inconclusive"), (16, "fit")])
def test_among_many_peers_what_lies_in_their_spread_is_no_doubt(tmp_path: Path, nodes: int, outcome: str) -> None:
    """All places differ by 20 % from run to run. Sixteen of them show that this is usual."""
    chance = random.Random(3)
    found = judged(
        tmp_path, fleets.asked(nodes=nodes, measure=["matmul"], **CPU), speed=lambda _: math.exp(chance.gauss(0, 0.2))
    )
    assert max(one.behind for figure in found.figures for one in figure.standings) > 0.1 and found.verdict == outcome


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_sound_disks_differ_and_leave_no_doubt(tmp_path: Path, nodes: int) -> None:
    chance = random.Random(4)
    made = fleets.asked(nodes=nodes, measure=["disk"], **CPU)
    found = judged(tmp_path, made, speed=lambda _: math.exp(chance.gauss(0, 0.15)))
    assert max(one.behind for figure in found.figures for one in figure.standings) > 0.02
    assert found.verdict == "fit"


def test_a_slow_disk_is_named_with_its_file_system(tmp_path: Path) -> None:
    def file_system(measured: Measurement, record: dict[str, Any]) -> None:
        record["settings"] = {"file_system": "nfs4" if measured.place.nodes == (2,) else "ext4"}

    found = judged(tmp_path, fleets.asked(**CPU), speed=slow(2, None, "disk", by=0.1), change=file_system)
    (finding,) = found.findings
    assert finding.sentence.startswith("node 2: disk ") and "was nfs4, theirs ext4; reason: another" in finding.sentence
    assert (places(found), finding.cause) == (["node 2"], "machine")
    assert " slower than its peers (a disk: 40 %) and stands out" in verdict.paragraph(found)


def test_a_disk_in_memory_is_not_measured_and_not_missing(tmp_path: Path) -> None:
    def in_memory(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.what == "disk" and measured.place.nodes == (1,):
            record["settings"] = {"file_system": "tmpfs"}
            record["figures"] = [figure | {"value": None} for figure in record["figures"]]

    found = judged(tmp_path, change=in_memory)
    assert (found.verdict, found.missing) == ("fit", [])
    assert any(remark.startswith("No disk of node 1 was measured, because") for remark in found.remarks)


def test_what_is_missing_is_named_with_its_reason(tmp_path: Path) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    gone = next(one for one in made.measurements() if one.place.nodes == (0,) and one.what == "memory")
    (tmp_path / gone.record).unlink()
    found = verdict.judge(made, tmp_path)
    assert (found.verdict, [run.record for run in found.missing]) == ("inconclusive", [gone.record])
    assert any("node 0 GPU 0: memory is missing (1 run): its node was away" in line for line in verdict.lines(found))
    (tmp_path / gone.log).write_text("rank 0: killed by signal 9")
    other, third = (next(one for one in made.measurements() if one.place.nodes == (node,)) for node in (2, 3))
    for measured, changed in ((other, {"status": "oom", "samples_per_s": None, "reason": "no"}), (third, {"spec": {}})):
        content = json.loads((tmp_path / measured.record).read_text())
        (tmp_path / measured.record).write_text(json.dumps(content | changed))
    reasons = {run.record: run.reason for run in verdict.judge(made, tmp_path).missing}
    assert reasons[gone.record] == f"it did not finish; {gone.log} says why"
    assert reasons[other.record] == "oom: no" and reasons[third.record].startswith("spec.benchmark: ")


def not_ended(folder: Path, visit: str, made: list[str], failed: dict[str, Any]) -> None:
    """Leave what a node job leaves that did not end."""
    (folder / visit).unlink()
    write_json(unfinished(folder / visit), {"schema": SCHEMA, "records": made, "failed": failed})


def test_a_record_of_an_earlier_visit_does_not_count(tmp_path: Path) -> None:
    """Snakemake has removed the file of a node job that it wanted to have again, and that did not take place."""
    made = fleets.asked()
    fleets.write(made, tmp_path)
    visit, several = next((visit, several) for visit, several in made.visits.items() if "node3/" in visit)
    (tmp_path / visit).unlink()
    found = verdict.judge(made, tmp_path)
    assert found.verdict == "inconclusive"
    assert {run.record for run in found.missing} == {measured.record for measured in several}
    assert "its record is of an earlier node job" in found.missing[0].reason

    write_json(tmp_path / visit, {"schema": SCHEMA, "records": []})
    not_ended(tmp_path, visit, [one.record for one in several[:2]], {several[2].record: {"reason": "x", "broken": []}})
    found = verdict.judge(made, tmp_path)
    assert (len(found.missing), found.missing[0].reason) == (len(several) - 2, "x")


def test_a_node_that_is_away_leaves_the_verdict_open_although_it_has_figures(tmp_path: Path) -> None:
    made, away = fleets.asked(), {3: "Slurm says that it is down"}
    fleets.write(made, tmp_path)
    found = verdict.judge(made, tmp_path, away)
    assert (found.verdict, found.missing) == ("inconclusive", [])
    assert found.summary == "The verdict on 4 nodes is inconclusive: node 3 is away."
    told = "node 3 is away, because Slurm says that it is down"
    assert f"{told}; its figures are of 2026-11-20" in verdict.lines(found)
    assert f"{told}; its figures are of 2026-11-20" in verdict.paragraph(found)
    for measured in made.measurements():
        if measured.place.nodes == (3,):
            (tmp_path / measured.record).unlink()
    found = verdict.judge(made, tmp_path, away)
    assert list(verdict.away(found.away)) == [] and {run.reason for run in found.missing} == {told}
    fleets.write(made, tmp_path, speed=slow(1, 0, "matmul"))
    assert verdict.judge(made, tmp_path, away).verdict == "outliers"


def test_a_gpu_that_was_refused_for_its_faults_is_named(tmp_path: Path) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    fault = "has 3 uncorrected ECC errors since the driver was loaded"
    reason = f"the GPUs of node 3 are not fit to be measured: GPU 1 {fault}"
    failure = {"reason": reason, "broken": [{"node": 3, "device": 1, "fault": fault}]}
    for visit, several in made.visits.items():
        if "node3/" in visit:
            bad = [one.record for one in several if one.place.device in (None, 1)]
            not_ended(tmp_path, visit, [one.record for one in several], dict.fromkeys(bad, failure))
            for record in bad:
                (tmp_path / record).unlink()
    found = verdict.judge(made, tmp_path)
    (finding,) = found.findings
    assert (STATUS[found.verdict], finding.cause) == (1, "machine")
    assert finding.sentence == f"node 3, GPU 1 {fault}. It is the machine: it could not be measured."
    assert "broken: node 3 GPU 1; " in found.summary and "slow:" not in found.summary
    assert {run.reason for run in found.missing} == {reason} and fault in verdict.paragraph(found)


@pytest.mark.parametrize(("lacking", "named"), [([0], ["node 0"]), ([0, 1], [])])
def test_nodes_that_lack_a_gpu_are_broken_if_most_others_have_theirs(
    tmp_path: Path, lacking: list[int], named: list[str]
) -> None:
    made = fleets.asked(measure=["step"])
    fleets.write(made, tmp_path)
    for node in lacking:
        visit = f"results/acceptance/node{node}/visit1.json"
        failure = {"reason": "x", "broken": [{"node": node, "device": None, "fault": "lacks a GPU"}]}
        not_ended(tmp_path, visit, [], {made.visits[visit][0].record: failure})
    assert places(verdict.judge(made, tmp_path)) == named


def test_other_days_and_other_models_get_a_remark(tmp_path: Path) -> None:
    def earlier(measured: Measurement, record: dict[str, Any]) -> None:
        if measured.place.nodes[0] >= 2:
            record |= {"started": "2026-11-19T13:00:00Z", "ended": "2026-11-19T13:01:00Z"}
            record["device"]["name"] = "NVIDIA A100-SXM4-80GB"

    made = fleets.asked(measure=["matmul"])
    found = judged(tmp_path / "two", made, change=earlier)
    remarks = "\n".join(found.remarks)
    assert "up to 23 hours apart (2026-11-19 to 2026-11-20)" in remarks
    assert "NVIDIA A100-SXM4-80GB in node 2, node 3; NVIDIA H100 80GB HBM3 in node 0, node 1" in remarks
    assert " on 4 nodes with 2 devices each, 3 repeats; " in verdict.paragraph(found)
    usual = "\n".join(judged(tmp_path / "one", made).remarks)
    assert "hours apart" not in usual and "models" not in usual


@pytest.mark.parametrize(
    ("value", "size", "outcome", "words"),
    [
        (690.0, None, "fit", "above the expected 690.0 TFLOPS (a table)."),
        (705.0, None, "fit", "below the expected"),
        (794.5, None, "outliers", "below the expected"),
        (1.0, 77, "inconclusive", "1.000 TFLOPS (a table) is expected, and the figure was not measured."),
    ],
)
def test_what_is_expected_or_published_is_compared_with_the_slowest(
    tmp_path: Path, value: float, size: int | None, outcome: str, words: str
) -> None:
    """What is published fails nobody."""
    row = Expectation(what="matmul", at="device", size=size, value=value, unit="TFLOPS", source="a table")
    made = fleets.asked(measure=["matmul"], expected=[row], published=[row])
    found = judged(tmp_path, made)
    ((expected,), (published,)) = found.expected, found.published
    assert (found.verdict, expected.short, published.short) == (outcome, outcome == "outliers", False)
    assert words in expected.sentence and (expected.share is None) == (size is not None)
    assert ("is published, and" if size else f"% of the published {value:.1f} TFLOPS") in published.sentence
    assert judged(tmp_path, fleets.asked(measure=["matmul"], published=[row])).verdict == "fit"


def test_the_hardware_limits_what_a_device_can_reach_and_a_small_message_has_a_latency(tmp_path: Path) -> None:
    found = judged(tmp_path)
    limits = {(figure.what, figure.kind): figure.limit for figure in found.figures}
    assert limits["all-reduce", "node"] == pytest.approx(450), "18 links of 25 GB/s in one direction"
    assert limits["matmul", "device"] == pytest.approx(989.4)
    assert limits["memory", "device"] == pytest.approx(3350)
    assert limits["step", "device"] is None
    (latency,) = [one for one in found.figures if one.figure == "latency" and one.kind == "pair"]
    assert (latency.size, latency.unit, latency.better) == (1024, "us", "less")
    assert latency.standings[0].median == pytest.approx((2**10 + 2**20) / 300e3, rel=0.02)

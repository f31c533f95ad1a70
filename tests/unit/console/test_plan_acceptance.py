"""What the plan says about an acceptance before it begins, and what is left of it meanwhile."""

from __future__ import annotations

from pathlib import Path

from throughline.console import plan, plan_acceptance
from throughline.study import acceptance
from throughline.study.acceptance import Fleet
from throughline.study.config import Config

SIXTEEN = Fleet(tuple(range(16)), 8, "cuda")


def minutes(fleet: Fleet, on_slurm: bool, root: Path) -> float:
    visits = acceptance.asked(Config(), fleet).visits()
    text = plan_acceptance.of_call(visits, set(visits), fleet, {}, on_slurm, root).lines[-1]
    return float(text.split("about ")[1].split()[0])


def test_sixteen_nodes_side_by_side_take_minutes_and_one_after_another_hours(tmp_path: Path) -> None:
    assert 20 < minutes(SIXTEEN, True, tmp_path) < 60
    assert minutes(SIXTEEN, False, tmp_path) > 300


def test_the_plan_counts_what_is_missing_and_names_who_is_away(tmp_path: Path) -> None:
    fleet = Fleet((0, 1, 2), 1, "cpu")
    visits = acceptance.asked(Config(), fleet).visits()
    pending = [file for file in visits if "node2" not in file]
    made = plan_acceptance.of_call(visits, pending, fleet, {2: "Slurm says that it is down"}, True, tmp_path)
    said = made.lines
    assert said[0] == "  acceptance of 3 nodes: 33 of 42 measurements to make, in 18 node jobs"
    assert "node 2 is left out, because Slurm says that it is down" in said[1]
    assert "side by side; accept.repeats" in said[-1]
    text = str(plan.Plan([], [pending], acceptance=made))
    assert said[0] in text
    assert "no training run" not in text


def test_the_time_left_follows_the_pace_of_the_visits_so_far(tmp_path: Path) -> None:
    fleet = Fleet((0, 1, 2), 1, "cpu")
    visits = acceptance.asked(Config(), fleet).visits()
    made = plan_acceptance.of_call(visits, set(visits), fleet, {}, False, tmp_path)
    first, second, *rest = made.to_make
    every = sum(made.expected_s.values())
    assert made.left_s((), {}) == every
    assert made.left_s((), {first: 5.0}) == every - 5
    made.took_s[first] = 2 * made.expected_s[first]
    left = made.left_s({first}, {})
    assert left == 2 * (every - made.expected_s[first]), "everything takes twice as long as expected"
    assert made.left_s({first, second}, {}) < left, "a node job that has failed is not waited for"
    assert made.words(first) == f"node job  1 of {len(visits)}: node 0, repeat 1"
    assert made.words(rest[-1]) == f"node job  1 of {len(visits)}: all nodes, repeat 3"

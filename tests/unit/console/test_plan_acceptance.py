"""What the plan says about an acceptance before it begins."""

from __future__ import annotations

from pathlib import Path

from throughline.console import plan, plan_acceptance
from throughline.study import acceptance
from throughline.study.acceptance import Fleet
from throughline.study.config import Config

SIXTEEN = Fleet(tuple(range(16)), 8, "cuda")


def minutes(fleet: Fleet, on_slurm: bool, root: Path) -> float:
    visits = acceptance.asked(Config(), fleet).visits()
    text = plan_acceptance.lines(visits, set(visits), fleet, {}, on_slurm, root)[-1]
    return float(text.split("about ")[1].split()[0])


def test_sixteen_nodes_side_by_side_take_minutes_and_one_after_another_hours(tmp_path: Path) -> None:
    assert 20 < minutes(SIXTEEN, True, tmp_path) < 60
    assert minutes(SIXTEEN, False, tmp_path) > 300


def test_the_plan_counts_what_is_missing_and_names_who_is_away(tmp_path: Path) -> None:
    fleet = Fleet((0, 1, 2), 1, "cpu")
    visits = acceptance.asked(Config(), fleet).visits()
    pending = [file for file in visits if "node2" not in file]
    said = plan_acceptance.lines(visits, pending, fleet, {2: "Slurm says that it is down"}, True, tmp_path)
    assert said[0] == "  acceptance of 3 nodes: 33 of 42 measurements to make, in 18 visits"
    assert "node 2 is left out, because Slurm says that it is down" in said[1]
    assert "side by side; accept.repeats" in said[-1]
    text = str(plan.Plan([], [pending], acceptance=said))
    assert said[0] in text
    assert "no training run" not in text

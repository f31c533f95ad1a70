"""The five answers at the head of a benchmark follow from its figures and verdicts, and say what would tell more."""

from pathlib import Path
from typing import Any

from report_fixture import group_of, jitter, summarized
from throughline.report.analysis import cells, summary
from throughline.report.answers import answers
from throughline.report.topic import Scope
from throughline.study.result_sections import Price

QUESTIONS = ["Fastest", "Scales", "Limited by", "Costs", "Next"]


def groups(root: Path, speeds: dict[str, list[float]], **changes: Any) -> list[cells.Group]:
    return [group_of(summarized(root, speeds, **changes))]


def told(*scope: Any) -> dict[str, str]:
    return {answer.question: answer.text for answer in answers(Scope(*scope))}


def test_one_topology_has_no_speedup_and_no_known_parts(tmp_path: Path) -> None:
    here = groups(tmp_path, {"1n1g": jitter(100.0)})
    found = answers(Scope(here, here))
    assert [answer.question for answer in found] == ["Speed", *QUESTIONS[1:]]
    assert [answer.telling for answer in found] == [True, False, False, False, True]
    text = told(here, here)
    assert text["Speed"].startswith("torch trains bert-base at 100.0 samples/s on 1 device (1n1g)")
    assert "speedup" not in text["Speed"] and "there is one topology" in text["Scales"]
    assert "`extras: [no_gradient_sync, synthetic]` measures it" in text["Limited by"]
    assert text["Costs"].startswith("No price is known for Tesla V100-SXM2-16GB")
    assert text["Next"].startswith("Find out what a step spends")


def test_a_step_up_that_is_certain_and_one_that_is_not(tmp_path: Path) -> None:
    sure = groups(tmp_path / "sure", {"1n1g": jitter(100.0), "1n4g": jitter(360.0)})
    assert told(sure, sure)["Scales"].startswith(
        "3.60 times one device on 4 devices (1n4g) (range 3.57 to 3.63), 90 % of the ideal."
    )
    unsure = groups(tmp_path / "unsure", {"1n1g": jitter(100.0), "1n4g": [60.0, 130.0, 99.0, 85.0, 118.0]})
    assert told(unsure, unsure)["Scales"] == "Not known: 1n4g over 1n1g is inconclusive."
    open_ = groups(tmp_path / "open", {"1n1g": jitter(100.0), "1n4g": [60.0, 101.0, 140.0, 99.0, 180.0]})
    text = told(open_, open_)
    assert text["Scales"].endswith("The comparison with 1n1g: inconclusive.")
    assert text["Next"].startswith("Let the machine idle and measure again: repeats lie up to 119 % apart")
    slower = groups(tmp_path / "slower", {"1n1g": jitter(100.0), "1n4g": jitter(70.0)})
    assert told(slower, slower)["Scales"] == "Not here: 1n4g over 1n1g is slower in these runs."


def test_parts_of_a_step_limit_it(tmp_path: Path) -> None:
    here = groups(tmp_path, {"1n1g": jitter(100.0), "1n4g": jitter(300.0)})
    extra = {"benchmark": "bert__no_gradient_sync", "options": {"gradient_sync": False}}
    without = groups(tmp_path, {"1n4g": jitter(400.0)}, **extra)
    text = told(here, [*here, *without])
    assert text["Limited by"] == "A step of torch 1n4g takes: compute and input 75 %, communication 25 %."
    assert [answer.question for answer in answers(Scope(without, [*here, *without]))] == ["Speed"]


def test_a_price_and_a_task_have_a_cost(tmp_path: Path) -> None:
    terms = summary.Terms(prices={"V100": Price(per_hour=3.6, currency="USD")}, total_samples=36_000_000)
    here = groups(tmp_path, {"1n1g": jitter(100.0)}, terms=terms)
    text = told(here, here)["Costs"]
    assert text.startswith("10.00 USD for a million samples; the whole task: 100.0 hours, 360.0 USD (prices.V100")

"""`throughline accept`: its exit status and what it prints, about a fleet and about one of its nodes."""

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from throughline.acceptance import verdict
from throughline.commands import accept
from throughline.files import UserError, write_json
from throughline.study.accept_section import Expectation
from unit.acceptance import fleets
from unit.acceptance.fleets import all_of, judged, slow, slow_pairs

Said = Callable[..., tuple[int, str]]
NAMES = {0: "green-0.example.org", 1: "me@green-1", 2: "green-2.a.org", 3: "green-2.b.org"}


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """Call the command, and return its exit status and what it has printed."""

    def call(node: str | None = None) -> tuple[int, str]:
        status = accept.main(tmp_path / "acceptance.json", node=node)
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return call


def test_it_prints_the_verdict_and_the_names_of_bad_nodes(tmp_path: Path, said: Said) -> None:
    found = judged(tmp_path, speed=slow(3, 1, "matmul"))
    write_json(tmp_path / "acceptance.json", found.model_dump(by_alias=True))
    status, text = said()
    assert status == 1 and "node 3, GPU 1: matrix product" in text and "node 3 is" not in text
    names = {str(number): f"{platform.node()}{number}" for number in range(4)}
    write_json(tmp_path / "acceptance.local.json", {"nodes": names})
    assert said()[1].splitlines()[-1] == f"node 3 is {names['3']}" and "node 2 is" not in said()[1]
    paragraph = verdict.paragraph(found)
    assert "\n" not in paragraph and found.findings[0].sentence in paragraph
    assert " on 4 nodes with 2 x NVIDIA H100 80GB HBM3 each, 3 repeats; " in paragraph


def test_it_says_when_it_was_measured_and_what_another_call_may_change(tmp_path: Path, said: Said) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path)
    first = made.measurements()[0]
    content = json.loads((tmp_path / first.record).read_text())
    refused = content | {"status": "unsupported", "samples_per_s": None, "reason": "no fp8"}
    (tmp_path / first.record).write_text(json.dumps(refused))
    write_json(tmp_path / "acceptance.json", verdict.judge(made, tmp_path).model_dump(by_alias=True))
    status, text = said()
    assert status == 2 and "Measured from 2026-11-20T12:00:00Z to 2026-11-20T12:01:30Z." in text
    assert "unsupported: no fp8; another call does not try it again" in text and "Next: " not in text


@pytest.mark.parametrize("content", [None, "{", '{"schema": 99}', "[" * 100_000])
def test_a_verdict_that_cannot_be_read_is_inconclusive(tmp_path: Path, said: Said, content: str | None) -> None:
    """A prolog drains a node on 1."""
    if content is not None:
        (tmp_path / "acceptance.json").write_text(content)
    status, text = said()
    assert status == 2 and text.startswith("error: ")


@pytest.mark.parametrize(
    ("name", "number"), [("green-0", 0), ("green-0.example.org", 0), ("green-1.example.org", 1), ("green-2.b.org", 3)]
)
def test_a_node_is_known_by_its_name_with_or_without_its_domain(name: str, number: int) -> None:
    assert verdict.node_number(name, NAMES) == number


@pytest.mark.parametrize("name", ["green", "green-2", "me@green-1", ""])
def test_a_name_of_no_node_or_of_two_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="4 nodes are known"):
        verdict.node_number(name, NAMES)


def test_a_prolog_asks_about_its_own_node(tmp_path: Path, said: Said) -> None:
    made = fleets.asked()
    fleets.write(made, tmp_path, speed=all_of(slow_pairs((1, 2)), slow(3, 1, "matmul")))
    lost = next(one for one in made.measurements() if one.place.nodes == (0,))
    (tmp_path / lost.record).unlink()
    write_json(tmp_path / "acceptance.json", verdict.judge(made, tmp_path).model_dump(by_alias=True))
    assert said("violet")[0] == 2 and "0 nodes are known" in said("violet")[1]
    names = {str(number): name for number, name in enumerate(["red", "green", "blue", "violet"])}
    write_json(tmp_path / "acceptance.local.json", {"nodes": names})
    status, text = said("violet")
    assert status == 1 and text.startswith("node 3, GPU 1: matrix product") and "nodes 1 and 2" not in text
    assert [said(name)[0] for name in ("blue", "green")] == [1, 1], "the link between the two is slow"
    status, text = said("red")
    assert status == 2 and "is missing (1 run)" in text
    status, text = said("black")
    assert status == 2 and "no node of this name" in text and "4 nodes are known" in text and "black" not in text


def test_a_node_is_fit_whose_fleet_is_not(tmp_path: Path) -> None:
    """What other nodes lack, or its pairs with them, does not count for it."""
    made = fleets.asked()
    fleets.write(made, tmp_path, speed=slow(3, 1, "matmul"))
    for measured in made.measurements():
        if 1 in measured.place.nodes:
            (tmp_path / measured.record).unlink()
    found = verdict.judge(made, tmp_path, {1: "it is off"})
    assert found.verdict == "outliers"
    assert verdict.of_node(found, 0) == (0, ["node 0 is fit"])
    assert verdict.of_node(found, 1)[0] == 2
    assert verdict.of_node(found, 7) == (2, ["node 7 was not asked for"])


def test_a_node_is_not_fit_if_it_is_below_what_is_expected(tmp_path: Path) -> None:
    row = Expectation(what="matmul", at="device", value=700.0, unit="TFLOPS", source="an order")
    found = judged(tmp_path, fleets.asked(expected=[row]), speed=lambda one: 0.95 if one.place.nodes == (2,) else 1.0)
    found = found.model_copy(update={"findings": []})
    status, lines = verdict.of_node(found, 2)
    assert status == 1 and lines[0].startswith("node 2, GPU 0: matrix product is 9")
    assert verdict.of_node(found, 0)[0] == 0

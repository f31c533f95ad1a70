"""Which nodes are away, as the verdict states it."""

from __future__ import annotations

import json

from throughline.launch import away
from throughline.launch.fleet import Settled
from throughline.study.acceptance import Fleet


def test_a_reason_names_no_node() -> None:
    names = {0: "violet.rack.example", 1: "me@violet", 3: "violet-3"}
    reasons = {3: "it cannot be reached (violet-3: no route\nto 10.11.12.13)", 0: "violet.rack.example is down"}
    told = away.text(Settled(Fleet((0, 1, 3), 1, "cpu"), names, reasons))
    assert json.loads(told) == {
        "0": "node 0 is down",
        "3": "it cannot be reached (node 3: no route to ADDRESS)",
    }
    assert "\n" not in told


def test_without_such_a_node_the_text_is_always_the_same() -> None:
    """It is a parameter of the verdict's rule: another text makes the verdict again."""
    assert away.text(Settled(Fleet((0,), 1, "cpu"), {0: "violet"})) == "{}"

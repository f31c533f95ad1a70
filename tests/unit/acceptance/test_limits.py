"""What the network between nodes can reach: one broken node does not lower it, and a fault of all nodes is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from throughline.acceptance import figures, verdict
from throughline.records.acceptance import Acceptance, FleetFigure
from throughline.study.acceptance import Measurement
from unit.acceptance import fleets

ETHERNET = {"name": "a", "gbit_per_s": 100.0}
PORT = {"name": "mlx5_0", "gbit_per_s": 400.0, "link_layer": "InfiniBand"}
ACTIVE, DOWN = PORT | {"state": "active"}, PORT | {"state": "down"}


def judged(folder: Path, machines: dict[int, dict[str, Any]], **how: Any) -> Acceptance:
    """Judge three equal nodes with these networks. how: changes of the fleet."""

    def network(measured: Measurement, record: dict[str, Any]) -> None:
        record["hardware"] = [
            {"node": index, "machine": machines[node], "devices": [], "reasons": {}}
            for index, node in enumerate(measured.place.nodes)
        ]  # fmt: skip

    made = fleets.asked(nodes=3, devices=1, measure=["all-reduce"])
    made = replace(made, specs=tuple((what, replace(spec, **how)) for what, spec in made.specs))
    fleets.write(made, folder, change=network)
    return verdict.judge(made, folder)


def of_pairs(found: Acceptance) -> FleetFigure:
    """Return the bus bandwidth of the largest message, of pairs."""
    return next(one for one in figures.largest(found.figures) if (one.kind, one.figure) == ("pair", "bus_bandwidth"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("usual", "odd", "expected"),
    [
        ({"network": [ETHERNET, ETHERNET | {"gbit_per_s": 10.0}]}, {}, 12.5),
        ({"network": [ETHERNET]}, {"network": [ETHERNET | {"gbit_per_s": 10.0}]}, 12.5),
        ({"network": [ETHERNET], "infiniband": [ACTIVE, ACTIVE, DOWN]}, {"infiniband": [ACTIVE, DOWN, DOWN]}, 100.0),
        ({"network": [ETHERNET], "infiniband": [DOWN]}, {"infiniband": [ACTIVE]}, 12.5),
        ({}, {}, None),
    ],
)
def test_a_broken_node_does_not_lower_what_pairs_can_reach(
    tmp_path: Path, usual: dict[str, Any], odd: dict[str, Any], expected: float | None
) -> None:
    figure = of_pairs(judged(tmp_path, {0: usual, 1: {**usual, **odd}, 2: usual}))
    assert figure.limit == expected


def test_simulated_nodes_have_no_network(tmp_path: Path) -> None:
    found = judged(tmp_path, {node: {"network": [ETHERNET]} for node in range(3)}, hosts="simulated")
    assert of_pairs(found).limit is None


def test_pairs_that_all_reach_little_are_told(tmp_path: Path) -> None:
    fast = judged(tmp_path / "fast", {node: {"infiniband": [ACTIVE] * 6} for node in range(3)})
    slow = judged(tmp_path / "slow", {node: {"infiniband": [ACTIVE] * 16} for node in range(3)})
    told = [[one for one in found.remarks if one.startswith("The pairs of nodes")] for found in (fast, slow)]
    assert told[0] == []
    assert "The pairs of nodes reach 37 % of their network's speed (median 29" in told[1][0]
    assert (slow.verdict, slow.findings) == ("fit", [])
    assert "The pairs of nodes reach 37 %" in verdict.paragraph(slow)

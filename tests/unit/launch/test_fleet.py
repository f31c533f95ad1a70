"""The nodes of an acceptance: their numbers stay, names are in one file, and nodes that are away are left out."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from throughline.files import UserError
from throughline.launch import fleet, seen_devices, slurm_partition
from throughline.launch.fleet import FleetNodes, NodeDevices
from throughline.launch.slurm_partition import SlurmNode
from throughline.messages import Gpus
from throughline.study.accept_section import Accept
from unit.launch.conftest import Program


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return tmp_path / "acceptance.local.json"


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> list[SlurmNode]:
    """The nodes that Slurm names; a test adds to them."""
    nodes: list[SlurmNode] = []
    monkeypatch.setattr(slurm_partition, "nodes", lambda name: tuple(nodes))
    return nodes


def node(name: str, state: str = "idle", gpus: int = 0, features: str = "plain") -> SlurmNode:
    return SlurmNode(name, state, gpus, 8, frozenset(features.split(",")))


def find(local: Path, on_slurm: bool = True, **section: Any) -> FleetNodes:
    """Return the nodes of an acceptance with these keys in its section."""
    return fleet.find(Accept.model_validate(section), on_slurm, path=local)


def test_a_node_keeps_its_number_when_others_come_and_go(
    partition: list[SlurmNode], local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of names is private from its first moment. Simulated nodes leave it as it is."""
    modes, replaced = [], os.replace

    def replace_file(source: Path, target: Path) -> None:
        modes.append(stat.S_IMODE(source.stat().st_mode))
        replaced(source, target)

    monkeypatch.setattr(os, "replace", replace_file)
    monkeypatch.setattr(seen_devices, "seen", lambda *_: Gpus(None, 0, None, True))
    partition[:] = [node("b"), node("c")]
    first = find(local)
    first.write(local)
    assert (first.fleet.nodes, dict(first.names)) == ((0, 1), {0: "b", 1: "c"})
    partition[:] = [node("a"), node("c")]
    second = find(local)
    second.write(local)
    assert (second.fleet.nodes, dict(second.names)) == ((1, 2), {1: "c", 2: "a"})
    before = local.read_bytes()
    assert json.loads(before)["nodes"] == {"0": "b", "1": "c", "2": "a"} and modes == [0o600, 0o600]
    simulated = find(local, False, hosts="simulated", nodes=3)
    simulated.write(local)
    assert local.read_bytes() == before and (simulated.names, simulated.fleet.numbering) == ({}, None)
    assert fleet.read_nodes(local).fleet == second.fleet and first.fleet.numbering == second.fleet.numbering
    local.unlink()
    assert find(local).fleet.numbering != first.fleet.numbering
    local.write_text('{"nodes": ["a"]}')
    with pytest.raises(UserError, match="does not say which number"):
        fleet.node_names(local)
    with pytest.raises(UserError, match="is not on this node"):
        fleet.read_nodes(local.with_name("none.json"))


def test_nodes_of_a_partition(partition: list[SlurmNode], local: Path) -> None:
    partition[:] = [node("a"), node("b", "down*"), node("c")]
    cpus = find(local)
    assert (cpus.fleet.nodes, cpus.fleet.threads) == ((0, 1, 2), 8)
    assert dict(cpus.away) == {1: "Slurm says that it is down*"}
    assert find(local, nodes=1).fleet.nodes == (0,)
    with pytest.raises(UserError, match=r"accept\.nodes is 4, and the number of nodes here is 3"):
        find(local, nodes=4)
    partition[:] = [node(name, gpus=8, features="a100,ib") for name in "ab"] + [node("c", gpus=4)]
    assert find(local).away == {2: "it has 4 GPUs, and most nodes have 8 GPUs"}
    gpus = find(local, constraint="a100&ib").fleet
    assert (gpus.kind, gpus.devices, gpus.nodes, gpus.threads) == ("cuda", 8, (0, 1), 1)
    assert find(local, devices=4).fleet.devices == find(local, hosts=["c"]).fleet.devices == 4
    with pytest.raises(UserError, match=r"entry 2 of accept\.hosts is no node"):
        find(local, hosts=["a", "z"])
    partition.append(node("d"))
    with pytest.raises(UserError, match="3 of the partition's 4 nodes have GPUs"):
        find(local)


@pytest.mark.parametrize(
    ("counts", "devices", "away"),
    [
        ((7, 8, 8), None, {0: "it has 7 GPUs, and most nodes have 8 GPUs"}),
        ((8, 0, 8), None, {1: "it has no GPU, and most nodes have 8 GPUs"}),
        ((8, 1, 8), 8, {1: "it has 1 GPU, and accept.devices is 8"}),
        ((0, 8, 16), 8, {0: "it has no GPU, and most nodes have 8 GPUs"}),
        ((8, 8, -8), None, {2: "it has 8 GPUs of kind rocm, and most nodes have 8 GPUs of kind cuda"}),
        ((8, 7), None, "node 0 has 8 GPUs, and node 1 has 7 GPUs"),
        ((8, 8, 4, 2), None, "node 0 has 8 GPUs, and node 2 has 4 GPUs"),
        ((0, 7, 7), 8, "accept.devices is 8, and node 1 has 7 GPUs"),
    ],
)
def test_a_node_unlike_most_others_is_away_and_without_a_majority_nobody_can_tell(
    monkeypatch: pytest.MonkeyPatch, local: Path, counts: tuple[int, ...], devices: int | None, away: Any
) -> None:
    """A node on which nothing finds a GPU counts as one without. A negative count is of GPUs of another kind."""
    kinds = ["cuda" if count > 0 else "rocm" if count < 0 else "cpu" for count in counts]
    nodes = [NodeDevices(f"host{number}", kinds[number], abs(count), 64) for number, count in enumerate(counts)]
    monkeypatch.setattr(fleet, "_behind_ssh", lambda _: nodes)
    if isinstance(away, str):
        with pytest.raises(UserError, match=away):
            find(local, False, hosts=["a"], devices=devices)
        return
    found = find(local, False, hosts=["a"], devices=devices)
    assert (found.fleet.kind, found.fleet.devices, found.away) == ("cuda", 8, away)
    assert found.fleet.nodes == tuple(range(len(counts)))


def test_this_machine_is_one_node(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    monkeypatch.setattr(seen_devices, "seen", lambda *_: Gpus("cuda", 8, "a card", True))
    assert replace(find(local, False).fleet, numbering=None) == fleet.Fleet((0,), 8, "cuda")
    simulated = find(local, False, hosts="simulated", nodes=4).fleet
    assert (simulated.nodes, simulated.devices, simulated.hosts) == ((0, 1, 2, 3), 2, "simulated")
    on_cpu = find(local, False, device="cpu", threads=3).fleet
    assert replace(on_cpu, numbering=None) == fleet.Fleet((0,), 1, "cpu", 3)
    for section, what in (
        ({"devices": 9}, r"accept\.devices is 9, and node 0 has 8 GPUs"),
        ({"hosts": "simulated", "devices": 5}, r"5 GPUs of each of 2 simulated nodes .* has 8 GPUs"),
        ({"nodes": 2}, "accept.nodes is 2, and the number of nodes here is 1"),
    ):
        with pytest.raises(UserError, match=what):
            find(local, False, **section)


def test_a_host_that_does_not_answer_is_away(program: Program, local: Path) -> None:
    """A synthetic ssh, which runs the command here for one host and reaches the other one not at all."""
    body = 'for word; do case $word in there) ok=1;; esac; last=$word; done; [ "$ok" ] || exit 255; exec sh -c "$last"'
    program("ssh", body)
    found = find(local, False, hosts=["elsewhere", "there"], device="cpu")
    assert (found.fleet.hosts, found.fleet.nodes, list(found.away)) == ("ssh", (0, 1), [0])
    assert "cannot be reached" in found.away[0] and "elsewhere" not in found.away[0]


def test_names_reach_slurm_through_private_files() -> None:
    first, again, other = (Path(fleet.node_file(names)) for names in (("a", "b"), ("a", "b"), ("c",)))
    assert first == again != other and first.read_text() == "a\nb\n"
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    code = "from throughline.launch import fleet; print(fleet.node_file(('a',)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert "throughline-nodes-" in ended and not Path(ended).parent.exists()


def test_the_reason_why_a_node_is_away_names_no_node() -> None:
    """The text is a parameter of the verdict's rule: another text makes the verdict again."""
    names = {0: "violet.rack.example", 1: "me@violet", 3: "violet-3"}
    reasons = {3: "it cannot be reached (violet-3: no route\nto 10.11.12.13)", 0: "violet.rack.example is down"}
    text = FleetNodes(fleet.Fleet((0, 1, 3), 1, "cpu"), names, reasons).away_text
    assert text == '{"0":"node 0 is down","3":"it cannot be reached (node 3: no route to ADDRESS)"}'
    assert FleetNodes(fleet.Fleet((0,), 1, "cpu"), {0: "violet"}).away_text == "{}"

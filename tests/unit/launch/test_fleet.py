"""The nodes of an acceptance: their numbers stay, names are in one file, and nodes that are away are left out."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from throughline.files import UserError
from throughline.launch import fleet, seen_devices, slurm_partition
from throughline.launch.fleet import Seen
from throughline.launch.slurm_partition import SlurmNode
from throughline.messages import Gpus
from throughline.study.accept_section import Accept


def accept(**values: Any) -> Accept:
    return Accept.model_validate(values)


def node(name: str, state: str = "idle", gpus: int = 0, cores: int = 8, features: str = "plain") -> SlurmNode:
    return SlurmNode(name, state, gpus, cores, frozenset(features.split(",")))


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return tmp_path / "acceptance.local.json"


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> list[SlurmNode]:
    """The nodes that Slurm names; a test adds to them."""
    nodes: list[SlurmNode] = []
    monkeypatch.setattr(slurm_partition, "nodes", lambda name: tuple(nodes))
    return nodes


def test_a_node_keeps_its_number_when_others_come_and_go(partition: list[SlurmNode], local: Path) -> None:
    partition[:] = [node("b"), node("c")]
    first = fleet.find(accept(), True, path=local)
    first.write(local)
    assert (first.fleet.nodes, dict(first.names)) == ((0, 1), {0: "b", 1: "c"})
    partition[:] = [node("a"), node("c")]
    second = fleet.find(accept(), True, path=local)
    second.write(local)
    assert (second.fleet.nodes, dict(second.names)) == ((1, 2), {1: "c", 2: "a"})
    assert json.loads(local.read_text())["nodes"] == {"0": "b", "1": "c", "2": "a"}
    assert stat.S_IMODE(local.stat().st_mode) == 0o600
    assert fleet.settled(local).fleet == second.fleet
    assert first.fleet.numbering == second.fleet.numbering
    local.unlink()
    assert fleet.find(accept(), True, path=local).fleet.numbering != first.fleet.numbering


def test_a_node_that_is_down_keeps_its_place_and_is_away(partition: list[SlurmNode], local: Path) -> None:
    partition[:] = [node("a"), node("b", "down*"), node("c")]
    found = fleet.find(accept(), True, path=local)
    assert found.fleet.nodes == (0, 1, 2)
    assert dict(found.away) == {1: "Slurm says that it is down*"}
    assert found.fleet.threads == 8


def test_nodes_with_gpus_are_measured_on_them(partition: list[SlurmNode], local: Path) -> None:
    partition[:] = [node(name, gpus=8, features="a100,ib") for name in "ab"] + [node("c", gpus=4)]
    assert fleet.find(accept(), True, path=local).away == {2: "it has 4 GPUs, and most nodes have 8 GPUs"}
    found = fleet.find(accept(constraint="a100&ib"), True, path=local).fleet
    assert (found.kind, found.devices, found.nodes, found.threads) == ("cuda", 8, (0, 1), 1)
    assert fleet.find(accept(devices=4), True, path=local).fleet.devices == 4
    assert fleet.find(accept(hosts=["c"]), True, path=local).fleet.devices == 4
    with pytest.raises(UserError, match=r"entry 2 of accept\.hosts is no node"):
        fleet.find(accept(hosts=["a", "z"]), True, path=local)
    partition.append(node("d"))
    with pytest.raises(UserError, match="3 of the partition's 4 nodes have GPUs"):
        fleet.find(accept(), True, path=local)


def gpu_nodes(*counts: int) -> list[Seen]:
    """Nodes in the order of their numbers. A node on which nothing finds a GPU counts as one without."""
    return [Seen(f"host{number}", "cuda" if count else "cpu", count, 64) for number, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "devices", "away"),
    [
        ((7, 8, 8), None, {0: "it has 7 GPUs, and most nodes have 8 GPUs"}),
        ((8, 0, 8), None, {1: "it has no GPU, and most nodes have 8 GPUs"}),
        ((8, 1, 8), 8, {1: "it has 1 GPU, and accept.devices is 8"}),
        ((7, 8), 8, {0: "it has 7 GPUs, and accept.devices is 8"}),
        ((0, 8, 16), 8, {0: "it has no GPU, and most nodes have 8 GPUs"}),
    ],
)
def test_a_node_with_a_lost_gpu_is_away_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, local: Path, counts: tuple[int, ...], devices: int | None, away: dict[int, str]
) -> None:
    monkeypatch.setattr(fleet, "_behind_ssh", lambda _: gpu_nodes(*counts))
    found = fleet.find(accept(hosts=["a"], devices=devices), False, path=local)
    assert (found.fleet.kind, found.fleet.devices) == ("cuda", 8)
    assert (found.fleet.nodes, found.away) == (tuple(range(len(counts))), away)


@pytest.mark.parametrize(
    ("counts", "devices", "what"),
    [
        ((8, 7), None, "node 0 has 8 GPUs, and node 1 has 7 GPUs"),
        ((8, 8, 4, 2), None, "node 0 has 8 GPUs, and node 2 has 4 GPUs"),
        ((0, 8), 8, "node 0 has no GPU, and node 1 has 8 GPUs"),
        ((0, 7, 7), 8, r"accept\.devices is 8, and node 1 has 7 GPUs"),
    ],
)
def test_without_a_majority_nobody_can_tell_which_nodes_are_odd(
    monkeypatch: pytest.MonkeyPatch, local: Path, counts: tuple[int, ...], devices: int | None, what: str
) -> None:
    monkeypatch.setattr(fleet, "_behind_ssh", lambda _: gpu_nodes(*counts))
    with pytest.raises(UserError, match=what):
        fleet.find(accept(hosts=["a"], devices=devices), False, path=local)


def test_gpus_of_another_kind_are_called_by_it(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    nodes = [*gpu_nodes(8, 8), Seen("other", "rocm", 8)]
    monkeypatch.setattr(fleet, "_behind_ssh", lambda _: nodes)
    away = fleet.find(accept(hosts=["a"]), False, path=local).away
    assert away == {2: "it has 8 GPUs of kind rocm, and most nodes have 8 GPUs of kind cuda"}


def test_simulated_nodes_leave_the_names_of_a_cluster_as_they_are(
    partition: list[SlurmNode], monkeypatch: pytest.MonkeyPatch, local: Path
) -> None:
    monkeypatch.setattr(seen_devices, "seen", lambda *_: Gpus(None, 0, None, True))
    partition[:] = [node("a"), node("b"), node("c")]
    cluster = fleet.find(accept(), True, path=local)
    cluster.write(local)
    before = local.read_bytes()
    simulated = fleet.find(accept(hosts="simulated", nodes=3), False, path=local)
    simulated.write(local)
    assert local.read_bytes() == before
    assert (simulated.names, simulated.fleet.numbering) == ({}, None)
    again = fleet.find(accept(), True, path=local)
    assert (again.names, again.fleet.numbering) == (cluster.names, cluster.fleet.numbering)


def test_the_names_are_private_from_the_first_moment(
    partition: list[SlurmNode], monkeypatch: pytest.MonkeyPatch, local: Path
) -> None:
    modes, replaced = [], os.replace

    def replace(source: Path, target: Path) -> None:
        modes.append(stat.S_IMODE(source.stat().st_mode))
        replaced(source, target)

    monkeypatch.setattr(os, "replace", replace)
    partition[:] = [node("a")]
    fleet.find(accept(), True, path=local).write(local)
    assert modes == [0o600]


def test_fewer_nodes_than_asked_for_is_an_error(partition: list[SlurmNode], local: Path) -> None:
    partition[:] = [node("a"), node("b")]
    assert fleet.find(accept(nodes=1), True, path=local).fleet.nodes == (0,)
    with pytest.raises(UserError, match=r"accept\.nodes is 3, and there are 2 nodes"):
        fleet.find(accept(nodes=3), True, path=local)


def test_this_machine_is_one_node(monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    monkeypatch.setattr(seen_devices, "seen", lambda *_: Gpus("cuda", 8, "made up", True))
    found = fleet.find(accept(), False, path=local).fleet
    assert replace(found, numbering=None) == fleet.Fleet((0,), 8, "cuda")
    found = fleet.find(accept(hosts="simulated", nodes=4), False, path=local).fleet
    assert (found.nodes, found.devices, found.hosts) == ((0, 1, 2, 3), 2, "simulated")
    found = fleet.find(accept(device="cpu", threads=3), False, path=local).fleet
    assert replace(found, numbering=None) == fleet.Fleet((0,), 1, "cpu", 3)
    with pytest.raises(UserError, match=r"accept\.devices is 9, and node 0 has 8 GPUs"):
        fleet.find(accept(devices=9), False, path=local)
    with pytest.raises(UserError, match=r"5 GPUs of each of 2 simulated nodes are to be measured, and .* has 8 GPUs"):
        fleet.find(accept(hosts="simulated", devices=5), False, path=local)
    with pytest.raises(UserError, match="this machine is one node"):
        fleet.find(accept(nodes=2), False, path=local)


def test_a_host_that_does_not_answer_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    """A synthetic ssh, which runs the command here for one host and reaches the other one not at all."""
    body = 'for word; do case $word in there) ok=1;; esac; last=$word; done; [ "$ok" ] || exit 255; exec sh -c "$last"'
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{body}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = fleet.find(accept(hosts=["elsewhere", "there"], device="cpu"), False, path=local)
    assert found.fleet.hosts == "ssh"
    assert found.fleet.nodes == (0, 1)
    assert list(found.away) == [0]
    assert "cannot be reached" in found.away[0]
    assert "elsewhere" not in found.away[0]


def test_a_damaged_file_of_names_is_an_error(local: Path) -> None:
    local.write_text('{"nodes": ["a"]}')
    with pytest.raises(UserError, match="does not say which number"):
        fleet.known(local)
    with pytest.raises(UserError, match="is not on this node"):
        fleet.settled(local.with_name("none.json"))


def test_names_reach_slurm_through_private_files() -> None:
    made = fleet.NodeFiles()
    first, again, other = made.file(["a", "b"]), made.file(["a", "b"]), made.file(["c"])
    assert first == again != other
    assert first.read_text() == "a\nb\n"
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    made.remove()
    assert not first.parent.exists()


def test_a_reason_names_no_node() -> None:
    names = {0: "violet.rack.example", 1: "me@violet", 3: "violet-3"}
    reasons = {3: "it cannot be reached (violet-3: no route\nto 10.11.12.13)", 0: "violet.rack.example is down"}
    told = fleet.away_text(fleet.Settled(fleet.Fleet((0, 1, 3), 1, "cpu"), names, reasons))
    assert json.loads(told) == {
        "0": "node 0 is down",
        "3": "it cannot be reached (node 3: no route to ADDRESS)",
    }
    assert "\n" not in told


def test_without_such_a_node_the_text_is_always_the_same() -> None:
    """It is a parameter of the verdict's rule: another text makes the verdict again."""
    assert fleet.away_text(fleet.Settled(fleet.Fleet((0,), 1, "cpu"), {0: "violet"})) == "{}"

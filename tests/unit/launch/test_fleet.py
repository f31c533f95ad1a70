"""The nodes of an acceptance: their numbers stay, names are in one file, and nodes that are away are left out."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from throughline.files import UserError
from throughline.launch import fleet, seen_devices, slurm_partition
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


def test_sinfo_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "n10|gpu*|idle|gpu:a100:8(S:0-1),nvme:1|64|a100,ib\nn9|gpu*|down*|gpu:8|32|(null)\nn1|cpu|idle|(null)|8|x"
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho '{lines}'\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    slurm_partition.nodes.cache_clear()
    nine, ten = slurm_partition.nodes(None)
    assert (nine.name, nine.gpus, nine.cores, nine.is_up) == ("n9", 8, 32, False)
    assert (ten.name, ten.gpus, ten.cores, ten.is_up, "ib" in ten.features) == ("n10", 8, 64, True, True)
    slurm_partition.nodes.cache_clear()


@pytest.mark.parametrize(
    ("state", "is_up"),
    [("idle", True), ("mixed-", True), ("allocated+", True), ("idle~", True), ("idle*", False), ("drained", False)],
)
def test_only_nodes_on_which_jobs_start_are_up(state: str, is_up: bool) -> None:
    assert node("n", state).is_up == is_up


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
    with pytest.raises(UserError, match="node 2 has 4 GPUs, and node 0 has 8"):
        fleet.find(accept(), True, path=local)
    found = fleet.find(accept(constraint="a100&ib"), True, path=local).fleet
    assert (found.kind, found.devices, found.nodes, found.threads) == ("cuda", 8, (0, 1), 1)
    assert fleet.find(accept(devices=4), True, path=local).fleet.devices == 4
    assert fleet.find(accept(hosts=["c"]), True, path=local).fleet.devices == 4
    with pytest.raises(UserError, match=r"entry 2 of accept\.hosts is no node"):
        fleet.find(accept(hosts=["a", "z"]), True, path=local)
    partition.append(node("d"))
    with pytest.raises(UserError, match="3 of the partition's 4 nodes have GPUs"):
        fleet.find(accept(), True, path=local)


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
    with pytest.raises(UserError, match="9 GPUs of each node are to be measured, and there are 8"):
        fleet.find(accept(devices=9), False, path=local)
    with pytest.raises(UserError, match="this machine is one node"):
        fleet.find(accept(nodes=2), False, path=local)


def test_a_host_that_does_not_answer_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: Path) -> None:
    """A made-up ssh, which runs the command here for one host and reaches the other one not at all."""
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

"""Agents start ranks as real processes: what a rank is told, what its failure ends, and who gets a port."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

import training_fixtures
from process_helpers import alive, psutil_that
from throughline import messages, processes
from throughline.launch import nodes
from throughline.launch.supervision import Agents
from throughline.messages import Alive, Refusal
from throughline.processes import wait_until

ROOT = Path(__file__).parents[3]


def run(folder: Path, topology: str, rank: str) -> tuple[dict[int, int | None], list[str]]:
    """Run agents whose ranks are the shell script `rank`; return how each rank ended, and the printed lines."""
    python = folder / "python"
    agent = f'exec {shlex.quote(sys.executable)} "$@"'
    python.write_text(f'#!/bin/sh\ncase "$2" in *.worker) {rank} ;; *) {agent} ;; esac\n')
    python.chmod(0o755)
    plan = training_fixtures.plan(topology, "simulated", python=str(python), telemetry=False)
    output: list[str] = []
    agents = Agents(plan, folder, output.append, ())
    try:
        assert wait_until(agents.are_over, 60), output
    finally:
        agents.end()
    return agents.ended, output


def test_a_rank_is_told_its_place_and_the_addresses_of_all(tmp_path: Path) -> None:
    told = "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $RANK_ADDRESSES"
    ended, output = run(tmp_path, "2n2g", f'echo "{told}"')
    assert ended == dict.fromkeys(range(4), 0)
    places = sorted(line.rpartition(" ")[0] for line in output)
    (addresses,) = {line.rpartition(" ")[2] for line in output}
    first, *others = addresses.split(",")
    assert len({first, *others}) == 4
    assert places == [f"[rank {rank}] {rank} {rank % 2} 4 {first}" for rank in range(4)]


@pytest.mark.parametrize(("end", "status"), [("exit 7", 7), ("kill -9 $$", -9)])
def test_a_rank_that_fails_ends_the_others_of_its_node(tmp_path: Path, end: str, status: int) -> None:
    ended, output = run(tmp_path, "1n3g", f"if [ $RANK = 1 ]; then {end}; fi; echo $$; exec sleep 600")
    assert ended == {1: status}
    assert not any(alive(int(line.split()[-1])) for line in output)


def test_a_node_that_refuses_its_gpus_ends_the_run_though_srun_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = shlex.quote(messages.line(Refusal(1, ["GPU 0 is in use"])))
    monkeypatch.setattr(nodes, "commands", lambda *_: [["sh", "-c", f"printf '%s\\n' {says}; cat"]])
    agents = Agents(training_fixtures.plan("2n1g", "slurm"), tmp_path, lambda line: None, ())
    try:
        assert wait_until(agents.have_failed, 10) and not agents.are_over()
    finally:
        agents.end()


def test_an_agent_that_has_sent_its_last_message_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a call that hangs in a driver kept the system from ending it."""
    says = shlex.quote(messages.line(Alive(0, over=True)))
    monkeypatch.setattr(nodes, "commands", lambda *_: [["sh", "-c", f"printf '%s\\n' {says}; exec sleep 600"]])
    agents = Agents(training_fixtures.plan(), tmp_path, lambda line: None, ())
    try:
        assert wait_until(agents.are_over, 10) and agents.processes[0].exit_status() is None
    finally:
        agents.end()
    assert agents.seen()[2] == []


FAULTY = """
import sys
from throughline.observe import telemetry_cards
faults = {"0": [], "1": ["GPU 0 is in use"]}[sys.argv[2]]
telemetry_cards.Cards.faults = lambda self, earlier: (faults, [])
"""
HANGS = """
import time
from throughline.observe import telemetry_cards
telemetry_cards.Cards.read = lambda self: time.sleep(600)
"""
FAILS = "raise ModuleNotFoundError('no psutil here')"


def with_starter(folder: Path, psutil: str = "", starter: str = "") -> tuple[Agents, list[str]]:
    """Return two agents of a run that Horovod starts on GPUs. Their samplers execute `psutil` when they import psutil,
    and the shell script `starter` is what horovodrun does."""
    agent = f"PYTHONPATH={shlex.quote(psutil_that(psutil, folder / 'psutil'))}"
    scripts = {
        "python": f'#!/bin/sh\n{agent} exec {shlex.quote(sys.executable)} "$@"\n',
        "horovodrun": f"#!/bin/sh\ntouch {shlex.quote(str(folder))}/started\n{starter}\n",
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    python = str(folder / "python")
    plan = training_fixtures.plan(
        *("2n1g", "simulated"), run={"framework": "torch-horovod"}, kind="cuda", agents=2, python=python
    )
    output: list[str] = []
    return Agents(plan, folder, output.append, ()), output


def test_horovod_starts_when_the_gpus_of_every_node_are_checked(tmp_path: Path) -> None:
    agents, output = with_starter(tmp_path, FAULTY)
    try:
        assert wait_until(agents.have_failed, 30), output
    finally:
        agents.end()
    assert agents.refusal == Refusal(1, ["GPU 0 is in use"]) and not (tmp_path / "started").exists()


def test_a_sampler_that_fails_is_named_and_holds_nothing_up(tmp_path: Path) -> None:
    agents, output = with_starter(tmp_path, FAILS)
    try:
        assert wait_until(agents.are_over, 30), output
    finally:
        agents.end()
    reason = "its sampler failed (ModuleNotFoundError: no psutil here); "
    reason += "the GPUs of this node were not checked before the run"
    assert agents.no_telemetry == {0: reason, 1: reason} and f"node 1: {reason}" in output
    assert "[telemetry] ModuleNotFoundError: no psutil here" in output
    assert (tmp_path / "started").exists()


@pytest.mark.slow
def test_a_sampler_that_hangs_holds_up_no_run(tmp_path: Path) -> None:
    agents, output = with_starter(tmp_path, HANGS)
    try:
        assert wait_until(agents.are_over, 30), output
    finally:
        agents.end()
    assert agents.no_telemetry == dict.fromkeys((0, 1), "its sampler did not write its samples within 5 s")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_an_agent_that_is_killed_ends_a_run_with_a_starter(tmp_path: Path, killed: int) -> None:
    """The starter, which is on the first node, ends as well."""
    before = processes.descendants(os.getpid())
    agents, output = with_starter(tmp_path, starter="exec sleep 600")
    try:
        assert wait_until((tmp_path / "started").exists, 30), output
        begun = set(processes.descendants(os.getpid())) - set(before)
        assert len(begun) > 2
        pids = [agent._process.pid for agent in agents.processes]
        os.kill(pids[killed], signal.SIGKILL)
        assert wait_until(agents.have_failed, 10)
        assert wait_until(lambda: agents.seen()[2] == [killed], 10)
    finally:
        agents.end()
    assert not any(map(alive, begun))


BIND = """
import errno, os, socket
port = int(os.environ["MASTER_PORT"])
taken = socket.socket()
try:
    taken.bind(("", port))
except OSError as error:
    print(errno.errorcode[error.errno])
server = socket.create_server(("", port), reuse_port=False)
print("listens")
"""


def test_a_port_is_kept_for_its_rank(tmp_path: Path) -> None:
    """The rank opens the port with create_server, which sets SO_REUSEADDR as PyTorch's store does."""
    ended, output = run(tmp_path, "1n1g", f"{shlex.quote(sys.executable)} -c {shlex.quote(BIND)}")
    assert ended == {0: 0} and output == ["[rank 0] EADDRINUSE", "[rank 0] listens"]

"""Agents start ranks as real processes: what a rank is given, what its failure ends, and what a sampler holds up."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from process_helpers import alive, psutil_that
from throughline import messages, processes
from throughline.launch import nodes
from throughline.launch.supervision import Agents
from throughline.messages import Alive, GpuFault, Refusal
from throughline.processes import wait_until
from unit.launch.conftest import Program


@contextlib.contextmanager
def agents_of(folder: Path, topology: str, reach: str, **changes: Any) -> Iterator[tuple[Agents, list[str]]]:
    """Yield the agents of a run and the lines that they print, and end them."""
    output: list[str] = []
    agents = Agents(training_fixtures.plan(topology, reach, **changes), folder, output.append, ())
    try:
        yield agents, output
    finally:
        agents.end()


def run(folder: Path, program: Program, topology: str, rank: str) -> tuple[dict[int, int | None], list[str]]:
    """Run agents whose ranks are the shell script `rank`; return how each rank ended, and the printed lines.

    The agents themselves go on with the workflow's interpreter.
    """
    python, workflow = f'exec {shlex.quote(sys.executable)} "$@"', f"touch {shlex.quote(str(folder))}/workflow-ran; "
    pythons = {
        "python": program("python", f'case "$2" in *.worker) {rank} ;; *) {python} ;; esac'),
        "workflow": program("workflow", workflow + python),
    }
    with agents_of(folder, topology, "simulated", telemetry=False, **pythons) as (agents, output):
        assert wait_until(agents.are_over, 60), output
    assert (folder / "workflow-ran").exists()
    return agents.ended, output


def test_a_rank_gets_its_place_and_the_addresses_of_all(tmp_path: Path, program: Program) -> None:
    variables = "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $RANK_ADDRESSES"
    ended, output = run(tmp_path, program, "2n2g", f'echo "{variables}"')
    assert ended == dict.fromkeys(range(4), 0)
    (addresses,) = {line.rpartition(" ")[2] for line in output}
    first, *others = addresses.split(",")
    assert len({first, *others}) == 4
    places = sorted(line.rpartition(" ")[0] for line in output)
    assert places == [f"[rank {rank}] {rank} {rank % 2} 4 {first}" for rank in range(4)]


@pytest.mark.parametrize(("end", "status"), [("exit 7", 7), ("kill -9 $$", -9)])
def test_a_rank_that_fails_ends_the_others_of_its_node(tmp_path: Path, program: Program, end: str, status: int) -> None:
    ended, output = run(tmp_path, program, "1n3g", f"if [ $RANK = 1 ]; then {end}; fi; echo $$; exec sleep 600")
    assert ended == {1: status}
    assert not any(alive(int(line.split()[-1])) for line in output)


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


def test_a_port_is_kept_for_its_rank(tmp_path: Path, program: Program) -> None:
    """The rank opens the port with create_server, which sets SO_REUSEADDR as PyTorch's store does."""
    ended, output = run(tmp_path, program, "1n1g", f"{shlex.quote(sys.executable)} -c {shlex.quote(BIND)}")
    assert ended == {0: 0} and output == ["[rank 0] EADDRINUSE", "[rank 0] listens"]


@pytest.mark.parametrize("over", [False, True])
def test_a_refusal_and_a_last_message_count_though_the_process_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    """As srun waits for the agents of the other nodes, and as a call that hangs in a driver keeps a process alive."""
    message = shlex.quote(messages.line(Alive(0, over=True) if over else Refusal(1, [GpuFault("GPU 0 is in use")])))
    monkeypatch.setattr(nodes, "commands", lambda *_: [["sh", "-c", f"printf '%s\\n' {message}; exec sleep 600"]])
    with agents_of(tmp_path, "1n1g" if over else "2n1g", "slurm") as (agents, _):
        assert wait_until(agents.are_over if over else agents.have_failed, 10)
        assert (agents.are_over(), agents.have_failed(), agents.processes[0].exit_status()) == (over, not over, None)
    assert not over or agents.seen()[2] == []


FAULTY = """
import sys
from throughline.messages import GpuFault
from throughline.observe import telemetry_cards
faults = {"0": [], "1": [GpuFault("GPU 0 is in use")]}[sys.argv[2]]
telemetry_cards.Cards.faults = lambda self, earlier: (faults, [])
"""
HANGS = """
import time
from throughline.observe import telemetry_cards
telemetry_cards.Cards.read = lambda self: time.sleep(600)
"""
FAILS = "raise ModuleNotFoundError('no psutil here')"
UNCHECKED = "; the GPUs of this node were not checked before the run"


@contextlib.contextmanager
def with_starter(
    folder: Path, program: Program, psutil: str = "", starter: str = ""
) -> Iterator[tuple[Agents, list[str]]]:
    """Yield two agents of a run that Horovod starts on GPUs. Their samplers execute `psutil` when they import psutil,
    and the shell script `starter` is what horovodrun does."""
    before = f"PYTHONPATH={shlex.quote(psutil_that(psutil, folder / 'psutil'))}"
    python = program("python", f'{before} exec {shlex.quote(sys.executable)} "$@"')
    program("horovodrun", f"touch {shlex.quote(str(folder))}/started\n{starter}")
    run, changes = {"framework": "torch-horovod"}, {"kind": "cuda", "agents": 2, "python": python}
    with agents_of(folder, "2n1g", "simulated", run=run, **changes) as (agents, output):
        yield agents, output


def test_horovod_starts_when_the_gpus_of_every_node_are_checked(tmp_path: Path, program: Program) -> None:
    with with_starter(tmp_path, program, FAULTY) as (agents, output):
        assert wait_until(agents.have_failed, 30), output
    assert agents.refusal == Refusal(1, [GpuFault("GPU 0 is in use")]) and not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("psutil", "reason"),
    [
        (FAILS, "its sampler failed (ModuleNotFoundError: no psutil here)" + UNCHECKED),
        pytest.param(HANGS, "its sampler did not write its samples within 5 s", marks=pytest.mark.slow),
    ],
    ids=["fails", "hangs"],
)
def test_a_sampler_that_fails_or_hangs_is_named_and_holds_up_no_run(
    tmp_path: Path, program: Program, psutil: str, reason: str
) -> None:
    with with_starter(tmp_path, program, psutil) as (agents, output):
        assert wait_until(agents.are_over, 30), output
    assert agents.no_telemetry == {0: reason, 1: reason} and f"node 1: {reason}" in output
    assert ("[telemetry] ModuleNotFoundError: no psutil here" in output) == (psutil == FAILS)
    assert (tmp_path / "started").exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_an_agent_that_is_killed_ends_a_run_with_a_starter(tmp_path: Path, program: Program, killed: int) -> None:
    """The starter, which is on the first node, ends as well."""
    before = processes.descendants(os.getpid())
    with with_starter(tmp_path, program, starter="exec sleep 600") as (agents, output):
        assert wait_until((tmp_path / "started").exists, 30), output
        begun = set(processes.descendants(os.getpid())) - set(before)
        assert len(begun) > 2
        os.kill(agents.processes[killed]._process.pid, signal.SIGKILL)
        assert wait_until(agents.have_failed, 10)
        assert wait_until(lambda: agents.seen()[2] == [killed], 10)
    assert not any(map(alive, begun))

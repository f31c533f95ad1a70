"""Agents start ranks as real processes: what a rank is told, what its failure ends, and who gets a port."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import training_fixtures
from process_helpers import alive
from throughline.launch.supervision import Agents
from throughline.processes import wait_until

ROOT = Path(__file__).parents[3]


def run(folder: Path, topology: str, rank: str) -> tuple[dict[int, int | None], list[str]]:
    """Run agents whose ranks are the shell script `rank`; return how each rank ended, and the printed lines."""
    python = folder / "python"
    agent = f'exec {shlex.quote(sys.executable)} "$@"'
    python.write_text(f'#!/bin/sh\ncase "$2" in *.worker) {rank} ;; *) {agent} ;; esac\n')
    python.chmod(0o755)
    order = training_fixtures.order(topology, "simulated", python=str(python), telemetry=False)
    output: list[str] = []
    agents = Agents(order, folder, output.append, ())
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

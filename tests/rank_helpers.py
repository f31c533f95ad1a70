"""Ranks for tests. One program forks all of them and imports PyTorch once. Each rank writes its result to a file."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from throughline.launch import agent


def fork(world: int, rank: Callable[[int], None]) -> None:
    """Run `rank(number)` in `world` processes, which meet at MASTER_ADDR. SystemExit if one of them fails."""
    with agent.reserved_port() as reserved:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(reserved.getsockname()[1]))
        children = []
        for number in range(world):
            if (child := os.fork()) == 0:
                rank(number)
                os._exit(0)
            children.append(child)
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(ended):
        raise SystemExit(f"the ranks ended with {ended}")


def tell(folder: Path, group: object, number: int, told: Any) -> None:
    """Write the result of a rank of a group."""
    (folder / f"{group}_{number}.pickle").write_bytes(pickle.dumps(told))


def told(helper: Path, folder: Path, groups: Mapping[Any, int]) -> dict[Any, list[Any]]:
    """Run a program that takes a folder and forks ranks; map each group to the results of its ranks.

    groups: group -> number of ranks. The program can import the library and the helpers of the tests.
    """
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, helper, folder], env=variables, check=True, timeout=600)
    return {
        group: [pickle.loads((folder / f"{group}_{rank}.pickle").read_bytes()) for rank in range(world)]
        for group, world in groups.items()
    }

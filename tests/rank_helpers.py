"""Ranks for tests: a program forks them, so that PyTorch is imported once for all, and each writes what it tells."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from throughline.launch import launchers

TESTS = Path(__file__).parent


def fork(world: int, rank: Callable[[int], None]) -> None:
    """Run `rank(number)` in so many processes, which meet at MASTER_ADDR; SystemExit where one of them fails."""
    with launchers.reserved_port() as reserved:
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
    """Write what a rank of a group tells."""
    (folder / f"{group}_{number}.pickle").write_bytes(pickle.dumps(told))


def run(helper: Path, *arguments: object) -> None:
    """Run a program that forks ranks; it finds the library and the helpers of the tests."""
    places = (TESTS.parent / "src", TESTS, TESTS / "frameworks")
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, helper, *map(str, arguments)], env=variables, check=True, timeout=600)


def told(helper: Path, folder: Path, groups: Mapping[Any, int]) -> dict[Any, list[Any]]:
    """Group -> what each of its ranks tells: of a program that takes a folder. `groups`: how many ranks each has."""
    run(helper, folder)
    return {
        group: [pickle.loads((folder / f"{group}_{rank}.pickle").read_bytes()) for rank in range(world)]
        for group, world in groups.items()
    }

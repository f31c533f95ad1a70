"""Does tables/ranks.csv name the rank that is slow? Training runs of a real Slurm cluster, one node of which is slow.

    sudo python benchmarks/slow_rank.py --rounds 4

Root makes the cluster on this machine (slurm/try). Each round trains bert-tiny with one rank on each of four nodes,
with and without exchange, four times, twice: once with equal nodes, and once while the ranks of one node get 4 % of a
core. Which node it is changes from round to round. Four ranks and two figures take four repeats for a verdict.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import harness
import pandas as pd

from slurm import slow
from slurm.conftest import Cluster, Project, copied

RANKS = 4
CONFIGURATION = """
runs: {repeats: 4, threads: 1, steps: {warmup: 2, timed: 10}}
benchmarks:
  ranked:
    {model: bert-tiny, sequence_length: 32, topologies: [4n1g], batch: {fp32: [4]}, extras: [no_gradient_sync],
     options: {data: synthetic}}
"""
TABLE = "results/ranked/tables"


@dataclass(frozen=True)
class Ranks:
    """What the table says after one series of runs. slow: the number of the slow node; None if all are equal."""

    slow: int | None
    named: list[int]
    distances: dict[int, float]
    waits_s: dict[int, float]
    seconds: float

    @property
    def right(self) -> bool:
        return self.named == ([] if self.slow is None else [self.slow])


def measure(project: Project, node: int | None) -> Ranks:
    """Make the table from nothing. node: the number of the node whose rank is slow."""
    shutil.rmtree(project.path / "results", ignore_errors=True)
    start = time.monotonic()
    made_slow = contextlib.nullcontext() if node is None else slow.node(project.cluster, project.cluster.names[node])
    with made_slow:
        process = project.start(TABLE, "--configfile", "ranked.yaml")
        said, _ = process.communicate()
    if process.returncode:
        sys.exit(f"these runs failed:\n{said}")
    table = pd.read_csv(project.path / TABLE / "ranks.csv").set_index("node")
    return Ranks(
        node,
        sorted(table.index[table["slow_in"].notna()]),
        dict(zip(table.index.tolist(), table["solo_step_distance"].tolist(), strict=True)),
        dict(zip(table.index.tolist(), table["waits_s"].tolist(), strict=True)),
        time.monotonic() - start,
    )


def main() -> None:
    given = harness.options(__doc__, rounds=4).parse_args()
    results: list[Ranks] = []
    with tempfile.TemporaryDirectory(prefix="throughline-ranks-") as folder:
        cluster = Cluster(Path(folder, "cluster"))
        try:
            project = copied(Path(folder, "project"), cluster)
            (project.path / "ranked.yaml").write_text(CONFIGURATION)
            table = harness.Table("round", "slow", "named", "own step, from the others", "seconds", left=4)
            for number in range(given.rounds):
                for node in (None, number % RANKS):
                    one = measure(project, node)
                    results.append(one)
                    shares = ", ".join(f"{100 * one.distances[rank]:+.1f} %" for rank in sorted(one.distances))
                    named = ", ".join(map(str, one.named)) or "none"
                    table.add(number + 1, "none" if node is None else node, named, shares, round(one.seconds))
                    harness.write(given.json, results)
        finally:
            cluster.stop()
    print(f"{sum(one.right for one in results)} of {len(results)} tables named the slow rank, or none if none was slow")


if __name__ == "__main__":
    main()

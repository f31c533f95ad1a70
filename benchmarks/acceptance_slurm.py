"""Is a slow node found, a slow link, and nothing if nothing is slow? Acceptances of a real Slurm cluster of four nodes.

    sudo python benchmarks/acceptance_slurm.py --rounds 10

Root makes the cluster on this machine (slurm/try). A round has one acceptance of each kind: of the clean cluster, with
a slow node, and with a slow link between two nodes. Which node and which link are slow changes from round to round.
`--kinds` chooses others: `both` has a slow node and a slow link between two others, `network` a node that sends slowly.
A node is slow because its ranks get 4 % of one core (a quota of their control group). A link is slow because tc limits
what the two send to each other to 20 Mbit/s. The four nodes share the cores of this machine, so its figures vary
much more than those of a cluster: every acceptance has two repeats. To be short, it measures matrix products and
all-reduces only.

The last line counts what was found, and the false alarms. A finding that names anything but what is slow is one, too.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import harness

from slurm.conftest import Cluster, Project, copied
from slurm.slow import link, network, node
from throughline import files
from throughline.study.acceptance import LOCAL, RESULT

ASKED = """accept:
  {nodes: 4, repeats: 2, threads: 1, min_seconds: 0.5, device: cpu, measure: [matmul, all-reduce],
   sizes: {matmul: [256], all_reduce: [1024, 1048576]}}
"""
KINDS = ("clean", "node", "link", "both", "network")
NODES = range(4)
Place = tuple[int, ...]
"""The number of a node, or the numbers of the two nodes of a link."""


def faults(kind: str, number: int) -> set[Place]:
    """Return the numbers of the slow node, of the two nodes of the slow link, or of both, in this round."""
    slow = number % len(NODES)
    pairs = list(itertools.combinations([other for other in NODES if other != slow], 2))
    between = pairs[number // len(NODES) % len(pairs)]
    of_kind: dict[str, set[Place]] = {
        "clean": set(), "node": {(slow,)}, "network": {(slow,)}, "link": {between}, "both": {(slow,), between}
    }  # fmt: skip
    return of_kind[kind]


@contextlib.contextmanager
def made_slow(cluster: Cluster, kind: str, places: set[Place]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for place in places:
            names = [cluster.names[number] for number in place]
            make = link if len(names) == 2 else network if kind == "network" else node
            stack.enter_context(make(cluster, *names))
        yield


@dataclass(frozen=True)
class Accepted:
    """An acceptance. slow: what was made slow; found: what it named of it; alarms: what else it named."""

    kind: str
    slow: list[Place]
    found: list[Place]
    alarms: list[Place]
    verdict: str
    seconds: float
    sentences: list[str]


def accept(project: Project, kind: str, number: int) -> Accepted:
    """Make an acceptance from nothing."""
    shutil.rmtree(project.path / "results", ignore_errors=True)
    places, start = faults(kind, number), time.monotonic()
    # The numbers of the nodes are those of their names, so that a finding can be compared.
    files.write_json(project.path / LOCAL, {"nodes": {str(one): project.cluster.names[one] for one in NODES}})
    with made_slow(project.cluster, kind, places):
        process = project.start("accept", "--configfile", "accept.yaml")
        said, _ = process.communicate()
        if process.returncode:
            sys.exit(f"this acceptance failed:\n{said}")
    judged = files.read_json(project.path / RESULT)
    named = {tuple(finding["place"]["nodes"]) for finding in judged["findings"]}
    return Accepted(
        kind, sorted(places), sorted(places & named), sorted(named - places), judged["verdict"],
        time.monotonic() - start, [finding["sentence"] for finding in judged["findings"]],
    )  # fmt: skip


def share(results: list[Accepted], nodes: int) -> str:
    """Return how many of the slow nodes (nodes: 1) or links (2) were found."""
    found, slow = (
        sum(len(place) == nodes for one in results for place in places(one))
        for places in (attrgetter("found"), attrgetter("slow"))
    )
    return f"{found} of {slow}"


def main() -> None:
    parser = harness.options(__doc__, rounds=10)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS[:3], help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no acceptance after this time")
    given = parser.parse_args()
    results: list[Accepted] = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="throughline-accept-") as folder:
        cluster = Cluster(Path(folder, "cluster"))
        try:
            project = copied(Path(folder, "project"), cluster)
            (project.path / "accept.yaml").write_text(ASKED)
            table = harness.Table("round", "slow", "found", "named wrongly", "verdict", "seconds", left=5)
            for number, kind in itertools.product(range(given.rounds), given.kinds):
                if time.monotonic() - start > 60 * given.minutes:
                    break
                one = accept(project, kind, number)
                results.append(one)
                table.add(number + 1, *map(_words, (one.slow, one.found, one.alarms)), one.verdict, round(one.seconds))
                print(*one.sentences, sep="\n", file=sys.stderr, flush=True)
                harness.write(given.json, results)
        finally:
            cluster.stop()
    clean = [one for one in results if not one.slow]
    wrong = sum(bool(one.alarms) for one in results if one.slow)
    print(f"beside what is slow, something else was named in {wrong} of {len(results) - len(clean)} acceptances")
    print(
        f"found {share(results, 1)} slow nodes, {share(results, 2)} slow links, "
        f"{sum(bool(one.alarms) for one in clean)} false alarms in {len(clean)} clean acceptances"
    )


def _words(places: list[Place]) -> str:
    return ", ".join(f"node {place[0]}" if len(place) == 1 else f"nodes {place[0]} and {place[1]}" for place in places)


if __name__ == "__main__":
    main()

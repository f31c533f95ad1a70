"""A prediction that is made before its answer is known: nodes behind slow links, whose devices compute by sleeping.

    sudo python benchmarks/prediction_simulated.py

Each node is a network namespace of Linux behind one link of `--mbit` (tc tbf); all links meet in a switch. The ranks
exchange real gradients with PyTorch's gloo. Their computing is a sleep of `--compute` seconds, with a speed of each
rank and a noise of each step, so two cores are enough for all of them. First 1n1g, 1n2g and 2n2g are measured, then
the larger topologies are predicted and printed, and only then they are measured. Each is predicted twice: from the
steps alone, and with the compute, the exchange alone and the spread of the ranks, as the extra `no_gradient_sync` and
`runs.network` measure them. Needs root, iproute2 and PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

from throughline.prediction import Place, predict
from throughline.records import MeasuredPoint, PredictedCell
from throughline.records.predictions import Message
from throughline.spec import Topology

KNOWN, ASKED = ("1n1g", "1n2g", "2n2g"), ("4n2g", "8n2g")
BATCH = 16
STEPS, WARM_UP, REPEATS = 12, 3, 3
BUCKETS, FLOATS = 4, 64 * 1024
"""Messages of a step, and the float32 values of each: 1 MiB of gradients."""
SPEED, NOISE = 0.03, 0.02
"""Standard deviations of the ranks' speeds and of each step, as shares."""
SWITCH = "10.77.0.254/24"


def rank_main(rank: int, world: int, folder: Path, compute_s: float) -> None:
    """Train: sleep and exchange. Print the seconds of each repeat's steps, alone, and of the exchange alone."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="tcp://10.77.0.1:29500", rank=rank, world_size=world)
    speed = 1 + SPEED * random.Random(rank).gauss(0, 1)
    chance = random.Random(1000 + rank)
    gradients = [torch.ones(FLOATS) for _ in range(BUCKETS)]

    def work(computes: bool, exchanges: bool) -> float:
        dist.barrier()
        start = 0.0
        for step in range(WARM_UP + STEPS):
            start = time.perf_counter() if step == WARM_UP else start
            if computes:
                time.sleep(compute_s * speed * (1 + NOISE * chance.gauss(0, 1)))
            if exchanges:
                handles = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
                for handle in handles:
                    handle.wait()
        return (time.perf_counter() - start) / STEPS

    steps = [work(True, True) for _ in range(REPEATS)]
    told = {"steps": steps, "solo": work(True, False), "exchange": work(False, True) if world > 1 else 0.0}
    (folder / f"{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def build(nodes: int, mbit: float) -> None:
    """Make a switch and one namespace for each node, in the namespaces of this process."""
    commands = ["mount -t tmpfs tmpfs /run", "mkdir /run/netns", "ip link add switch type bridge"]
    commands += [f"ip addr add {SWITCH} dev switch", "ip link set switch up"]
    for node in range(1, nodes + 1):
        inside = f"ip -n n{node}"
        shape = f"root tbf rate {mbit}mbit burst 16kb latency 200ms"
        commands += [
            f"ip netns add n{node}", f"ip link add p{node} type veth peer name e{node}",
            f"ip link set e{node} netns n{node}",
            f"ip link set p{node} master switch up", f"{inside} addr add 10.77.0.{node}/24 dev e{node}",
            f"{inside} link set e{node} up", f"{inside} link set lo up",
            f"tc -n n{node} qdisc add dev e{node} {shape}", f"tc qdisc add dev p{node} {shape}",
        ]  # fmt: skip
    for command in commands:
        subprocess.run(command.split(), check=True)


def measure(place: Topology, folder: Path, compute_s: float) -> MeasuredPoint:
    """Run all ranks of a topology. A step takes as long as on its slowest rank."""
    folder.mkdir(parents=True)
    own = [sys.executable, __file__, "--rank"]
    ranks = []
    for rank in range(place.world):
        node = rank // place.devices + 1
        words = ["ip", "netns", "exec", f"n{node}", *own, f"{rank}", f"{place.world}", str(folder), f"{compute_s}"]
        variables = {**os.environ, "GLOO_SOCKET_IFNAME": f"e{node}", "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen(words, env=variables))
    codes = [rank.wait(timeout=540) for rank in ranks]
    if any(codes):
        sys.exit(f"a rank of {place} failed")
    told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(place.world)]
    solo = [one["solo"] for one in told]
    spread = statistics.stdev(solo) / statistics.fmean(solo) if len(solo) > 1 else None
    alone = max(one["exchange"] for one in told)
    return MeasuredPoint(
        topology=str(place),
        global_batch=BATCH * place.world,
        gradient_accumulation=1,
        step_s=[max(one["steps"][repeat] for one in told) for repeat in range(REPEATS)],
        compute_s=statistics.fmean(solo),
        rank_spread=spread,
        input_s=None,
        all_reduce=[Message(bytes=BUCKETS * FLOATS * 4, seconds=alone)] if place.world > 1 else [],
    )


def larger(place: str, points: Sequence[MeasuredPoint]) -> PredictedCell:
    topology = Topology.parse(place)
    answer = predict(points, Place(topology, BATCH * topology.world))
    assert isinstance(answer, PredictedCell), answer
    return answer


def study(mbit: float, compute_s: float) -> None:
    """Measure, predict, print the predictions, measure their topologies, and print what came out."""
    build(max(Topology.parse(place).nodes for place in ASKED), mbit)
    with tempfile.TemporaryDirectory() as name:
        known = {place: measure(Topology.parse(place), Path(name, place), compute_s) for place in KNOWN}
        for place, point in known.items():
            print(f"measured {place}: steps of {' '.join(f'{step:.3f}' for step in point.step_s)} s", flush=True)
        unknown: dict[str, Any] = {"compute_s": None, "all_reduce": [], "rank_spread": None}
        plain = [point.model_copy(update=unknown) for point in known.values()]
        ways = {"steps alone": plain, "with compute, exchange and spread": list(known.values())}
        made = {(place, way): larger(place, points) for place in ASKED for way, points in ways.items()}
        for (_, way), answer in made.items():
            terms = ", ".join(f"{term} {seconds:.3f}" for term, seconds in answer.terms.items() if seconds)
            ends = f"{answer.low:.1f} to {answer.high:.1f}"
            print(
                f"{answer.topology}: {answer.samples_per_s:.1f} samples/s ({ends}); from {way}: {terms} s", flush=True
            )
        table = harness.Table("topology", "from", "predicted", "interval", "measured", "error", "inside", left=2)
        for place in ASKED:
            point = measure(Topology.parse(place), Path(name, place), compute_s)
            speed = point.global_batch / statistics.median(point.step_s)
            for way in ways:
                answer = made[place, way]
                error = f"{100 * (answer.samples_per_s / speed - 1):+.1f} %"
                interval, inside = f"{answer.low:.1f} to {answer.high:.1f}", answer.low <= speed <= answer.high
                table.add(place, way, f"{answer.samples_per_s:.1f}", interval, f"{speed:.1f}", error, inside)


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        rank, world, folder, compute_s = sys.argv[2:]
        return rank_main(int(rank), int(world), Path(folder), float(compute_s))
    parser = harness.options(__doc__)
    parser.add_argument("--mbit", type=float, default=100, help="speed of each node's link")
    parser.add_argument("--compute", type=float, default=0.3, help="seconds that a rank computes in a step")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:  # again, in namespaces of its own, which end with it
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv, "--inside"])
    return study(given.mbit, given.compute)


if __name__ == "__main__":
    main()

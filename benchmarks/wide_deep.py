"""Compare steps of wide & deep in `torch` with the loop that one would write by hand, on CPUs, with one or two workers.

    python benchmarks/wide_deep.py                  all rows, some minutes on two cores
    python benchmarks/wide_deep.py --rows 1:4096:200000:16:2:256

The plain loop has nn.Embedding(sparse=True) with SparseAdam, layers with fused Adam, and DistributedDataParallel around
all of it. Weights, batches and constants are the same, and the first loss must be the same. Each worker holds all
contestants, and they make their steps in turn. A figure is the time of the plain loop's step divided by the time of our
step: above 1 ours is faster. It is the median over the rounds, with the least and the largest. On a machine that has
other work, `--cpu-seconds` counts the processor's time instead.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from throughline import frameworks  # noqa: E402
from throughline.frameworks.torch.ddp import TorchDDP  # noqa: E402
from throughline.launch import agent_commands  # noqa: E402
from throughline.spec import RunSpec  # noqa: E402
from throughline.study.runs import PROTOCOL  # noqa: E402
from throughline.workloads import wide_deep  # noqa: E402
from throughline.workloads.wide_deep.in_torch import crossed  # noqa: E402

ROWS = ["1:256:100000:16:2:128", "1:4096:1000000:16:2:256", "2:256:100000:16:2:128", "2:4096:1000000:16:2:256"]
BATCHES = 4
SPLITS = ("replicated", "columns", "rows")


def spec(row: list[int], table: str) -> RunSpec:
    world, batch, vocabulary, embedding, hidden, width = row
    return frameworks.specification({
        "benchmark": "clicks", "framework": "torch", "model": "wide-deep", "vocabulary": vocabulary, "table": table,
        "embedding": embedding, "hidden": hidden, "width": width, "update": "lazy", "precision": "fp32", "repeat": 1,
        "batch_per_device": batch, "topology": f"1n{world}g", "device": "cpu", "protocol": PROTOCOL,
        "optimizer": {"name": "adam", "learning_rate": 1e-3, "weight_decay": 0.0, "epsilon": 1e-8},
        "options": {"data": "synthetic", "dropout": 0.0},
    })  # fmt: skip


class Plain(nn.Module):
    def __init__(self, vocabulary: int, embedding: int, hidden: int, width: int) -> None:
        super().__init__()
        self.deep, self.wide = (
            nn.Embedding(vocabulary, embedding, sparse=True),
            nn.Embedding(vocabulary, 1, sparse=True),
        )
        sizes = [wide_deep.FIELDS * embedding + wide_deep.NUMBERS, *[width] * hidden, 1]
        self.layers = nn.ModuleList([nn.Linear(*two) for two in itertools.pairwise(sizes)])

    def forward(self, ids: Tensor, numbers: Tensor, labels: Tensor) -> Tensor:
        hidden = torch.cat([self.deep(ids).flatten(1), numbers], 1)
        for layer in self.layers[:-1]:
            hidden = layer(hidden).relu()
        wide = self.wide(crossed(ids.long(), self.wide.num_embeddings)).sum((1, 2))
        return nn.functional.binary_cross_entropy_with_logits(self.layers[-1](hidden)[:, 0] + wide, labels)


def plain(row: list[int], batches: list[dict[str, Tensor]], weights: dict[str, Any]) -> Callable[[int], float]:
    world, _, vocabulary, *shape = row
    network = Plain(vocabulary, *shape)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    model = nn.parallel.DistributedDataParallel(network) if world > 1 else network
    rows = torch.optim.SparseAdam([network.deep.weight, network.wide.weight], lr=1e-3)
    layers = torch.optim.Adam(network.layers.parameters(), lr=1e-3, fused=True)

    def step(number: int) -> float:
        loss = model(**batches[number % BATCHES])
        loss.backward()
        for update in (rows, layers):
            update.step()
            update.zero_grad()
        return float(loss.detach())

    return step


def ours(
    joined: TorchDDP, row: list[int], table: str, batches: list[dict[str, Tensor]], weights: dict[str, Any]
) -> Any:
    one = TorchDDP(spec(row, table), joined.rank, joined.rank, joined.world, "cpu")
    one.together = joined.together
    one.device()
    one.model({})
    one.load(weights)
    one.optimizer()
    return lambda number: float(one.step([batches[number % BATCHES]]))


def rank(number: int, row: list[int], rounds: int, seconds: float, cpu: bool, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    world, batch, vocabulary = row[:3]
    joined = TorchDDP(spec(row, "rows"), number, number, world, "cpu")
    joined.join()
    joined.device()
    torch.manual_seed(1)
    made = Plain(vocabulary, *row[3:])
    weights = {name: array.numpy() / 10 for name, array in made.state_dict().items()}
    asked = spec(row, "rows")
    arrays = [wide_deep.WORKLOAD.synthetic(batch, asked, BATCHES * number + turn) for turn in range(BATCHES)]
    batches = [{name: torch.from_numpy(array) for name, array in one.items()} for one in arrays]
    contestants = {"plain": plain(row, batches, weights)}
    for table in SPLITS if world > 1 else SPLITS[:1]:
        contestants[table] = ours(joined, row, table, batches, weights)
    first = {name: step(0) for name, step in contestants.items()}
    assert np.ptp(list(first.values())) < 1e-5, first
    clock = time.process_time if cpu else time.perf_counter

    def timed(name: str, count: int) -> float:
        joined.barrier()
        start = clock()
        for turn in range(count):
            contestants[name](turn)
        joined.barrier()
        return (clock() - start) / count

    counts = {name: joined.broadcast(max(2, round(seconds / timed(name, 3)))) for name in contestants}
    found = []
    for turn in range(rounds):
        order = list(contestants)[turn % len(contestants) :] + list(contestants)[: turn % len(contestants)]
        found.append({name: timed(name, counts[name]) for name in order})
    if number == 0:
        told = [f"plain {1000 * median(one['plain'] for one in found):.1f} ms a step"]
        for name in contestants.keys() - {"plain"}:
            ratios = sorted(one["plain"] / one[name] for one in found)
            told.append(f"{name} {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(":".join(map(str, row)), *told, sep="; ", flush=True)
    joined.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=ROWS, help="workers:batch:vocabulary:embedding:hidden:width")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of a turn")
    parser.add_argument("--cpu-seconds", action="store_true")
    given = parser.parse_args()
    for text in given.rows:
        row = list(map(int, text.split(":")))
        with agent_commands.reserved_port() as reserved:
            port, children = reserved.getsockname()[1], []
            for number in range(row[0]):
                child = os.fork()
                if child == 0:
                    rank(number, row, given.rounds, given.seconds, given.cpu_seconds, port)
                    os._exit(0)
                children.append(child)
            statuses = [os.waitpid(child, 0)[1] for child in children]
        if any(statuses):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

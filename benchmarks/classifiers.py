"""Compare our step with each kind of classifier and a plain loop: face recognition on two workers, in turn.

    python benchmarks/classifiers.py --model mobilefacenet-y1 --batch 8 --classes 1000 100000 300000

The plain loop is what one writes with PyTorch alone: the same network, a full classifier on every worker,
DistributedDataParallel around both, SGD. A figure is the processor time of the plain loop's step divided by that of our
step, for both workers together: above 1 our step is faster. We take processor time because other programs on the
machine hardly change it. Each figure is the median of the rounds, with their range. `again` is the plain loop once
more: it shows the machine's noise.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import cross_entropy, linear, normalize  # noqa: E402

from throughline.frameworks.torch.ddp import TorchDDP  # noqa: E402
from throughline.spec import example  # noqa: E402
from throughline.study.config import load  # noqa: E402
from throughline.study.runs import expand  # noqa: E402
from throughline.workloads import faces  # noqa: E402
from throughline.workloads.faces.in_torch_networks import iresnet, mobilefacenet  # noqa: E402
from throughline.workloads.in_torch_tensor_parallel import TensorGroup  # noqa: E402

WORKERS = 2
KINDS = ("data_parallel", "model_parallel", "partial")
Step = Callable[[dict[str, Any]], Any]


class Plain(nn.Module):
    """A network and a full classifier with ArcFace's margin."""

    def __init__(self, model: str, classes: int) -> None:
        super().__init__()
        network = faces.NETWORKS[model]
        self.layers = iresnet(network, 0.0) if network.layers else mobilefacenet(network.embedding)
        self.weight = nn.Parameter(torch.randn(classes, network.embedding) * 0.01)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        embeddings = self.layers((pixels.permute(0, 3, 1, 2).float() - 127.5) / 127.5)
        cosines = linear(normalize(embeddings), normalize(self.weight))
        own = torch.arange(len(labels)), labels.long()
        angle = cosines[own].clamp(-1 + 1e-7, 1 - 1e-7).acos()
        return cross_entropy(64 * cosines.index_put(own, (angle + 0.5).cos()), own[1])


def plain(model: str, classes: int) -> Step:
    parallel = nn.parallel.DistributedDataParallel(Plain(model, classes))
    optimizer = torch.optim.SGD(parallel.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)

    def step(batch: dict[str, Any]) -> None:
        parallel(**{name: torch.from_numpy(array) for name, array in batch.items()}).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ours(given: argparse.Namespace, classes: int, kind: str) -> Step:
    block = {
        "model": given.model, "classes": classes, "classifier": kind, "topologies": [f"1n{WORKERS}g"],
        "batch": {"fp32": [given.batch]}, "options": {"dropout": 0.0, "data": "synthetic"},
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
    }  # fmt: skip
    spec = expand(load([], {"benchmarks": {"faces": block}}))[0]
    rank = TorchDDP(spec, dist.get_rank(), dist.get_rank(), WORKERS, "cpu")
    if faces.WORKLOAD.own_exchange(spec):
        rank.together = TensorGroup(dist.new_group())
    rank.device()
    rank.model({})
    rank.optimizer()
    return lambda batch: rank.step([rank.deliver(rank.data(batch))])


def worker(place: int, given: argparse.Namespace, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=place, world_size=WORKERS)
    if place == 0:
        header = ["classes", "plain, CPU ms a step", *KINDS, "again"]
        print(f"| {' | '.join(header)} |\n{'|--:' * len(header)}|", flush=True)
    for classes in given.classes:
        every = {"plain": plain(given.model, classes)}
        every |= {kind: ours(given, classes, kind) for kind in KINDS} | {"again": every["plain"]}
        batch = faces.WORKLOAD.synthetic(given.batch, example(given.model, faces.Parameters(classes=classes)), place)
        for step in every.values():
            step(batch)
        rounds = [{name: timed(step, batch, given.steps) for name, step in every.items()} for _ in range(given.rounds)]
        if place == 0:
            cells = []
            for name in (*KINDS, "again"):
                ratios = sorted(one["plain"] / one[name] for one in rounds)
                cells.append(f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
            step_ms = 1000 * median(one["plain"] for one in rounds)
            print(f"| {classes:,} | {step_ms:.0f} | " + " | ".join(cells) + " |", flush=True)
        del every
    dist.destroy_process_group()


def timed(step: Step, batch: dict[str, Any], steps: int) -> float:
    """Return the seconds of processor time that a step takes, added up over all workers."""
    dist.barrier()
    start = time.process_time()
    for _ in range(steps):
        step(batch)
    spent = torch.tensor(time.process_time() - start)
    dist.all_reduce(spent)
    return spent.item() / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=faces.WORKLOAD.models, default="mobilefacenet-y1")
    parser.add_argument("--batch", type=int, default=8, help="number of faces of a worker")
    parser.add_argument("--classes", type=int, nargs="+", default=[1000, 100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, (given, folder), WORKERS)


if __name__ == "__main__":
    main()

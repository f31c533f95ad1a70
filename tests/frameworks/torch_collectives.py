"""Helper process: the result of every collective operation on two ranks. Argument: a folder for the results."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import rank_helpers
from throughline import workloads
from throughline.spec import example
from throughline.workloads import collectives

RANKS, COUNT = 2, 4
"""The number of processes, and how many numbers an operation takes."""


def told(model: str, rank: int) -> dict[str, Any]:
    form = workloads.form(model, "torch")
    sizes = collectives.WORKLOAD.parameters(sizes=(4 * COUNT, 64), min_seconds=0.001)
    network = form.build(example(model, sizes), {}, torch.device("cpu"))
    call, moved = network.made(4 * COUNT)
    given, taken = (call.args[0], call.args[0]) if model == "all-reduce" else (call.args[1], call.args[0])
    given.copy_(torch.arange(given.numel()) + 10 * (rank + 1))
    call()
    return {"moved": moved, "taken": taken.tolist(), "figures": form.figures(network)}


def rank(folder: Path, number: int) -> None:
    dist.init_process_group("gloo", rank=number, world_size=RANKS)
    rank_helpers.tell(folder, RANKS, number, {model: told(model, number) for model in collectives.WORKLOAD.models})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    rank_helpers.fork(RANKS, partial(rank, Path(sys.argv[1])))

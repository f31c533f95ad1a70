"""Helper process: the result of every collective operation on two ranks. Arguments: rank, output."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist

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


def main() -> None:
    rank, output = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    found = {model: told(model, rank) for model in collectives.WORKLOAD.models}
    with open(output, "w", encoding="utf-8") as stream:
        json.dump(found, stream)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

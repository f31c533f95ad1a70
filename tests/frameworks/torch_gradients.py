"""Helper process: gradients of one step on fixed batches, as one rank and as two ranks compute them.

Argument: a folder. It forks the ranks, so PyTorch is imported only once.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rank_helpers
import training_fixtures
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec
from throughline.workloads import bert


def batch(rank: int, spec: RunSpec) -> dict[str, Any]:
    """Return a rank's batch. Ranks have different numbers of masks, so a mean of means is not the overall mean."""
    made = bert.WORKLOAD.synthetic(4, spec, 100 + rank)
    made["positions"].reshape(-1)[: 7 * rank] = 0
    made["mask"] = (np.arange(32) < np.array([32, 20, 32, 30])[:, None]).astype(np.int8)
    return made


def gradients(folder: Path, world: int, rank: int) -> None:
    spec = training_fixtures.spec(options={"dropout": 0.0})
    framework = TorchDDP(spec, rank, rank, world, "cpu")
    framework.join()
    framework.device()
    framework.model(bert.WORKLOAD.facts(None))
    framework.optimizer()
    mine = [rank] if world > 1 else [0, 1]  # one process computes the mean of the two ranks' means
    for index in mine:
        loss = framework.parallel(**framework.deliver(framework.data(batch(index, spec)))) / len(mine)
        loss.backward()
    rank_helpers.tell(folder, world, rank, [parameter.grad.numpy() for parameter in framework.parameters])
    framework.close()


def main() -> None:
    for world in (1, 2):
        rank_helpers.fork(world, partial(gradients, Path(sys.argv[1]), world))


if __name__ == "__main__":
    main()

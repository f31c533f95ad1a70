"""Helper process, in MXNet's environment: steps with AMP's loss scaler, in fp32, because a CPU has no fp16.

Arguments: specifications (JSON). For each the process takes the same step with and without the scaler, and then one
that overflows. It prints a line: by how much the weights differ, and what the overflow did.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from mxnet.contrib import amp
from mxnet.contrib.amp.loss_scaler import LossScaler

from throughline import frameworks, workloads
from throughline.frameworks.rank import load
from throughline.spec import RunSpec


def started(spec: RunSpec, scaled: bool) -> Any:
    rank: Any = load("mxnet-horovod")(spec, 0, 0, 1, "cpu")
    rank.device()
    rank.half = scaled
    rank.model({})
    rank.optimizer()
    return rank


def weights(rank: Any) -> dict[str, Any]:
    return {name: array for name, array in rank.states().items() if name.startswith("weight ")}


def stepped(spec: RunSpec) -> dict[str, Any]:
    amp.amp._amp_initialized, amp.amp._loss_scaler = True, LossScaler()  # what amp.init does beside the types
    after = []
    for scaled in (False, True):
        rank = started(spec, scaled)
        before = weights(rank)
        batches = [rank.deliver(rank.data(workloads.of(spec.model).synthetic(4, spec, seed))) for seed in (1, 2)]
        rank.step(batches)
        after.append(weights(rank))
    moved = max(float(np.abs(after[0][name] - before[name]).max()) for name in before)
    differ = max(float(np.abs(after[0][name] - after[1][name]).max()) for name in before)
    own = rank.trainer.allreduce_grads

    def overflowing() -> None:
        own()
        rank.parameters[0].grad()[:] = np.inf

    rank.trainer.allreduce_grads = overflowing
    rank.step(batches)
    still = all(np.array_equal(after[1][name], array) for name, array in weights(rank).items())
    rank.trainer.allreduce_grads = own
    scale = rank.trainer._amp_loss_scaler._next_loss_scale
    rank.step(batches)  # it overflows as well if a gradient keeps the infinity
    finite = all(np.isfinite(array).all() for array in weights(rank).values())
    found = {"moved": moved, "differ": differ, "still": still, "finite": finite, "scale": scale}
    return {**found, "skipped": rank.skipped()}


def main() -> None:
    for text in sys.argv[1:]:
        print(json.dumps(stepped(frameworks.specification(json.loads(text)))))


if __name__ == "__main__":
    main()

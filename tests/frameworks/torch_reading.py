"""Find the operations in a step of PyTorch that read a value from a device.

As a helper process it makes steps of one rank of `torch-horovod`, in that framework's environment, with the loss scaler
on. It prints what the steps read, and which buffers were broadcast.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READING = {"_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal"}
"""Operations in which a value goes from the device to Python: `.item()`, `float(tensor)`, a branch on a tensor."""


class Reading(TorchDispatchMode):
    """Keep the names of all operations, and of those that read a value."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.every: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.every.add(name := function.overloadpacket.__name__)
        if name in READING:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def main() -> None:
    import horovod.torch as hvd

    from throughline import frameworks
    from throughline.frameworks.torch_horovod.rank import TorchHorovod
    from throughline.workloads import bert

    found: dict[str, Any] = {}
    real = hvd.broadcast_parameters
    for spec in map(frameworks.specification, json.loads(sys.argv[1])):
        # One process does all that each of two ranks does: Horovod wraps the optimizer, but has no other rank.
        one = TorchHorovod(spec, 0, 0, 2, "cpu")
        for stage in (one.join, one.device, lambda one=one: one.model(bert.WORKLOAD.facts(None)), one.optimizer):
            stage()
        batches = [one.data(bert.WORKLOAD.synthetic(4, spec, seed)) for seed in range(2)]
        before = [parameter.clone() for parameter in one.parameters]
        sent: list[list[str]] = []
        hvd.broadcast_parameters = lambda tensors, root_rank, sent=sent: sent.append(sorted(tensors))
        with Reading() as reading:
            for batch in batches:
                one.step([one.deliver(batch)])
        of_bert, one.changing = len(sent), {"norm.running_mean": torch.zeros(3)}
        moved = not all(map(torch.equal, before, one.parameters))
        overflowed = [parameter.clone() for parameter in one.parameters]
        one.parameters[0].register_hook(lambda gradient: gradient * float("inf"))
        one.step([one.deliver(batches[0])])
        hvd.broadcast_parameters = real
        found[spec.optimizer.name] = {
            "read": reading.found, "moved": moved, "kept": all(map(torch.equal, overflowed, one.parameters)),
            "skipped": one.skipped(), "sent": [of_bert, sent],
        }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()

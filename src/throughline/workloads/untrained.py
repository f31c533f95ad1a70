"""What all workloads that train nothing have in common (`Untrained`).

A step is one call of the network that the implementation builds, without data, losses, optimizer and exchange of
gradients. Several ranks call at the same time, or make one call together (`collectives`).
"""

from throughline.spec import RunSpec
from throughline.workloads.workload import Arrays, P, Workload

PRECISION = {"precision": "operands and weights are kept in the run's precision, without autocast"}
"""An entry of `convention`."""
WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number in memory."""
LIBRARIES = {"torch": frozenset({"devices", "nodes", "amp", "bf16"})}
WITH_FP8 = {"torch": LIBRARIES["torch"] | {"fp8"}}


class Untrained(Workload[P]):
    libraries = LIBRARIES
    no_form = {"mxnet": "what a device reaches is measured with PyTorch alone"}
    no_reference = "it trains nothing, so there are no losses to compare"
    trains = False

    def synthetic(self, count: int, spec: RunSpec[P], seed: int) -> Arrays:
        return {}

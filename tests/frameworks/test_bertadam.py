"""`bertadam` in MXNet is GluonNLP's BERTAdam, to the last bit: both call one kernel with the same arguments.

GluonNLP can also hand several weights at once to another kernel, which rounds in another way. That is switched off.
"""

from __future__ import annotations

import os
import subprocess

from framework_lab import python

STEPS = """
import gluonnlp, mxnet as mx, numpy as np
from throughline.frameworks.mxnet_horovod import optimizers
from throughline.spec import Optimizer

assert gluonnlp.optimizer.BERTAdam
settings = Optimizer(name="bertadam", learning_rate=0.01, weight_decay=0.1)
class Weight:
    shape, wd_mult = (3, 4), 1.0
ours = optimizers.build(settings, [Weight()])
theirs = mx.optimizer.create("bertadam", learning_rate=0.01, wd=0.1, epsilon=settings.epsilon)
weights = []
for update in (ours, theirs):
    mx.random.seed(1)
    weight = mx.nd.random.normal(shape=(3, 4))
    state = update.create_state(0, weight)
    for _ in range(5):
        update.update(0, weight, mx.nd.random.normal(shape=(3, 4)), state)
    weights.append(weight.asnumpy())
assert (weights[0] == weights[1]).all(), weights
print("equal")
"""


def test_it_is_gluonnlps() -> None:
    done = subprocess.run(
        [python("mxnet-horovod"), "-c", STEPS],
        env=os.environ | {"PYTHONPATH": os.path.abspath("src"), "MXNET_OPTIMIZER_AGGREGATION_SIZE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "equal\n", done.stderr

"""Helper process, in MXNet's environment: mixed precision (AMP), as far as a CPU shows it, and GluonNLP's optimizer.

`types bert resnet`: for each model a line, the types that the outputs of each operation have.
`steps` and specifications (JSON): for each the same step with and without AMP's loss scaler, in fp32, because a CPU has
no fp16, and then a step that overflows. A line says by how much the weights differ, and what the overflow did.
`bertadam` and settings of the optimizer (JSON): the weights after the same updates by ours and by GluonNLP's.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import gluonnlp
import mxnet as mx
import numpy as np
from mxnet.contrib import amp
from mxnet.contrib.amp.loss_scaler import LossScaler

from throughline import frameworks, workloads
from throughline.frameworks.mxnet_horovod import optimizers
from throughline.frameworks.rank import load
from throughline.spec import Optimizer, RunSpec, read
from throughline.workloads import resnet
from throughline.workloads.bert import in_mxnet as bert
from throughline.workloads.resnet import in_mxnet

INPUTS = {
    "bert": {
        "tokens": ((2, 16), "int32"), "segments": ((2, 16), "int32"), "positions": ((2, 5), "int32"),
        "labels": ((10,), "int32"), "weights": ((10,), "float32"), "following": ((2,), "int32"),
        "lengths": ((2,), "float32"),
    },
    "resnet": {"pixels": ((2, 33, 33, 3), "uint8"), "labels": ((2,), "int32")},
}  # fmt: skip
"""Shapes and types of the batch's arrays, as an implementation's `batch` makes them."""


def types(model: str) -> dict[str, list[str]]:
    inputs = INPUTS[model]
    network = (
        bert.BertForPretraining("bert-tiny", 30522, 0.1)
        if model == "bert"
        else in_mxnet.ResNet(resnet.Shape((1, 2), width=8, expansion=4), resnet.Parameters(image=33, classes=7))
    )
    loss = network(*map(mx.sym.var, inputs))
    nodes = {node["name"]: node["op"] for node in json.loads(loss.tojson())["nodes"]}
    inside = loss.get_internals()
    inside.infer_shape(**{name: shape for name, (shape, _) in inputs.items()})
    weights, outputs, _ = inside.infer_type(**{name: kind for name, (_, kind) in inputs.items()})
    found: dict[str, set[str]] = {}
    for name, kind in zip(inside.list_outputs(), outputs, strict=True):
        found.setdefault(nodes.get(name.removesuffix("_output"), "other"), set()).add(kind.__name__)
    named = dict(zip(inside.list_arguments(), weights, strict=True))
    found["weights"] = {kind.__name__ for name, kind in named.items() if name not in inputs}
    found["loss"] = {outputs[-1].__name__}
    return {name: sorted(kinds) for name, kinds in found.items()}


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


def updated(settings: Optimizer) -> dict[str, Any]:
    assert gluonnlp.optimizer.BERTAdam, "its import has registered it"
    weights = []
    given = {"learning_rate": settings.learning_rate, "wd": settings.weight_decay, "epsilon": settings.epsilon}
    ours = optimizers.build(settings, [SimpleNamespace(shape=(3, 4), wd_mult=1.0)])
    for update in (ours, mx.optimizer.create("bertadam", **given)):
        mx.random.seed(1)
        weight = mx.nd.random.normal(shape=(3, 4))
        state = update.create_state(0, weight)
        for _ in range(5):
            update.update(0, weight, mx.nd.random.normal(shape=(3, 4)), state)
        weights.append(weight.asnumpy().tolist())
    return {"weights": weights}


def main() -> None:
    what, *asked = sys.argv[1:]
    if what == "types":
        amp.init("float16")  # before the models are made, as a rank does
    for one in asked:
        match what:
            case "types":
                told: dict[str, Any] = types(one)
            case "steps":
                told = stepped(frameworks.specification(json.loads(one)))
            case _:
                told = updated(read(Optimizer, json.loads(one)))
        print(json.dumps(told))


if __name__ == "__main__":
    main()

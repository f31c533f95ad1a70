"""Helper process, in MXNet's environment: the types of all operations of a model under AMP.

Arguments: bert, resnet. For each the process prints a line: the types that the outputs of each operation have.
"""

import json
import sys

import mxnet as mx
from mxnet.contrib import amp

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


def main() -> None:
    amp.init("float16")  # before the model is made, as a rank does
    for model in sys.argv[1:]:
        print(json.dumps(types(model)))


if __name__ == "__main__":
    main()

"""Helper process, in MXNet's environment: the types of all operations of a model under AMP.

Argument: bert or resnet. The process prints, for each operation, the types that its outputs have.
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
"""Shapes and types of the batch's arrays, as a form's `batch` makes them."""


def main() -> None:
    amp.init("float16")  # before the model is made, as a rank does
    inputs = INPUTS[sys.argv[1]]
    network = (
        bert.BertForPretraining("bert-tiny", 30522, 0.1)
        if sys.argv[1] == "bert"
        else in_mxnet.ResNet(resnet.Shape((1, 2), width=8, expansion=4), resnet.Parameters(image=33, classes=7))
    )
    loss = network(*map(mx.sym.var, inputs))
    nodes = {node["name"]: node["op"] for node in json.loads(loss.tojson())["nodes"]}
    inside = loss.get_internals()
    inside.infer_shape(**{name: shape for name, (shape, _) in inputs.items()})
    weights, outputs, _ = inside.infer_type(**{name: kind for name, (_, kind) in inputs.items()})
    types: dict[str, set[str]] = {}
    for name, kind in zip(inside.list_outputs(), outputs, strict=True):
        types.setdefault(nodes.get(name.removesuffix("_output"), "other"), set()).add(kind.__name__)
    named = dict(zip(inside.list_arguments(), weights, strict=True))
    types["weights"] = {kind.__name__ for name, kind in named.items() if name not in inputs}
    types["loss"] = {outputs[-1].__name__}
    print(json.dumps({name: sorted(kinds) for name, kinds in types.items()}))


if __name__ == "__main__":
    main()

"""ResNet in MXNet, as one graph. The blocks are ours, because Gluon's model zoo has only versions 1 and 2, not 1.5.

Pictures are channels first, because MXNet has no other convolutions on a CPU. Its batch norms keep a biased running
variance (PyTorch's is unbiased). Each rank has its own running variance, and training never reads it.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.in_mxnet_form import MxnetForm
from throughline.workloads.resnet import DEVIATION, EPSILON, MEAN, MOMENTUM, SHAPES, Block, Parameters, Shape


class Convolution(gluon.HybridBlock):  # type: ignore[misc]
    """A convolution without bias, followed by a batch norm."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        self.shape = {
            "num_filter": outputs, "kernel": (size, size), "stride": (stride, stride), "pad": (size // 2, size // 2),
        }  # fmt: skip
        with self.name_scope():
            spread = mx.init.Xavier("gaussian", "out", magnitude=2)  # He et al. 2015
            self.weight = self.params.get("weight", shape=(outputs, inputs, size, size), init=spread)
            self.scale = self.params.get("scale", shape=(outputs,), init="ones")
            self.shift = self.params.get("shift", shape=(outputs,), init="zeros")
            still: dict[str, Any] = {"shape": (outputs,), "grad_req": "null", "differentiable": False}
            self.running_mean = self.params.get("running_mean", init="zeros", **still)
            self.running_var = self.params.get("running_var", init="ones", **still)

    def hybrid_forward(  # type: ignore[no-untyped-def]
        self, F, hidden, weight, scale, shift, running_mean, running_var
    ) -> Any:
        hidden = F.Convolution(hidden, weight, no_bias=True, **self.shape)
        kept = 1 - MOMENTUM  # MXNet's momentum is the share of the old statistics, PyTorch's that of the new ones
        return F.BatchNorm(hidden, scale, shift, running_mean, running_var, eps=EPSILON, momentum=kept, fix_gamma=False)


class Residual(gluon.HybridBlock):  # type: ignore[misc]
    """A residual block: the output of its convolutions is added to its input."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        with self.name_scope():
            self.convolutions = gluon.nn.HybridSequential()
            self.convolutions.add(*(Convolution(*sizes) for sizes in block.convolutions))
            self.shortcut = None
            if block.has_shortcut:
                self.shortcut = Convolution(block.inputs, block.outputs, 1, block.stride)

    def hybrid_forward(self, F, hidden) -> Any:  # type: ignore[no-untyped-def]
        residual = hidden if self.shortcut is None else self.shortcut(hidden)
        *first, last = self.convolutions
        for convolution in first:
            hidden = F.relu(convolution(hidden))
        return F.relu(last(hidden) + residual)


class Head(gluon.HybridBlock):  # type: ignore[misc]
    """Compute the scores of all classes from the mean over all pixels."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        with self.name_scope():
            spread = mx.init.Uniform(inputs**-0.5)  # as in PyTorch
            self.weight = self.params.get("weight", shape=(classes, inputs), init=spread)
            self.bias = self.params.get("bias", shape=(classes,), init=spread)

    def hybrid_forward(self, F, hidden, weight, bias) -> Any:  # type: ignore[no-untyped-def]
        return F.FullyConnected(F.mean(hidden, axis=(2, 3)), weight, bias, num_hidden=self.classes)


class ResNet(gluon.HybridBlock):  # type: ignore[misc]
    """ResNet with its loss, of shape (1,). Calling it takes the arrays of `batch`, on the device."""

    def __init__(self, shape: Shape, given: Parameters) -> None:
        super().__init__()
        self.smoothing = given.label_smoothing
        blocks = iter(shape.blocks)
        with self.name_scope():
            self.mean = self.params.get_constant("mean", np.reshape(MEAN, (1, 3, 1, 1)))
            self.deviation = self.params.get_constant("deviation", np.reshape(DEVIATION, (1, 3, 1, 1)))
            self.stem = Convolution(3, shape.width, 7, 2)
            self.stages = gluon.nn.HybridSequential()
            for count in shape.stages:
                stage = gluon.nn.HybridSequential()
                stage.add(*(Residual(next(blocks)) for _ in range(count)))
                self.stages.add(stage)
            self.head = Head(shape.blocks[-1].outputs, given.classes)

    def named_parameters(self) -> list[tuple[str, gluon.Parameter]]:
        """Return every weight by its place in the network. These are the names of the PyTorch implementation."""
        parameters = self._collect_params_with_prefix().items()
        return [(name, parameter) for name, parameter in parameters if parameter.grad_req != "null"]

    def hybrid_forward(self, F, pixels, labels, mean, deviation) -> Any:  # type: ignore[no-untyped-def]
        hidden = F.transpose(F.cast(pixels, "float32"), (0, 3, 1, 2))
        hidden = F.broadcast_div(F.broadcast_sub(hidden, mean), deviation)
        hidden = F.relu(self.stem(hidden))
        hidden = F.Pooling(hidden, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
        surprises = -F.log_softmax(self.head(self.stages(hidden)))
        right, all_alike = F.mean(F.pick(surprises, labels)), F.mean(surprises)
        return (1 - self.smoothing) * right + self.smoothing * all_alike


class ResNetInMxnet(MxnetForm[Parameters, ResNet]):
    lacks = {"bf16": "MXNet trains no ResNet in bf16"}

    def build(self, spec: RunSpec[Parameters], facts: Values, at: mx.Context | None = None) -> ResNet:
        network = ResNet(SHAPES[spec.model], spec.parameters)
        network.initialize(ctx=at)
        network.hybridize(static_alloc=True, static_shape=True)
        return network

    def batch(self, arrays: Arrays) -> list[Any]:
        return [arrays["pixels"], arrays["labels"]]

    def settings(self, network: ResNet) -> dict[str, Any]:
        parameters = [parameter for _, parameter in network.named_parameters()]
        is_cuda = parameters[0].list_ctx()[0].device_type == "gpu"
        return {
            "parameters": sum(parameter.data().size for parameter in parameters),
            "normalization": "of bytes, on the device",
            "batch_norm": f"epsilon {EPSILON:g}, momentum {MOMENTUM:g}, over the pictures of each replica",
            "label_smoothing": network.smoothing,
            "memory_format": "channels first",
            "convolutions": "cuDNN's kernels" if is_cuda else "oneDNN's kernels",
            "dropout": [],
            "loss": "mean over all pictures, of each replica",
        }


FORM = ResNetInMxnet()

"""ResNet in Paddle: the blocks and the forward pass of paddle.vision's ResNet, which is version 1.5.

The constructor there accepts only the published depths, so `Network` builds all sizes itself. Pictures are channels
first, as is usual with paddle.vision. Paddle's batch norms keep a biased running variance (PyTorch's is unbiased). Each
rank has its own running variance, and training never reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.vision.models.resnet import BasicBlock, BottleneckBlock, ResNet

from throughline import workloads
from throughline.workloads import Arrays, in_paddle_operations
from throughline.workloads.in_paddle_operations import versions
from throughline.workloads.resnet import DEVIATION, MEAN, SHAPES, Parameters, Shape

__all__ = ["LACKS", "build", "load", "settings", "versions"]

LACKS = {
    "checkpointing": "recomputing a batch norm would change its running statistics twice",
    "unpadded": "pictures have no padding that could be left out",
    "sharding": "resnet's states are small, and every replica keeps all of them",
    "tensor": "each device holds the whole resnet",
}
NAMES: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"^stem\.weight": "conv1.weight",
    r"^stem\.": "bn1.",
    r"^stages\.(\d+)": lambda found: f"layer{int(found[1]) + 1}",
    r"convolutions\.(\d+)\.weight": lambda found: f"conv{int(found[1]) + 1}.weight",
    r"convolutions\.(\d+)": lambda found: f"bn{int(found[1]) + 1}",
    r"shortcut\.weight": "downsample.0.weight",
    r"shortcut\.": "downsample.1.",
    r"^head\.": "fc.",
    r"scale$": "weight",
    r"shift$": "bias",
}
"""Replacements that turn a name of the PyTorch form into paddle.vision's name. They are applied one after the other."""


def build(spec: dict[str, Any], facts: dict[str, Any]) -> Network:
    """Return the network of a run specification, with random weights."""
    return Network(SHAPES[spec["model"]], workloads.parameters(spec))


def load(network: Network, weights: Arrays) -> None:
    """Set all weights in place; ValueError if the names differ."""
    in_paddle_operations.load(network, {_name(name): array for name, array in weights.items()})


def _name(common: str) -> str:
    for pattern, there in NAMES.items():
        common = re.sub(pattern, there, common)
    return common


def settings(network: Network) -> dict[str, Any]:
    """Return the settings of the network as it was built, by the names of `SETTINGS`."""
    norm, on_gpu = network.bn1, "gpu" in str(network.conv1.weight.place)
    share = round(1 - norm._momentum, 6)  # Paddle's momentum is the share of the old statistics
    return {
        "parameters": sum(parameter.size for parameter in in_paddle_operations.trained(network).values()),
        "normalization": "of bytes, on the device",
        "batch_norm": f"epsilon {norm._epsilon:g}, momentum {share:g}, over the pictures of each replica",
        "label_smoothing": network.smoothing,
        "memory_format": "channels first",
        "convolutions": "cuDNN's kernels" if on_gpu else "Paddle's own: a matrix product of what each output sees",
        "dropout": [],
        "loss": "mean over all pictures, of each replica",
    }


class Network(ResNet):  # type: ignore[misc]
    """ResNet with its loss. `forward` takes the tensors of `resnet.batch` and returns the mean over all pictures."""

    def __init__(self, shape: Shape, given: Parameters) -> None:
        nn.Layer.__init__(self)
        block = BottleneckBlock if shape.expansion > 1 else BasicBlock
        self.groups, self.base_width, self.dilation, self._norm_layer = 1, 64, 1, nn.BatchNorm2D
        self.num_classes, self.with_pool, self.smoothing = given.classes, True, given.label_smoothing
        self.inplanes = shape.width
        self.conv1 = nn.Conv2D(3, shape.width, 7, stride=2, padding=3, bias_attr=False)
        self.bn1, self.relu = nn.BatchNorm2D(shape.width), nn.ReLU()
        self.maxpool, self.avgpool = nn.MaxPool2D(3, 2, 1), nn.AdaptiveAvgPool2D(1)
        for stage, count in enumerate(shape.stages):
            made = self._make_layer(block, shape.width << stage, count, stride=2 if stage else 1)
            setattr(self, f"layer{stage + 1}", made)
        self.fc = nn.Linear(shape.blocks[-1].outputs, given.classes)
        self.mean, self.deviation = paddle.to_tensor(MEAN), paddle.to_tensor(DEVIATION)

    def forward(self, pixels: Any, labels: Any) -> Any:
        pictures = (pixels.astype("float32") - self.mean) / self.deviation
        scores = super().forward(pictures.transpose([0, 3, 1, 2]))
        return F.cross_entropy(scores, labels, label_smoothing=self.smoothing)

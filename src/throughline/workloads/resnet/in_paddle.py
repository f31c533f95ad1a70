"""ResNet in Paddle: the blocks and the forward pass of paddle.vision's ResNet, which is version 1.5.

The constructor there accepts only the published depths, so `Network` builds all sizes itself. On GPUs pictures are
channels last, the format of their fast kernels. On CPUs they are channels first, as is usual with paddle.vision.
Weights are the same in both. Paddle's batch norms keep a biased running variance (PyTorch's is unbiased). Each
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

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.in_paddle_form import PaddleForm, on_gpu, trained
from throughline.workloads.resnet import DEVIATION, MEAN, SHAPES, Parameters, Shape

NAMES: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"^stem\.weight": "conv1.weight",
    r"^stem\.": "bn1.",
    r"^stages\.(\d+)": lambda match: f"layer{int(match[1]) + 1}",
    r"convolutions\.(\d+)\.weight": lambda match: f"conv{int(match[1]) + 1}.weight",
    r"convolutions\.(\d+)": lambda match: f"bn{int(match[1]) + 1}",
    r"shortcut\.weight": "downsample.0.weight",
    r"shortcut\.": "downsample.1.",
    r"^head\.": "fc.",
    r"scale$": "weight",
    r"shift$": "bias",
}
"""Replacements that turn a name of the PyTorch implementation into paddle.vision's, applied one after the other."""


def _name(common: str) -> str:
    for pattern, there in NAMES.items():
        common = re.sub(pattern, there, common)
    return common


class Network(ResNet):  # type: ignore[misc]
    """ResNet with its loss. `forward` takes the tensors of `resnet.batch` and returns the mean over all pictures."""

    def __init__(self, shape: Shape, given: Parameters, channels_last: bool) -> None:
        nn.Layer.__init__(self)
        self.channels_last = channels_last
        block = BottleneckBlock if shape.expansion > 1 else BasicBlock
        self.groups, self.base_width, self.dilation, self._norm_layer = 1, 64, 1, nn.BatchNorm2D
        self.num_classes, self.with_pool, self.smoothing = given.classes, True, given.label_smoothing
        self.inplanes = shape.width
        self.conv1 = nn.Conv2D(3, shape.width, 7, stride=2, padding=3, bias_attr=False)
        self.bn1, self.relu = nn.BatchNorm2D(shape.width), nn.ReLU()
        self.maxpool, self.avgpool = nn.MaxPool2D(3, 2, 1), nn.AdaptiveAvgPool2D(1)
        for stage, count in enumerate(shape.stages):
            layers = self._make_layer(block, shape.width << stage, count, stride=2 if stage else 1)
            setattr(self, f"layer{stage + 1}", layers)
        self.fc = nn.Linear(shape.blocks[-1].outputs, given.classes)
        self.mean, self.deviation = paddle.to_tensor(MEAN), paddle.to_tensor(DEVIATION)
        if channels_last:
            for layer in self.sublayers():
                _to_channels_last(layer)

    def forward(self, pixels: Any, labels: Any) -> Any:
        pictures = (pixels.astype("float32") - self.mean) / self.deviation
        scores = super().forward(pictures if self.channels_last else pictures.transpose([0, 3, 1, 2]))
        return F.cross_entropy(scores, labels, label_smoothing=self.smoothing)


def _to_channels_last(layer: Any) -> None:
    """Let a layer take pictures as [B, H, W, C]. The blocks of paddle.vision do not pass the format to their layers."""
    if isinstance(layer, nn.Conv2D):
        layer._data_format, layer._channel_dim = "NHWC", 3
    elif isinstance(layer, (nn.BatchNorm2D, nn.AdaptiveAvgPool2D)):
        layer._data_format = "NHWC"
    elif isinstance(layer, nn.MaxPool2D):
        layer.data_format = "NHWC"


class ResNetInPaddle(PaddleForm[Parameters, Network]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: Any = None) -> Network:
        return Network(SHAPES[spec.model], spec.parameters, channels_last=on_gpu(at))

    def load(self, network: Network, weights: Arrays) -> None:
        super().load(network, {_name(name): array for name, array in weights.items()})

    def settings(self, network: Network) -> dict[str, Any]:
        norm, on_gpu = network.bn1, "gpu" in str(network.conv1.weight.place)
        share = round(1 - norm._momentum, 6)  # Paddle's momentum is the share of the old statistics
        return {
            "parameters": sum(parameter.size for parameter in trained(network).values()),
            "normalization": "of bytes, on the device",
            "batch_norm": f"epsilon {norm._epsilon:g}, momentum {share:g}, over the pictures of each replica",
            "label_smoothing": network.smoothing,
            "memory_format": "channels last" if network.conv1._data_format == "NHWC" else "channels first",
            "convolutions": "cuDNN's kernels" if on_gpu else "Paddle's own: a matrix product of what each output sees",
            "dropout": [],
            "loss": "mean over all pictures, of each replica",
        }


FORM = ResNetInPaddle()

"""ResNet in PyTorch: the published architecture, with our own operations.

The forward pass is a few functions (stem, stage, loss), so a compiler sees each function as a whole. A test compares
the forward pass with Hugging Face's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear, max_pool2d, pad

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.in_torch_form import InParts, TorchForm
from throughline.workloads.in_torch_half import HalfCopy, Halved, used
from throughline.workloads.resnet import DEVIATION, EPSILON, LACKS, MEAN, MOMENTUM, SHAPES, Block, Parameters, Shape

MANY = 512
"""On a CPU, a 3x3 convolution with this many channels or more is computed as one matrix product.

A 1x1 convolution always is. oneDNN's kernels rearrange the weights in every pass, which is slow for large weights. We
measured batches of 8 and 32, in fp32 and bf16. With this many channels, oneDNN takes 1.3 to 5 times as long as the
matrix product. With fewer channels and more pixels, it takes 0.1 to 0.6 times as long.
"""


class Convolution(nn.Module):
    """A convolution without bias, followed by a batch norm."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        self.stride, self.padding = stride, size // 2
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size, size))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        self.scale, self.shift = nn.Parameter(torch.ones(outputs)), nn.Parameter(torch.zeros(outputs))
        self.register_buffer("running_mean", torch.zeros(outputs))
        self.register_buffer("running_var", torch.ones(outputs))

    def forward(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """`weight` is this one's in the type of `hidden`."""
        if hidden.device.type == "cpu" and hidden.stride(1) == 1 and (self.padding == 0 or weight.shape[1] >= MANY):
            hidden = product(hidden, weight, self.stride)
        else:
            hidden = conv2d(hidden, weight, stride=self.stride, padding=self.padding)
        return batch_norm(
            hidden, self.running_mean, self.running_var, self.scale, self.shift, self.training, MOMENTUM, EPSILON
        )


def product(hidden: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Compute a convolution with channels last as one matrix product: the inputs of each output, times the weights."""
    _, _, height, width = hidden.shape
    size, pixels = weight.shape[-1], hidden.permute(0, 2, 3, 1)
    around = pad(pixels, (0, 0) + 4 * (size // 2,)) if size > 1 else pixels
    seen = [around[:, y : y + height : stride, x : x + width : stride] for y in range(size) for x in range(size)]
    columns = torch.cat(seen, -1) if size > 1 else seen[0]
    return linear(columns, weight.permute(0, 2, 3, 1).flatten(1)).permute(0, 3, 1, 2)


def in_type(kind: torch.dtype, weights: list[Tensor], halved: Halved | None) -> list[Tensor]:
    """Return weights in a type: their copies if these have that type, otherwise the weights themselves, cast."""
    if halved and halved.copies[0].dtype == kind:
        return used(halved)
    return [weight.to(kind) for weight in weights]


def halved(weights: list[Tensor], copy: HalfCopy) -> Halved:
    return copy.of(weights, tuple((place,) for place in range(len(weights))))


class Residual(nn.Module):
    """A residual block: the output of its convolutions is added to its input."""

    halved: Halved | None = None
    """The weights of the convolutions with their copies in a 16-bit type, if there are such copies."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(Convolution(*sizes) for sizes in block.convolutions)
        self.shortcut = None
        if block.has_shortcut:
            self.shortcut = Convolution(block.inputs, block.outputs, 1, block.stride)

    def weights(self) -> list[Tensor]:
        """Return the weights of the convolutions, and that of the shortcut, if there is one."""
        every: Any = [*self.convolutions, *([self.shortcut] if self.shortcut else [])]
        return [convolution.weight for convolution in every]

    def forward(self, hidden: Tensor) -> Tensor:
        weights = in_type(hidden.dtype, self.weights(), self.halved)
        residual = hidden if self.shortcut is None else self.shortcut(hidden, weights[-1])
        *first, last = self.convolutions
        for convolution, weight in zip(first, weights, strict=False):
            hidden = convolution(hidden, weight).relu_()
        added: Tensor = last(hidden, weights[len(first)]).add_(residual)
        return added.relu_()


class ResNet(InParts):
    """ResNet with its loss. `forward` takes the tensors of `resnet.batch` and returns the mean over all pictures.

    With `half_type`, the weights keep their type and are cast where they are used. Convolutions, the last product and
    the activations between them have the 16-bit type; batch norms and the loss are computed in the weights' type.
    """

    mean: Tensor
    deviation: Tensor
    stages: Any
    halved: tuple[Halved, Halved] | None = None
    """The weights of the stem and of the head with their copies in a 16-bit type, if there are such copies."""

    def __init__(self, shape: Shape, given: Parameters) -> None:
        super().__init__()
        self.channels_last, self.label_smoothing = given.channels_last, given.label_smoothing
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION)[:, None, None], persistent=False)
        self.stem = Convolution(3, shape.width, 7, 2)
        blocks = iter(shape.blocks)
        self.stages = nn.ModuleList(
            nn.ModuleList(Residual(next(blocks)) for _ in range(count)) for count in shape.stages
        )
        self.head = nn.Linear(shape.blocks[-1].outputs, given.classes)
        # Stages are compiled apart, so that ranks can exchange the gradients of one while they compute others.
        self.parts = (begun, through, loss)

    def ends(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the weights of the stem and of the head that products take."""
        return [self.stem.weight], [self.head.weight, self.head.bias]

    def halve(self, copy: HalfCopy) -> None:
        """Keep copies of what convolutions and the last product take."""
        stem, head = self.ends()
        self.halved = halved(stem, copy), halved(head, copy)
        for block in (block for blocks in self.stages for block in blocks):
            block.halved = halved(block.weights(), copy)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        begin, stage, end = self.parts
        hidden = begin(self, pixels)
        for blocks in self.stages:
            hidden = stage(blocks, hidden)
        return end(self, hidden, labels.long())

    def scores(self, pixels: Tensor) -> Tensor:
        """Return the scores of all classes [B, C], in the weights' type."""
        hidden = begun(self, pixels)
        for blocks in self.stages:
            hidden = through(blocks, hidden)
        return scored(self, hidden)


def begun(network: ResNet, pixels: Tensor) -> Tensor:
    """Compute the stem from bytes [B, S, S, 3]: normalization, convolution and maximum pooling."""
    hidden = pixels.permute(0, 3, 1, 2).to(network.mean.dtype)  # still channels last in memory
    hidden = hidden.sub_(network.mean).div_(network.deviation).to(network.half_type or hidden.dtype)
    if not network.channels_last:
        hidden = hidden.contiguous()
    (weight,) = in_type(hidden.dtype, network.ends()[0], network.halved[0] if network.halved else None)
    hidden = network.stem(hidden, weight).relu_()
    return max_pool2d(hidden, 3, stride=2, padding=1)


def through(blocks: Iterable[nn.Module], hidden: Tensor) -> Tensor:
    """Compute the blocks of a stage."""
    for block in blocks:
        hidden = block(hidden)
    return hidden


def scored(network: ResNet, hidden: Tensor) -> Tensor:
    mean = hidden.mean((2, 3))
    weight, bias = in_type(mean.dtype, network.ends()[1], network.halved[1] if network.halved else None)
    return linear(mean, weight, bias).to(network.head.weight.dtype)


def loss(network: ResNet, hidden: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(scored(network, hidden), labels, label_smoothing=network.label_smoothing)


class ResNetInTorch(TorchForm[Parameters, ResNet]):
    lacks = LACKS
    changing = frozenset({"running_mean", "running_var"})

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> ResNet:
        if at and at.type == "cuda":
            torch.backends.cudnn.benchmark = True  # all batches have the same shape
        network: Any = ResNet(SHAPES[spec.model], spec.parameters)
        built: ResNet = network.to(memory_format=torch.channels_last) if network.channels_last else network
        return built

    def halve(self, network: ResNet, copy: HalfCopy) -> None:
        network.halve(copy)

    def settings(self, network: ResNet) -> dict[str, Any]:
        stem = network.stem.weight
        cudnn = "cuDNN's kernels, the fastest of those tried on the first batch"
        onednn = "oneDNN's kernels"
        if network.channels_last:
            onednn += f"; matrix products for those of 1x1 and for {MANY} channels and more"
        return {
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "normalization": "of bytes, on the device",
            "batch_norm": f"epsilon {EPSILON:g}, momentum {MOMENTUM:g}, over the pictures of each replica",
            "label_smoothing": network.label_smoothing,
            "memory_format": "channels last" if stem.stride(1) == 1 else "channels first",
            "convolutions": cudnn if stem.is_cuda else onednn,
            "dropout": [],
            "loss": "mean over all pictures, of each replica",
        }

    @torch.no_grad()
    def sums(self, network: ResNet, batch: dict[str, Tensor]) -> dict[str, float]:
        """Return the loss without smoothing, and the pictures whose class has the highest score, over a batch.

        They are computed in the weights' precision. Norms use their running statistics.
        """
        half, network.half_type = network.half_type, None
        network.eval()
        scores, labels = network.scores(batch["pixels"]), batch["labels"].long()
        network.train()
        network.half_type = half
        loss = cross_entropy(scores, labels, reduction="sum").double()
        right = (scores.argmax(1) == labels).sum()
        return {"loss": float(loss), "found": float(right), "samples": float(len(labels))}


FORM = ResNetInTorch()

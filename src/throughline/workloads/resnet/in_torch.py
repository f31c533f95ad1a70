"""ResNet in PyTorch: the published architecture as plain modules. A test compares it with Hugging Face's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear, max_pool2d, pad

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.in_torch_form import Network, TorchForm
from throughline.workloads.resnet import DEVIATION, EPSILON, MEAN, MOMENTUM, SHAPES, Block, Parameters, Shape

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

    def forward(self, hidden: Tensor) -> Tensor:
        by_product = self.padding == 0 or self.weight.shape[1] >= MANY
        if by_product and hidden.device.type == "cpu" and hidden.stride(1) == 1:
            hidden = product(hidden, self.weight, self.stride)
        else:
            hidden = conv2d(hidden, self.weight, stride=self.stride, padding=self.padding)
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


class Residual(nn.Module):
    """A residual block: the output of its convolutions is added to its input."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(Convolution(*sizes) for sizes in block.convolutions)
        self.shortcut = None
        if block.has_shortcut:
            self.shortcut = Convolution(block.inputs, block.outputs, 1, block.stride)

    def forward(self, hidden: Tensor) -> Tensor:
        residual = hidden if self.shortcut is None else self.shortcut(hidden)
        *first, last = self.convolutions
        for convolution in first:
            hidden = convolution(hidden).relu_()
        added: Tensor = last(hidden).add_(residual)
        return added.relu_()


class Stage(nn.ModuleList):
    """The blocks of one size. A stage is compiled by itself, so ranks can exchange its gradients early."""

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self:
            hidden = block(hidden)
        return hidden


class ResNet(Network):
    """ResNet with its loss. `forward` takes the tensors of `resnet.batch` and returns the mean over all pictures."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: Shape, given: Parameters) -> None:
        super().__init__()
        self.channels_last, self.label_smoothing = given.channels_last, given.label_smoothing
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION)[:, None, None], persistent=False)
        self.stem = Convolution(3, shape.width, 7, 2)
        blocks = iter(shape.blocks)
        self.stages = nn.ModuleList(Stage(Residual(next(blocks)) for _ in range(count)) for count in shape.stages)
        self.head = nn.Linear(shape.blocks[-1].outputs, given.classes)

    def parts(self) -> list[tuple[nn.Module, str]]:
        return [(self, "begun"), *((stage, "forward") for stage in self.stages), (self, "loss")]

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        return self.loss(self.states(pixels), labels.long())

    def states(self, pixels: Tensor) -> Tensor:
        """Return the states [B, C, h, w] after the last stage."""
        with self.autocast():
            hidden = self.begun(pixels)
            for stage in self.stages:
                hidden = stage(hidden)
        return hidden

    def begun(self, pixels: Tensor) -> Tensor:
        """Compute the stem from bytes [B, S, S, 3]: normalization, convolution and maximum pooling."""
        hidden = pixels.permute(0, 3, 1, 2).to(self.mean.dtype)  # still channels last in memory
        hidden = hidden.sub_(self.mean).div_(self.deviation).to(self.half_type or hidden.dtype)
        if not self.channels_last:
            hidden = hidden.contiguous()
        return max_pool2d(self.stem(hidden).relu_(), 3, stride=2, padding=1)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores of all classes [B, C], in the weights' type."""
        with self.autocast():
            scores: Tensor = self.head(hidden.mean((2, 3)))
        return scores.to(self.head.weight.dtype)

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.scores(hidden), labels, label_smoothing=self.label_smoothing)


class ResNetInTorch(TorchForm[Parameters, ResNet]):
    changing = frozenset({"running_mean", "running_var"})

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> ResNet:
        if at and at.type == "cuda":
            torch.backends.cudnn.benchmark = True  # all batches have the same shape
        network: Any = ResNet(SHAPES[spec.model], spec.parameters)
        return network.to(memory_format=torch.channels_last) if network.channels_last else network  # type: ignore[no-any-return]

    def settings(self, network: ResNet) -> dict[str, Any]:
        stem = network.stem.weight
        kernels = "cuDNN's kernels, the fastest of those tried on the first batch"
        if not stem.is_cuda:
            products = f"; matrix products for those of 1x1 and for {MANY} channels and more"
            kernels = "oneDNN's kernels" + products * network.channels_last
        return {
            "parameters": self.parameters(network),
            "normalization": "of bytes, on the device",
            "batch_norm": f"epsilon {EPSILON:g}, momentum {MOMENTUM:g}, over the pictures of each replica",
            "label_smoothing": network.label_smoothing,
            "memory_format": "channels last" if stem.stride(1) == 1 else "channels first",
            "convolutions": kernels,
            "dropout": [],
            "loss": "mean over all pictures, of each replica",
        }

    def predicted(self, network: ResNet, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the losses without smoothing, and which pictures' class has the highest score.

        Norms use their running statistics.
        """
        scores, labels = network.scores(network.states(batch["pixels"])), batch["labels"].long()
        return {"loss": cross_entropy(scores, labels, reduction="none"), "found": scores.argmax(1) == labels}


FORM = ResNetInTorch()

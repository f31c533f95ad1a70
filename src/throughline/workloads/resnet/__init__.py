"""ResNet image classification, framework-neutral: shapes, batches, FLOPs.

The architecture is v1.5 of He et al. 2015.

If a bottleneck halves the picture, its 3x3 convolution has the stride of 2. Pixels go to the device as bytes and are
normalized there. Floats would take four times as many bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from throughline.spec import Options, Part, RunSpec, key
from throughline.workloads import Arrays, Values, Workload


@dataclass(frozen=True)
class Block:
    """A residual block: two convolutions, or three in a bottleneck, with `width` channels inside."""

    inputs: int
    width: int
    outputs: int
    stride: int

    @property
    def is_bottleneck(self) -> bool:
        return self.outputs > self.width

    @property
    def convolutions(self) -> list[tuple[int, int, int, int]]:
        """Inputs, outputs, size and stride of each convolution, in their order."""
        if self.is_bottleneck:
            inside = (self.width, self.width, 3, self.stride)
            return [(self.inputs, self.width, 1, 1), inside, (self.width, self.outputs, 1, 1)]
        return [(self.inputs, self.width, 3, self.stride), (self.width, self.outputs, 3, 1)]

    @property
    def has_shortcut(self) -> bool:
        """True if a 1x1 convolution brings the residual to the shape of the block's outputs."""
        return self.stride > 1 or self.inputs != self.outputs


@dataclass(frozen=True)
class Shape:
    stages: tuple[int, ...]
    """How many blocks each stage has."""
    width: int = 64
    """Channels of the stem, and inside the blocks of the first stage. Each further stage has twice as many."""
    expansion: int = 4
    """Output channels of a block divided by its width. 1: a block is two convolutions and no bottleneck."""

    @property
    def blocks(self) -> list[Block]:
        """All blocks, in their order."""
        blocks: list[Block] = []
        for stage, count in enumerate(self.stages):
            width = self.width << stage
            for number in range(count):
                inputs = blocks[-1].outputs if blocks else self.width
                blocks.append(Block(inputs, width, width * self.expansion, 2 if stage and not number else 1))
        return blocks


SHAPES = {
    "resnet-tiny": Shape((1, 1, 1, 1), width=16),
    "resnet18": Shape((2, 2, 2, 2), expansion=1),
    "resnet50": Shape((3, 4, 6, 3)),
}
MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)
"""Mean and standard deviation of ImageNet's pixels (red, green, blue, from 0 to 255). They normalize all pictures."""
EPSILON = 1e-5
"""Epsilon of the batch norms."""
MOMENTUM = 0.1
"""The share that a new batch has in the running statistics of batch norms."""
ALL = frozenset({"devices", "nodes", "amp", "gradient_accumulation", "clipping"})
"""The features of every implementation."""
MODERN = ALL | {"bf16", "compile"}
"""The features of every implementation but MXNet's."""


@dataclass(frozen=True)
class Parameters(Part):
    image: int = key(
        "width and height of a picture, in pixels", default=224, least=8, most=4096, stated=True, unit="pixels"
    )
    classes: int = key(
        "classes of the model, at least as many as the pictures have", default=1000, least=2, most=1_000_000
    )
    label_smoothing: float = key("share of a label that is spread over all classes", default=0.1, least=0, most=0.99)
    channels_last: bool = key("memory format in PyTorch; true: the channels of a pixel lie together", default=True)


def flops(shape: Shape, image: int, classes: int) -> float:
    """Return the FLOPs to train on one picture: 3 x forward, a multiply-add is 2, convolutions and last product only.

    For each product in the forward pass, the backward pass has two. The first convolution has only one there, because
    it needs no gradient of the picture.
    """
    first, *others = multiply_adds(shape, image, classes)
    return 2.0 * (2 * first + 3 * sum(others))


def multiply_adds(shape: Shape, image: int, classes: int) -> Iterator[int]:
    """Yield the multiply-adds of the forward pass on one picture: of each convolution in order, then of the last
    product."""
    side = halved(image)
    yield 7 * 7 * 3 * shape.width * side**2
    side = halved(side)  # the pooling
    for block in shape.blocks:
        for inputs, outputs, size, stride in block.convolutions:
            side = halved(side) if stride > 1 else side
            yield size**2 * inputs * outputs * side**2
        if block.has_shortcut:
            yield block.inputs * block.outputs * side**2
    yield shape.blocks[-1].outputs * classes


def halved(side: int) -> int:
    """Return the side of a picture after a stride of 2, which keeps every second pixel, beginning with the first."""
    return -(-side // 2)


class ResNet(Workload[Parameters]):
    models = tuple(SHAPES)
    parameters = Parameters
    libraries = {
        "keras": MODERN,
        "mxnet": ALL,
        "paddle": MODERN,
        "torch": MODERN | {"cuda_graph", "convergence", "reduce_dtype"},
    }
    lacks = {
        "activation_checkpointing": "recomputing a batch norm would change its running statistics twice",
        "remove_padding": "pictures have no padding that could be left out",
        "sharding": "resnet's states are small, and every replica keeps all of them",
        "tensor_parallel": "each device holds the whole resnet",
    }
    unit = "images"
    data = "images"
    settings = ("normalization", "batch_norm", "label_smoothing", "memory_format", "convolutions")
    held_out = {"loss": False, "top1": True}
    rounding = 6
    """A batch norm removes what all pictures have in common, but not the rounding. With untrained models, batches of 4
    to 32 and random pixels, we measured differences of at most 4.4e-3 in bf16 and 3.8e-4 in fp16."""
    update_rounding = 200
    """With SGD, an update of resnet-tiny differs by up to 1.1e-2 from that of double precision (16 pictures of 64
    pixels on an AMD EPYC, PyTorch and MXNet alike), and by 5e-2 if products are rounded to TF32."""

    def folder(self, parameters: Parameters) -> str:
        """Return the folder of the one manifest for all sizes of pictures, which the reader crops and resizes."""
        return "images"

    def fits(self, parameters: Parameters, manifest: Values) -> str | None:
        if manifest["classes"] > parameters.classes:
            return f"holds {manifest['classes']} classes; the model tells {parameters.classes} apart"
        return None

    def batch(self, rows: Arrays, options: Options) -> Arrays:
        """Return what a step needs: labels i4[B], and pixels u1[B, S, S, 3] (red, green, blue), cropped and flipped."""
        return {name: rows[name] for name in ("pixels", "labels")}

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return pictures and labels that are drawn uniformly."""
        import numpy as np

        draw = np.random.Generator(np.random.Philox(key=seed))
        size = spec.parameters.image
        return {
            "pixels": draw.integers(0, 256, (count, size, size, 3), dtype=np.uint8),
            "labels": draw.integers(0, spec.parameters.classes, count, dtype=np.int32),
        }

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        return flops(SHAPES[spec.model], spec.parameters.image, spec.parameters.classes)

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        return {
            "flops": "3 x forward, a multiply-add is 2; convolutions and the last product only: no norms, pooling, "
            "loss or optimizer. The first convolution has no gradient of its input",
        }

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["samples"], "top1": sums["found"] / sums["samples"]}


WORKLOAD = ResNet()

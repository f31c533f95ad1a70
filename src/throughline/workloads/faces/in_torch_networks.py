"""The networks that turn a face of 112 x 112 pixels into an embedding: iResNet and MobileFaceNet.

iResNet is the residual network of Deng et al. 2019 (ArcFace, section 3.1, after Han et al. 2017). MobileFaceNet is that
of Chen et al. 2018, in InsightFace's variant y1. The names of the parameters are ours.
"""

from __future__ import annotations

from torch import Tensor, nn

from throughline.workloads.faces import Network


def convolution(
    inside: int, outside: int, kernel: int = 3, stride: int = 1, groups: int = 1, padding: int | None = None
) -> nn.Conv2d:
    """Make a convolution without bias, because a norm follows."""
    return nn.Conv2d(
        inside, outside, kernel, stride, kernel // 2 if padding is None else padding, groups=groups, bias=False
    )


class Residual(nn.Module):
    """A residual block: norm, 3x3, norm, PReLU, 3x3 with the stride, norm; then the input is added.

    If the stride or the width changes the shape, a 1x1 convolution and a norm project the input first.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inside),
            convolution(inside, outside),
            nn.BatchNorm2d(outside),
            nn.PReLU(outside),
            convolution(outside, outside, stride=stride),
            nn.BatchNorm2d(outside),
        )
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.short = nn.Sequential(convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside))

    def forward(self, hidden: Tensor) -> Tensor:
        added: Tensor = self.body(hidden) + self.short(hidden)
        return added


def iresnet(network: Network, dropout: float) -> nn.Sequential:
    """Make the stem, four stages that each halve the picture, and a fully connected layer between two norms."""
    widths, stages = network.widths, list[nn.Module]()
    inside = widths[0]
    for width, count in zip(widths, network.layers or (), strict=True):
        stages += [Residual(inside if block == 0 else width, width, 2 if block == 0 else 1) for block in range(count)]
        inside = width
    return nn.Sequential(
        convolution(3, widths[0]), nn.BatchNorm2d(widths[0]), nn.PReLU(widths[0]), *stages, nn.BatchNorm2d(inside),
        nn.Dropout(dropout), nn.Flatten(), nn.Linear(inside * 7 * 7, network.embedding),
        nn.BatchNorm1d(network.embedding),
    )  # fmt: skip


def activated(inside: int, outside: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [convolution(inside, outside, kernel, stride, groups), nn.BatchNorm2d(outside), nn.PReLU(outside)]


def bottleneck(inside: int, wide: int, outside: int, stride: int) -> list[nn.Module]:
    """Make the layers that widen, convolve each channel by itself, and narrow without an activation."""
    return [
        *activated(inside, wide), *activated(wide, wide, 3, stride, wide),
        convolution(wide, outside, 1), nn.BatchNorm2d(outside),
    ]  # fmt: skip


class Added(nn.Module):
    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, hidden: Tensor) -> Tensor:
        added: Tensor = hidden + self.body(hidden)
        return added


def mobilefacenet(embedding: int) -> nn.Sequential:
    """Make variant y1: one depthwise layer, then stages with 4, 6 and 2 residual bottlenecks.

    At the end, a depthwise 7 x 7 convolution takes a weighted sum of each channel.
    """
    return nn.Sequential(
        *activated(3, 64, 3, 2), *activated(64, 64, 3, 1, 64),
        *bottleneck(64, 128, 64, 2), *(Added(*bottleneck(64, 128, 64, 1)) for _ in range(4)),
        *bottleneck(64, 256, 128, 2), *(Added(*bottleneck(128, 256, 128, 1)) for _ in range(6)),
        *bottleneck(128, 512, 128, 2), *(Added(*bottleneck(128, 256, 128, 1)) for _ in range(2)),
        *activated(128, 512), convolution(512, 512, 7, groups=512, padding=0), nn.BatchNorm2d(512),
        nn.Flatten(), nn.Linear(512, embedding, bias=False), nn.BatchNorm1d(embedding),
    )  # fmt: skip

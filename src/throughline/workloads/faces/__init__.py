"""Face recognition with a margin (ArcFace, CosFace), framework-neutral: networks, batches, FLOPs.

Ranks can split the classifier, or compute with a sample of its classes (An et al. 2021, partial FC).

A network turns an aligned face of 112 x 112 pixels into an embedding, and a classifier holds a vector for each known
person (class).

A numerical equivalence check has at least 4 faces in the batch of a rank, because with few faces batch norms amplify
rounding: fp32 and double precision differ by 5e-2 within its 50 steps with 2 faces, by 1e-5 with 3, and by 5e-6 with 4
(PyTorch, iresnet-tiny, 1,000 classes).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from throughline.spec import Part, RunSpec, key
from throughline.workloads import Arrays, Values, Workload

SIDE = 112
"""Height and width of a face, in pixels."""
PATTERN = 7
"""Rows and columns of the pattern that all synthetic faces of a class share."""


@dataclass(frozen=True)
class Network:
    """The sizes of a network. `layers`: how many residual blocks each stage has, or None for MobileFaceNet."""

    embedding: int
    layers: tuple[int, ...] | None
    widths: tuple[int, ...] = (64, 128, 256, 512)


NETWORKS = {
    # With 8 channels PyTorch 2.13 crashes on a CPU, in the backward pass of a 1 x 1 convolution with a stride.
    "iresnet-tiny": Network(64, (1, 1, 1, 1), (16, 32, 64, 128)),
    "iresnet50": Network(512, (3, 4, 14, 3)),
    "iresnet100": Network(512, (3, 13, 30, 3)),
    "mobilefacenet-y1": Network(128, None),
}
SCALE = 64.0
"""Cosines are multiplied by this before the softmax."""
MARGINS = {"arcface": 0.5, "cosface": 0.4}
"""The margin of each loss: in radians, and as a difference of cosines."""


@dataclass(frozen=True)
class Parameters(Part):
    classes: int = key("persons that the classifier knows", default=1000, least=2, stated=True, titled=True)
    classifier: str = key(
        "every rank has all classes (`data_parallel`), or some (`model_parallel`), of which a step computes with a "
        "sample (`partial`)",
        default="data_parallel",
        choices=("data_parallel", "model_parallel", "partial"),
        whole="data_parallel",
        stated=True,
        titled=True,
    )
    sample_ratio: float = key(
        "with `partial`: the share of a rank's classes in a step, those of its samples included",
        default=0.1,
        least=0.0001,
        most=1.0,
    )
    margin_loss: str = key(
        "adds a margin to the angle between an embedding and its class (`arcface`), or subtracts one from its cosine "
        "(`cosface`)",
        default="arcface",
        choices=("arcface", "cosface"),
    )
    margin_gradient: str = key(
        "ArcFace's gradient: `exact`, or as if there were no margin, as InsightFace's code has it",
        default="exact",
        choices=("exact", "insightface"),
    )


def forward(network: Network) -> list[float]:
    """Return the FLOPs of the forward pass on one face, by layers. Only the first layer sees pixels."""

    def of(side: int, inside: int, outside: int, kernel: int = 3, groups: int = 1) -> float:
        return 2.0 * side * side * outside * (inside // groups) * kernel * kernel

    if network.layers is not None:
        side, inside = SIDE, network.widths[0]
        layers = [of(side, 3, inside)]
        for width, count in zip(network.widths, network.layers, strict=True):
            layers += [of(side, inside, width), of(side // 2, width, width), of(side // 2, inside, width, 1)]
            side, inside = side // 2, width
            layers += [2 * of(side, width, width)] * (count - 1)
        return [*layers, 2.0 * side * side * inside * network.embedding]

    def bottlenecks(side: int, stride: int, inside: int, wide: int, outside: int) -> float:
        small = side // stride
        return of(side, inside, wide, 1) + of(small, wide, wide, 3, wide) + of(small, wide, outside, 1)

    return [
        of(56, 3, 64), of(56, 64, 64, 3, 64), bottlenecks(56, 2, 64, 128, 64), 4 * bottlenecks(28, 1, 64, 128, 64),
        bottlenecks(28, 2, 64, 256, 128), 6 * bottlenecks(14, 1, 128, 256, 128), bottlenecks(14, 2, 128, 512, 128),
        2 * bottlenecks(7, 1, 128, 256, 128), of(7, 128, 512, 1), of(1, 512, 512, 7, 512),
        of(1, 512, network.embedding, 1),
    ]  # fmt: skip


def first_classes(classes: int, ranks: int) -> list[int]:
    """Return the first class of each rank, then the number of classes. Ranks differ by at most one class."""
    return [classes * rank // ranks for rank in range(ranks + 1)]


def sampled_classes(given: Parameters, classes: int, faces: int) -> int:
    """Return with how many of its classes a rank computes in a step of `faces` faces of all ranks: at least as many as
    faces, so the class of each is among them, and no step waits for their number."""
    return min(classes, max(int(given.sample_ratio * classes), faces))


def computed_classes(spec: RunSpec[Parameters]) -> int:
    """Return with how many classes all ranks together compute in a step."""
    given, ranks = spec.parameters, spec.topology.world
    if given.classifier != "partial":
        return given.classes
    parts = pairwise(first_classes(given.classes, ranks))
    return sum(sampled_classes(given, end - start, spec.batch_size * ranks) for start, end in parts)


class Faces(Workload[Parameters]):
    models = tuple(NETWORKS)
    parameters = Parameters
    libraries = {
        "torch": frozenset({
            "devices", "nodes", "amp", "bf16", "compile", "gradient_accumulation", "own_gradient_sync", "reduce_dtype",
        }),
    }  # fmt: skip
    no_form = {
        "mxnet": "InsightFace trains these networks in MXNet with parts of its own, which nobody has written here"
    }
    by_iteration = True
    data = "faces"
    settings = ("embedding", "classifier", "classes", "margin", "scale", "batch_norm", "memory_format")
    learns_from = 100
    check_batch = 4
    """Fewer faces of a rank amplify rounding (above)."""
    update_rounding = 50
    """With SGD and four faces of a rank, an update of iresnet-tiny differs by up to 1.6e-3 from that of double
    precision."""

    def own_gradient_sync(self, spec: RunSpec[Parameters]) -> bool:
        """True if ranks split the classifier, and so exchange embeddings and their gradients."""
        return spec.parameters.classifier != "data_parallel"

    def check_parameters(self, spec: RunSpec[Parameters]) -> dict[str, Any]:
        """Partial FC samples classes at random. With all classes, it is the same as a split classifier."""
        return {"sample_ratio": 1.0} if spec.parameters.classifier == "partial" else {}

    def folder(self, parameters: Parameters) -> str:
        return "faces"

    def fits(self, parameters: Parameters, manifest: Values) -> str | None:
        if manifest["classes"] > parameters.classes:
            return f"holds faces of {manifest['classes']} persons; the classifier knows {parameters.classes}"
        return None

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return pixels u1[B, 112, 112, 3] and labels i4[B]. A face is the coarse pattern of its class plus noise."""
        import numpy as np

        draw = np.random.Generator(np.random.Philox(key=seed))
        labels = draw.integers(0, spec.parameters.classes, count)
        shape = (PATTERN, PATTERN, 3)
        patterns = [np.random.Generator(np.random.Philox(key=int(label))).integers(64, 192, shape) for label in labels]
        pixels = np.stack(patterns).repeat(SIDE // PATTERN, 1).repeat(SIDE // PATTERN, 2)
        noise = draw.integers(-64, 64, pixels.shape, np.int8)
        return {"pixels": (pixels + noise).astype(np.uint8), "labels": labels.astype(np.int32)}

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return the FLOPs to train on one face: 3 x forward without the gradient of the pixels. A classifier that
        samples counts only the classes with which a step computes."""
        network = NETWORKS[spec.model]
        layers = forward(network)
        return 3.0 * sum(layers) - layers[0] + 6.0 * network.embedding * computed_classes(spec)

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        given = spec.parameters
        sampled = f", {computed_classes(spec)} of which a step computes with" if given.classifier == "partial" else ""
        return {
            "flops": "3 x forward without the gradient of the pixels, a multiply-add is 2; convolutions and matrix "
            "products only",
            "classifier": f"{given.classes} classes{sampled}, the same however ranks split them",
        }


WORKLOAD = Faces()

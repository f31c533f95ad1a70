"""One layer of a Transformer alone, framework-neutral: BERT-large, GPT-2 medium, encoder and decoder of T5-large.

The layers are Hugging Face's, in the shapes of Mu Li's transformers-benchmarks (2022). A step is one forward
and backward pass of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from throughline.spec import Part, RunSpec, key
from throughline.workloads import Figure, Values
from throughline.workloads.untrained import PRECISION, WIDTH, WITH_FP8, Untrained

LAYER_OF = {"bert": "bert-layer", "gpt2": "gpt2-layer"}
"""Map a workload to the model here that is one layer of the workload's models."""
HIDDEN, HEADS, INNER = 1024, 16, 4096
"""Width, attention heads, and width of the feed-forward part: the same in all four models."""


@dataclass(frozen=True)
class Parameters(Part):
    sequence_length: int = key("tokens of a sample", default=512, least=1, most=65_536, stated=True, unit="tokens")
    attention: str = key(
        "in transformers' words: PyTorch's fused function, or one operation after the other",
        default="sdpa",
        choices=("sdpa", "eager"),
    )
    min_seconds: float = key("shortest time for each figure", default=3.0, least=0.01)


def forward_flops(model: str, sequence_length: int) -> int:
    """Return the FLOPs of a layer's forward pass for one sample. A multiply-add is 2; attention counts in full."""
    attention = 4 * sequence_length**2 * HIDDEN + 8 * sequence_length * HIDDEN**2
    return 4 * sequence_length * HIDDEN * INNER + attention * (2 if model == "t5-decoder-layer" else 1)


class Layers(Untrained[Parameters]):
    models = ("bert-layer", "gpt2-layer", "t5-encoder-layer", "t5-decoder-layer")
    parameters = Parameters
    libraries = WITH_FP8
    units = {"tokens": lambda parameters: float(parameters.sequence_length)}
    figures = (
        Figure("forward", "TFLOPS", "more", "forward pass in training mode", "flops"),
        Figure("forward_backward", "TFLOPS", "more", "forward and backward pass", "flops"),
    )
    settings = ("attention", "operands", "caches", "timer")

    def intensity(self, spec: RunSpec[Parameters], figure: str, at: Any) -> float | None:
        """Return the FLOPs per byte that a forward pass has to read or write: matrices, input and output."""
        if figure != "forward" or spec.precision == "fp8":  # the casts to fp8 also read and write
            return None
        batch, sequence_length = spec.batch_size, spec.parameters.sequence_length
        matrices = HIDDEN * (2 * INNER + 4 * HIDDEN * (2 if spec.model == "t5-decoder-layer" else 1))
        values = matrices + 2 * batch * sequence_length * HIDDEN
        return float(batch * forward_flops(spec.model, sequence_length) / (values * WIDTH[spec.precision]))

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return the FLOPs of a forward and backward pass."""
        return 3 * forward_flops(spec.model, spec.parameters.sequence_length)

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        return {
            "flops": "3 x forward, a multiply-add is 2; matrix products only; causal attention counts in full; "
            "a decoder's attention to its encoder counts as a second attention of the same length",
            **PRECISION,
            "fp8": "only products with weights: e4m3 forward, e5m2 for gradients of outputs, a scale for each tensor "
            "from its largest value; weights and everything else in bf16; the time of the casts counts",
        }


WORKLOAD = Layers()

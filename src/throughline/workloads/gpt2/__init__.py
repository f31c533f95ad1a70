"""GPT-2 pre-training (the next token), framework-neutral: shapes, batches, FLOPs.

The sizes are from Radford et al. 2019 (small to xl) and from measurements of Megatron-LM and OneFlow in 2021 (named by
hidden x layers).

The feed-forward part has a width of 4 x hidden. The sources differ in the gelu and in the initial values, so these are
keys.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from throughline.spec import Options, Part, RunSpec, key
from throughline.workloads import Arrays, Values, Workload
from throughline.workloads.workload import Decoder


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    hidden: int


SHAPES = {
    "gpt2-tiny": Shape(2, 4, 128),
    "gpt2-mini": Shape(4, 4, 256),
    "gpt2-small": Shape(12, 12, 768),
    "gpt2-medium": Shape(24, 16, 1024),
    "gpt2-large": Shape(36, 20, 1280),
    "gpt2-xl": Shape(48, 25, 1600),
    "gpt-1536x16": Shape(16, 16, 1536),
    "gpt-2304x24": Shape(24, 24, 2304),
    "gpt-3072x16": Shape(16, 32, 3072),
    "gpt-3072x32": Shape(32, 32, 3072),
}
VOCABULARY = 50257
"""Entries of GPT-2's vocabulary. Synthetic tokens are drawn from it."""
DEVIATION = 0.02
"""Standard deviation of the initial weights."""
POSITIONS = 1024
"""The fewest rows of the position table. Longer sequences have more."""
ALL = frozenset({
    "devices", "nodes", "amp", "bf16", "compile", "gradient_accumulation", "clipping", "activation_checkpointing",
    "convergence",
})  # fmt: skip
"""The features of every implementation."""


@dataclass(frozen=True)
class Parameters(Part):
    sequence_length: int = key(
        "tokens per sample: a window of the text", default=1024, least=8, most=65536, stated=True, unit="tokens"
    )
    gelu: str = key(
        "`tanh`, as OpenAI computed it, or exact by the error function", default="tanh", choices=("tanh", "erf")
    )
    residual_init: str = key(
        "`scaled`: initial weights of matrices that add to the residual are divided by the root of twice the number of "
        "layers",
        default="scaled",
        choices=("scaled", "plain"),
    )
    position_init: float = key("standard deviation of initial position embeddings", default=0.02, choices=(0.02, 0.01))

    def residual_deviation(self, layers: int) -> float:
        """Return the standard deviation of the initial weights of matrices that add to the residual."""
        return DEVIATION / math.sqrt(2 * layers) if self.residual_init == "scaled" else DEVIATION


def padded(vocabulary: int) -> int:
    """Pad the size of a vocabulary to a multiple of 128, with which matrix units are faster."""
    return -(-vocabulary // 128) * 128


class Gpt2(Workload[Parameters]):
    models = tuple(SHAPES)
    parameters = Parameters
    libraries = {
        "torch": ALL | {"sharding", "hybrid_shard_groups", "cuda_graph", "tensor_parallel", "reduce_dtype"},
        "transformers": ALL | {"sharding", "hybrid_shard_groups"},
        "paddle": ALL,
        "keras": ALL,
    }
    no_form = {
        "mxnet": "GluonNLP, whose models MXNet trains here, has no GPT-2 in its package (0.10); one is among the "
        "example scripts of its repository, for generating text and not for training"
    }
    lacks = {"remove_padding": "GPT-2's samples have no padding that could be left out"}
    units = {"tokens": lambda parameters: float(parameters.sequence_length)}
    data = "corpus"
    settings = ("vocabulary_rows", "vocabulary_head", "gelu", "norm_epsilon", "attention")
    learns_from = 100
    held_out = {"loss": False}

    def splits(self, model: str) -> dict[str, int]:
        return {"heads": SHAPES[model].heads, "vocabulary rows": padded(VOCABULARY)}

    def folder(self, parameters: Parameters) -> str:
        """Return the folder of the one manifest for all sequence lengths: the reader cuts windows out of the text."""
        return "bpe"

    def fits(self, parameters: Parameters, manifest: Values) -> str | None:
        if "tokens" not in manifest:
            return "holds finished samples; GPT-2 reads windows of running text, from data/<corpus>/bpe/manifest.json"
        if (size := manifest["vocabulary"]["size"]) > VOCABULARY:
            return f"has a vocabulary of {size:,} entries; GPT-2's has {VOCABULARY:,}"
        if manifest["tokens"] <= parameters.sequence_length:
            return f"holds {manifest['tokens']} tokens; one sample is a window of {parameters.sequence_length + 1}"
        return None

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        """Return nothing. ValueError if the user's own tokenizer does not suit the model."""
        if section and section.own_tokenizer:
            section.own_tokenizer.check_model(values["model"], VOCABULARY)
            _ = section.own_tokenizer.end
        return {}

    def facts(self, manifest: Values | None) -> dict[str, Any]:
        """Return the size of the vocabulary. It is GPT-2's own, whichever tokenizer the data have."""
        return {"vocabulary": VOCABULARY}

    def batch(self, rows: Arrays, options: Options) -> Arrays:
        """Return what one step needs, from B windows: tokens [B, S + 1], as they are stored. A label is the next
        token."""
        return {"tokens": rows["tokens"]}

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return windows of tokens that are drawn uniformly. The padding of the vocabulary is never drawn."""
        import numpy as np

        draw = np.random.Generator(np.random.Philox(key=seed))
        return {"tokens": draw.integers(0, VOCABULARY, (count, spec.parameters.sequence_length + 1)).astype(np.uint16)}

    def counted(self, sums: tuple[int, ...], samples: int, spec: RunSpec[Parameters]) -> dict[str, float]:
        """Every token is real."""
        return {"real_token_share": 1.0}

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float:
        """Return the FLOPs: 24 L d^2 + 4 L s d + 2 d V for each token, forward, and two products for each backward.

        L layers, hidden size d, sequence s, V rows of the vocabulary's table. Attention counts in full, as in the
        sources, although a causal kernel may leave out half of it. Recomputed activations do not count.
        """
        parts = self.decoder(spec)
        return 3.0 * (parts.layers + parts.attention + parts.head)

    def causal_flops_per_sample(self, spec: RunSpec[Parameters]) -> float:
        """Return the FLOPs only with the attention that the causal mask lets through."""
        parts = self.decoder(spec)
        return 3.0 * (parts.layers + parts.seen + parts.head)

    def decoder(self, spec: RunSpec[Parameters]) -> Decoder:
        """Return the model's FLOPs by parts, with the vocabulary padded."""
        shape, length = SHAPES[spec.model], spec.parameters.sequence_length
        weights, rows = 12 * shape.layers * shape.hidden**2, padded(VOCABULARY)
        pair = 4 * shape.layers * shape.hidden
        return Decoder(
            layers=2.0 * length * weights,
            attention=pair * length**2,
            seen=pair * length * (length + 1) / 2,
            head=2.0 * length * shape.hidden * rows,
            parameters=weights + (13 * shape.layers + 2 + rows + max(length, POSITIONS)) * shape.hidden,
        )

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        length = spec.parameters.sequence_length
        return {
            "flops": "3 x forward, a multiply-add is 2; matrix products only: no embedding look-ups, norms, softmax, "
            "loss or optimizer",
            "attention": f"full: each of the {length} positions counts as attending to all, although it sees "
            "no later position; mfu_causal counts only the positions that it sees",
            "tokens": f"a sample has {length} tokens that are read and as many that are predicted",
            "head_positions": f"the vocabulary head on all {length} positions; its {padded(VOCABULARY)} rows "
            "include the padding to a multiple of 128",
        }

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["tokens"]}


WORKLOAD = Gpt2()

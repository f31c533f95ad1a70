"""Count the FLOPs of one speed as different projects do, side by side, so that equal speeds can be recognized."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from throughline import workloads
from throughline.files import UserError
from throughline.records import Result
from throughline.spec import example
from throughline.workloads.workload import Decoder


@dataclass(frozen=True)
class Convention:
    """A way to count the FLOPs of training on a sample. `key` names its column; `formula` is per token."""

    key: str
    name: str
    formula: str
    count: Callable[[Decoder, int], float]
    """FLOPs of a sample from its parts and its tokens."""


CONVENTIONS = (
    Convention("full", "full attention", "6 P + 12 L H s", lambda d, s: 3 * (d.layers + d.attention + d.head)),
    Convention("causal", "causal attention", "6 P + 12 L H c", lambda d, s: 3 * (d.layers + d.seen + d.head)),
    Convention("palm", "PaLM", "6 N + 12 L H s", lambda d, s: 6 * d.parameters * s + 3 * d.attention),
    Convention(
        "megatron",
        "Megatron-LM, recomputing",
        "8 P_layers + 16 L H s + 6 P_head",
        lambda d, s: 4 * (d.layers + d.attention) + 3 * d.head,
    ),
    Convention("torchtitan", "torchtitan", "6 P + 12 L H s", lambda d, s: 3 * (d.layers + d.attention + d.head)),
    Convention("nemo", "NeMo", "6 P + 6 L H s", lambda d, s: 3 * (d.layers + d.attention / 2 + d.head)),
)
"""The first two are ours. Sources: PaLM (Chowdhery et al. 2022, appendix B; nanoGPT uses it, but leaves the position
embeddings out of N), Megatron-LM (Narayanan et al. 2021, appendix, for runs that compute activations again),
torchtitan's `num_flops_per_token`, and NVIDIA NeMo's performance summaries from 25.09 on; those of 24.07 have full
attention."""
SYMBOLS = (
    "P: parameters of all matrix products, the vocabulary's among them (P_layers + P_head); N: all parameters, every "
    "table counted once; L: layers; H: heads x width of a head; s: tokens of a sample; c: positions that a position "
    "sees on average, about s / 2, or the sliding window"
)
UNKNOWN = (TypeError, KeyError, ValueError, UserError)
"""What the count raises if a row states too little, or if the config.json of its model is not on this machine."""


def parts(model: str, parameters: Mapping[str, Any]) -> tuple[Decoder, int] | None:
    """Return a decoder's parts and its tokens per sample; None if it is no decoder or its FLOPs are unknown."""
    workload = workloads.of(model)
    with suppress(*UNKNOWN):
        decoder = workload.decoder(example(model, workload.parameters(**parameters)))
        return (decoder, int(parameters["sequence_length"])) if decoder else None
    return None


def flops_per_sample(model: str, parameters: Mapping[str, Any], batch: int = 1) -> dict[str, float]:
    """Map each convention to the FLOPs to train on a sample; a model that is no decoder has one convention, `model`.

    parameters: those that a row states, named as in the configuration; the others have their defaults. batch: how many
    samples a replica computes at once, which share some products in DeBERTa. The map is empty if the FLOPs are not
    known.
    """
    if workloads.folder(model) is None or not workloads.of(model).trains:
        return {}
    workload = workloads.of(model)
    with suppress(*UNKNOWN):
        values = {**_implied(model, parameters), **parameters}
        if decoder_and_tokens := parts(model, values):
            decoder, tokens = decoder_and_tokens
            return {convention.key: convention.count(decoder, tokens) for convention in CONVENTIONS}
        spec = example(model, workload.parameters(**values), batch=batch)
        each = workload.flops_per_sample(spec, workload.facts(None), {})
        return {} if isinstance(each, str) else {"model": float(each)}
    return {}


def of_row(row: Result) -> dict[str, float]:
    """Map each convention to the FLOPs to train on a sample of a row."""
    stated = ({"sequence_length": row.sequence_length} if row.sequence_length else {}) | row.parameters
    return flops_per_sample(row.model, stated, row.batch or 1)


def _implied(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a configuration adds to those of a block, unless they depend on data."""
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        return workloads.of(model).complete({"model": model, **parameters}, None)
    return {}

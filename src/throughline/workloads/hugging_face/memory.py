"""The memory of our own step of a decoder, predicted from its shapes (Korthikanti et al. 2022 count in the same way).

Weights, gradients and AdamW's two moments have 4 bytes a parameter each. Every tensor counts that the backward pass
reads. `half` is the number of bytes of the type in which products are computed. A compiler keeps less: it computes some
results again rather than store them.
"""

from __future__ import annotations

import math

from throughline.spec import RunSpec
from throughline.workloads.hugging_face.architecture import Architecture, Layer
from throughline.workloads.workload import Memory

BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number in the products of a precision."""
CACHED = 2**19
"""The scores that a CPU computes at a time (`in_torch_operations.CACHED`)."""
ROWS = 2048
"""The positions whose scores a GPU computes at a time (`in_torch_head.ROWS`)."""


def predicted(made: Architecture, spec: RunSpec, gpu: bool) -> Memory:
    """Return the memory of each rank of a run."""
    options, size = spec.options, spec.size
    half, tokens = BYTES[spec.precision], size.batch_per_replica * spec.parameters.sequence_length
    ranks, replicas = options.tensor_parallel, size.replicas // options.layout.groups(spec.topology)
    share = made.parameters / ranks
    blocks = [sum(map(math.prod, layer.shapes().values())) for layer in made.layers]
    outside = made.parameters - sum(blocks)
    kept = share / replicas if options.sharding in ("shard_grad_op", "full_shard") else share
    gathered = 0.0
    if kept < share:
        sent = half if gpu else 4
        whole = sum(blocks) if options.sharding == "shard_grad_op" else 2 * max(blocks)
        gathered = (whole * sent + max(blocks) * 4 + outside * 4) / ranks
    by_layer = [_layer_activations(layer, tokens, half, ranks, gpu) for layer in made.layers]
    inputs, activations = tokens / ranks * made.hidden * half, sum(by_layer)
    if options.activation_checkpointing is True:
        activations = inputs * len(made.layers)
    elif options.activation_checkpointing == "selective":
        activations = sum(inputs + _layer_products(layer, tokens, half, ranks) for layer in made.layers)
    return Memory(
        weights=4 * kept,
        gradients=4 * kept,
        states=8 * (share / replicas if options.sharding != "none" else share),
        gathered=gathered,
        activations=activations,
        head=_head(made, tokens, half, ranks, gpu),
        layer=max(by_layer),
        accumulates=options.gradient_accumulation > 1,
    )


def _layer_activations(layer: Layer, tokens: int, half: int, ranks: int, gpu: bool) -> float:
    """Return the bytes that one layer keeps for its backward pass, its cast weights included."""
    queries, keys = layer.query_width / ranks, layer.key_width / ranks
    norms = sum(1 for name in layer.shapes() if name.endswith("layernorm.weight"))
    # A norm keeps its input in fp32. In fp32 that is the residual itself. On a CPU it keeps the quotient as well.
    norm = norms * layer.hidden / ranks * (4 if gpu else 8)
    attention = half * (layer.hidden + 2 * queries + 3 * keys + 2 * queries) + 4 * layer.heads / ranks
    if layer.experts:
        top_k, inner = layer.experts.top_k, layer.experts.intermediate
        feed: float = half * (layer.hidden + top_k * (2 * layer.hidden + 4 * inner)) + 8 * layer.experts.count
    else:
        feed = half * (layer.hidden + 4 * layer.intermediate / ranks)
    return tokens * (norm + attention + feed) + _cast(layer, half) / ranks


def _cast(layer: Layer, half: int) -> float:
    """Return the bytes of the weights that are cast, or laid side by side for one product."""
    if half < 4:
        return half * float(sum(math.prod(shape) for shape in layer.shapes().values() if len(shape) > 1))
    side_by_side = () if layer.packed else ("q_proj.w", "k_proj.w", "v_proj.w", "mlp.gate_proj.w", "mlp.up_proj.w")
    named = layer.shapes().items()
    return 4.0 * sum(math.prod(shape) for name, shape in named if any(part in name for part in side_by_side))


def _layer_products(layer: Layer, tokens: int, half: int, ranks: int) -> float:
    """Return the bytes of a layer's products and attention, which `activation_checkpointing: selective` keeps."""
    queries, keys = layer.query_width / ranks, layer.key_width / ranks
    wide: float = 2 * queries + 2 * keys + layer.hidden
    if layer.experts:
        wide += layer.experts.top_k * (2 * layer.experts.intermediate + layer.hidden)
    else:
        wide += 2 * layer.intermediate / ranks + layer.hidden
    return tokens * (half * wide + 4 * layer.heads / ranks)


def _head(made: Architecture, tokens: int, half: int, ranks: int, gpu: bool) -> float:
    """Return the bytes of the last norm, the head and the loss while they are computed."""
    table = made.hidden * made.vocabulary / ranks
    norm = tokens * made.hidden / ranks * (4 if gpu else 8) + tokens * made.hidden * half
    cast = table * half if half < 4 else 0.0
    if gpu and ranks == 1:
        rows = min(ROWS, tokens)
        return norm + cast + 4 * table + rows * made.vocabulary * (2 * half + 4)
    scores = tokens * made.vocabulary / ranks
    passing = 3 * 4 * min(CACHED, scores) if ranks == 1 else 8 * scores
    return norm + cast + 2 * half * scores + passing

"""How well a BERT in PyTorch predicts held-out text: through Hugging Face's own forward, in the weights' precision.

It shares the weights with the training step, and none of its code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, linear


@torch.no_grad()
def sums(
    network: Any,
    input_ids: Tensor,
    segments: Tensor,
    positions: Tensor,
    labels: Tensor,
    following: Tensor,
    mask: Tensor | None = None,
) -> dict[str, float]:
    """Losses and right answers summed over masked tokens (mlm) and samples (nsp); tensors of `bert.batch`."""
    training = network.training
    network.eval()
    try:
        labels, following, weights = labels.flatten().long(), following.long(), (positions != 0).flatten()
        out = network.bert(input_ids=input_ids, token_type_ids=segments.long(), attention_mask=mask)
        chosen = out.last_hidden_state.take_along_dim(positions[..., None].long(), 1).flatten(0, 1)
        chosen = network.norm(gelu(network.transform(chosen)))
        scores = linear(chosen, network.bert.get_input_embeddings().weight, network.bias)
        order = network.following(out.pooler_output)
        found = torch.stack(
            [
                (cross_entropy(scores, labels, reduction="none") * weights).sum(dtype=torch.float64),
                ((scores.argmax(1) == labels) * weights).sum(dtype=torch.float64),
                weights.sum(dtype=torch.float64),
                cross_entropy(order, following, reduction="sum").double(),
                (order.argmax(1) == following).sum(dtype=torch.float64),
            ]
        ).tolist()
    finally:
        network.train(training)
    names = ("mlm_loss", "mlm_right", "masked", "nsp_loss", "nsp_right")
    return {**dict(zip(names, found, strict=True)), "samples": float(len(following))}

"""BERT pre-training in PyTorch: Hugging Face's encoder, and the heads on the masked positions only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertModel

from throughline.training.models.bert import POSITIONS, Shape, padded, shape

if TYPE_CHECKING:
    import numpy as np


def build(spec: dict[str, Any], vocabulary: int) -> BertForPretraining:
    """The network that a run specification asks for, with random weights."""
    options = spec["options"]
    return BertForPretraining(shape(spec["model"]), vocabulary, options["dropout"], options["checkpointing"])


def weights(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """The weights by the names that every framework's form knows: those of this one."""
    return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}


def load(network: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Set the weights, in place; all of them and no other."""
    parameters = dict(network.named_parameters())
    if parameters.keys() != weights.keys():
        raise ValueError(f"weights of another network: {sorted(parameters.keys() ^ weights.keys())}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))


def settings(network: torch.nn.Module) -> dict[str, Any]:
    """What the network is, as built, in the words of `frameworks.SETTINGS`."""
    assert isinstance(network, BertForPretraining)
    config = network.bert.config
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "vocabulary_rows": network.bert.get_input_embeddings().weight.shape[0],
        "vocabulary_head": "masked positions, sharing the word embeddings",
        "gelu": {"gelu": "erf", "gelu_new": "tanh"}.get(config.hidden_act, config.hidden_act),
        "norm_epsilon": config.layer_norm_eps,
        "dropout": [config.hidden_dropout_prob, config.attention_probs_dropout_prob],
        "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
    }


class BertForPretraining(nn.Module):
    """`forward` takes the tensors of `bert.batch` and returns the loss: masked tokens' mean + next sentence's mean."""

    def __init__(self, shape: Shape, vocabulary: int, dropout: float, checkpointing: bool) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=padded(vocabulary),
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.feed_forward,
            max_position_embeddings=POSITIONS,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            use_cache=False,
        )
        config._attn_implementation = "sdpa"
        encoder: Any = BertModel(config)
        self.bert = encoder
        if checkpointing:
            encoder.activation_checkpointing_enable({"use_reentrant": False})
        self.transform = nn.Linear(shape.hidden, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(padded(vocabulary)))
        self.following = nn.Linear(shape.hidden, 2)
        for linear in (self.transform, self.following):
            nn.init.normal_(linear.weight, std=config.initializer_range)
            nn.init.zeros_(linear.bias)

    def forward(
        self,
        input_ids: Tensor,
        segments: Tensor,
        positions: Tensor,
        labels: Tensor,
        weights: Tensor,
        following: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        out = self.bert(input_ids=input_ids, token_type_ids=segments, attention_mask=mask)
        losses = cross_entropy(self.vocabulary_scores(out.last_hidden_state, positions), labels, reduction="none")
        masked = (losses * weights).sum() / weights.sum().clamp(min=1)
        return masked + cross_entropy(self.following(out.pooler_output), following)

    def vocabulary_scores(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Scores [len(positions), padded vocabulary] of chosen rows of hidden [B, S, H], flattened to [B * S, H]."""
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, positions)
        chosen = self.norm(gelu(self.transform(chosen)))
        return nn.functional.linear(chosen, self.bert.get_input_embeddings().weight, self.bias)

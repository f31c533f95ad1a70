"""BERT pre-training with `BertForPreTraining` of Hugging Face's transformers.

Its loss is the same function as ours: the mean over masked tokens + the mean over next-sentence labels. The model
computes the scores of all positions, and the loss leaves out positions without a label.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForPreTraining

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.bert import POSITIONS, SHAPES, Parameters, padded
from throughline.workloads.in_transformers_form import Pretrained, TransformersForm

IGNORED = -100
"""The label of a position that the loss leaves out."""
NAMES = {
    "model.cls.predictions.transform.dense.": "transform.",
    "model.cls.predictions.transform.LayerNorm.": "norm.",
    "model.cls.predictions.": "",
    "model.cls.seq_relationship.": "following.",
    "model.": "",
}
"""Map how a parameter's name begins here to how it begins in the PyTorch implementation."""


def inputs(
    input_ids: Tensor, segments: Tensor, positions: Tensor, labels: Tensor, following: Tensor,
    mask: Tensor | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Return the library's arguments, with labels [B, S] from the masked `positions` [B, P] and their `labels`.

    A position of 0 is unused and gets no label.
    """
    of_all = torch.full_like(input_ids, IGNORED, dtype=torch.long)
    of_all.scatter_(1, positions.long(), labels.long().masked_fill(positions == 0, IGNORED))
    given = {"input_ids": input_ids, "token_type_ids": segments.long(), "labels": of_all}
    masked = {} if mask is None else {"attention_mask": mask.long()}
    return {**given, **masked, "next_sentence_label": following.long()}


def _named(name: str) -> str:
    start = next(start for start in NAMES if name.startswith(start))
    return NAMES[start] + name.removeprefix(start)


class BertInTransformers(TransformersForm[Parameters]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Pretrained:
        shape, options = SHAPES[spec.model], spec.options
        config = BertConfig(
            vocab_size=padded(facts["vocabulary"]),
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.feed_forward,
            max_position_embeddings=POSITIONS,
            hidden_dropout_prob=options.dropout,
            attention_probs_dropout_prob=options.dropout,
            use_cache=False,
        )
        network = Pretrained(BertForPreTraining(config), inputs, bool(options.activation_checkpointing))
        network.predictions = spec.parameters.predictions
        return network

    def blocks(self, network: Pretrained) -> list[nn.Module]:
        return list(network.model.bert.encoder.layer)

    def weights(self, network: Pretrained) -> Arrays:
        return {_named(name): array for name, array in super().weights(network).items()}

    def load(self, network: Pretrained, weights: Arrays) -> None:
        here = {_named(name): name for name, _ in network.named_parameters()}
        super().load(network, {here.get(name, name): array for name, array in weights.items()})

    def settings(self, network: Pretrained) -> dict[str, Any]:
        config = network.model.config
        return {
            **super().settings(network),
            "predictions": network.predictions,
            "vocabulary_head": "all positions, sharing the word embeddings",
            "gelu": {"gelu": "erf"}[config.hidden_act],
            "norm_epsilon": config.layer_norm_eps,
            "dropout": [config.hidden_dropout_prob, config.attention_probs_dropout_prob],
            "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
        }

    def predicted(self, network: Pretrained, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return losses and right answers of masked tokens (mlm) and of samples (nsp)."""
        given = inputs(**batch)
        labels, following = given.pop("labels").flatten(), given.pop("next_sentence_label")
        output = network.model(**given)
        scores, follows = output.prediction_logits.flatten(0, 1), output.seq_relationship_logits
        return {
            "mlm_loss": cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none"),
            "mlm_right": scores.argmax(1) == labels,
            "masked": labels != IGNORED,
            "nsp_loss": cross_entropy(follows, following, reduction="none"),
            "nsp_right": follows.argmax(1) == following,
        }


FORM = BertInTransformers()

"""GPT-2 pre-training with `GPT2LMHeadModel` of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.gpt2 import POSITIONS, SHAPES, Parameters, padded
from throughline.workloads.gpt2.in_torch import predicted
from throughline.workloads.in_transformers_form import Pretrained, TransformersForm

GELU = {"tanh": "gelu_new", "erf": "gelu"}
"""Map the values of the key `gelu` to the library's names."""
TABLES = {"wte": "tokens", "wpe": "positions", "ln_f": "norm"}
LAYER = {
    "ln_1": ["attention_norm"],
    "attn.c_attn": ["query", "key", "value"],
    "attn.c_proj": ["mix"],
    "ln_2": ["feed_norm"],
    "mlp.c_fc": ["up"],
    "mlp.c_proj": ["down"],
}
"""Map the library's names to those of the PyTorch implementation. Where there are several, the library keeps their
matrices side by side."""


def inputs(tokens: Tensor) -> dict[str, Tensor]:
    """Return the library's arguments from tokens [B, S + 1].

    The labels are already shifted, because the library's own shift would leave out the last position. The library also
    needs `labels`.
    """
    ids = tokens.long()
    labels = ids[:, 1:].contiguous()
    return {"input_ids": ids[:, :-1].contiguous(), "labels": labels, "shift_labels": labels}


def _turned(name: str, array: Any) -> Any:
    """Transpose the matrices of layers: the library keeps them as [inputs, outputs], PyTorch as [outputs, inputs]."""
    return array.T if ".h." in name and array.ndim == 2 else array


def _named(name: str) -> list[str]:
    """Return the names in the PyTorch implementation of a parameter here: several if it holds several matrices."""
    path, _, kind = name.removeprefix("model.transformer.").rpartition(".")
    if path in TABLES:
        return [f"{TABLES[path]}.{kind}"]
    _, number, part = path.split(".", 2)
    return [f"layers.{number}.{ours}.{kind}" for ours in LAYER[part]]


class Gpt2InTransformers(TransformersForm[Parameters]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Pretrained:
        shape, given, options = SHAPES[spec.model], spec.parameters, spec.options
        config = GPT2Config(
            vocab_size=padded(facts["vocabulary"]),
            n_positions=max(POSITIONS, given.sequence_length),
            n_embd=shape.hidden,
            n_layer=shape.layers,
            n_head=shape.heads,
            activation_function=GELU[given.gelu],
            resid_pdrop=options.dropout,
            embd_pdrop=options.dropout,
            attn_pdrop=options.dropout,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
        )
        model = GPT2LMHeadModel(config)
        nn.init.normal_(model.transformer.wpe.weight, std=given.position_init)
        if given.residual_init == "plain":  # the library has drawn them scaled
            for layer in model.transformer.h:
                for added in (layer.attn.c_proj, layer.mlp.c_proj):
                    nn.init.normal_(added.weight, std=config.initializer_range)
        return Pretrained(model, inputs, bool(options.activation_checkpointing))

    def blocks(self, network: Pretrained) -> list[nn.Module]:
        return list(network.model.transformer.h)

    def weights(self, network: Pretrained) -> Arrays:
        arrays: Arrays = {}
        for name, array in super().weights(network).items():
            parts = _named(name)
            arrays |= zip(parts, np.split(_turned(name, array), len(parts)), strict=True)
        return arrays

    def load(self, network: Pretrained, weights: Arrays) -> None:
        parts = {name: _named(name) for name, _ in network.named_parameters()}
        if {name for names in parts.values() for name in names} != weights.keys():
            raise ValueError("weights of another network")
        whole = {name: np.concatenate([weights[part] for part in names]) for name, names in parts.items()}
        super().load(network, {name: _turned(name, array) for name, array in whole.items()})

    def settings(self, network: Pretrained) -> dict[str, Any]:
        config = network.model.config
        return {
            **super().settings(network),
            "vocabulary_head": "all positions, sharing the token embeddings",
            "gelu": {theirs: ours for ours, theirs in GELU.items()}[config.activation_function],
            "norm_epsilon": config.layer_norm_epsilon,
            "dropout": [config.embd_pdrop, config.attn_pdrop, config.resid_pdrop],
            "loss": "mean over all tokens, of each replica",
        }

    def predicted(self, network: Pretrained, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return predicted(network, batch)


FORM = Gpt2InTransformers()

"""A model of transformers from its config.json: the library's own class, with random weights and its own loss."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # the library reads it when it is imported: nothing is ever downloaded

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from throughline.files import UserError
from throughline.spec import RunSpec
from throughline.workloads import Arrays, Unsupported, Values
from throughline.workloads.hugging_face import WORKLOAD, Parameters
from throughline.workloads.in_transformers_form import Pretrained, TransformersForm

CLASSES: dict[str, Any] = {
    "clm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "mlm": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
}

OUTER = "model."
"""What the names of parameters begin with here, before their names in transformers, which are those of our own
implementation."""


def _config(spec: RunSpec[Parameters]) -> Any:
    """Return the library's configuration for a config.json; UserError if the library cannot read it."""
    content, model = WORKLOAD.content(spec), spec.model
    kind = content["model_type"]
    if kind not in CONFIG_MAPPING:
        raise UserError(
            f"{model}: transformers {transformers.__version__} has no architecture {kind!r}",
            why="config.json names it as model_type",
            next_step="correct model_type, or use a version of transformers that has it",
        )
    try:
        return CONFIG_MAPPING[kind].from_dict({**content, "dtype": "float32", "use_cache": False})
    except Exception as error:  # the library's checks may raise any type
        raise UserError(
            f"{model}: transformers cannot read its config.json", why=" ".join(str(error).split())
        ) from None


def _class(spec: RunSpec[Parameters], config: Any) -> Any:
    """Return the model's class for the task; UserError if the architecture has none."""
    task = spec.parameters.task
    kinds = {name: classes.get(type(config), None) for name, classes in CLASSES.items()}
    if task == "clm" and kinds["mlm"] and not getattr(config, "is_decoder", False):
        kinds["clm"] = None  # an encoder: its positions would see the word that they predict
    if kinds[task] is None:
        has = [name for name, kind in kinds.items() if kind]
        raise UserError(
            f"{spec.model}: {config.model_type} of transformers cannot be trained with task {task}",
            why=f"it has {' and '.join(has) or 'no task of a language model'}",
            next_step=f"set task: {has[0]}" if has else "choose another model",
        )
    return kinds[task]


def _dropouts(config: Any) -> dict[str, float]:
    """Return the rates of dropout in a configuration, by the configuration's names."""
    values = config.get_text_config().to_dict().items()
    ends = ("dropout", "dropout_prob", "_pdrop")
    return {name: value for name, value in values if name.endswith(ends) and isinstance(value, (int, float))}


def inputs(entries: int | None, segments: bool, **batch: Tensor) -> dict[str, Tensor]:
    """Return the arguments of the model's forward pass, labels included, from the tensors of a batch.

    entries: the size of the model's vocabulary if the data's is larger, otherwise None. segments: True if the model
    distinguishes segments. Where position_ids begin anew, the library masks what lies before.
    """
    ids = _below(entries, batch["input_ids"].long())
    given = {"input_ids": ids, "labels": _below(entries, batch["labels"].long()) if "labels" in batch else ids}
    names = ("attention_mask", "position_ids", *(("token_type_ids",) if segments else ()))
    return given | {name: batch[name].long() for name in names if name in batch}


def _below(entries: int | None, ids: Tensor) -> Tensor:
    """Return ids modulo the number of entries. Negative ids, the labels of positions that are not predicted, stay."""
    return ids if entries is None else ids.where(ids < 0, ids % entries)


class HuggingFaceInTransformers(TransformersForm[Parameters]):
    draws_on_device = True

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Pretrained:
        if spec.parameters.attention_kernel != "default":
            raise Unsupported(
                "attention_kernel: transformers computes attention by PyTorch's kernels; torch has others"
            )
        config = _config(spec)
        if not spec.options.dropout:
            for name in _dropouts(config):
                setattr(config, name, 0.0)
        kind = _class(spec, config)
        with torch.device(at or "cpu"):
            model = kind(config)
        activation_checkpointing = bool(spec.options.activation_checkpointing)
        if activation_checkpointing and not model.supports_gradient_checkpointing:
            raise Unsupported(f"{kind.__name__} of transformers cannot recompute activations")
        language = config.get_text_config()
        entries = language.vocab_size if (facts.get("vocabulary") or 0) > language.vocab_size else None
        given = partial(inputs, entries, bool(getattr(language, "type_vocab_size", 0)))
        return Pretrained(model.float(), given, activation_checkpointing)

    def blocks(self, network: Pretrained) -> list[nn.Module]:
        """Return the layers: the modules that the library marks for recomputation."""
        return [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]

    def weights(self, network: Pretrained) -> Arrays:
        return {name.removeprefix(OUTER): array for name, array in super().weights(network).items()}

    def load(self, network: Pretrained, weights: Arrays) -> None:
        super().load(network, {OUTER + name: array for name, array in weights.items()})

    def settings(self, network: Pretrained) -> dict[str, Any]:
        return {
            **super().settings(network),
            "architecture": type(network.model).__name__,
            "vocabulary_rows": network.model.config.get_text_config().vocab_size,
            "dropout": list(_dropouts(network.model.config).values()),
            "loss": "mean over the predicted words, of each replica",
        }


FORM = HuggingFaceInTransformers()

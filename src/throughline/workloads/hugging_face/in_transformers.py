"""A model of transformers from its config.json: the library's own class, with random weights and its own loss."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # the library reads it when it is imported: nothing is ever downloaded

import torch
import transformers
from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from throughline.files import UserError
from throughline.spec import RunSpec
from throughline.workloads import Arrays, Unsupported, Values
from throughline.workloads.hugging_face import WORKLOAD, Parameters, library
from throughline.workloads.in_transformers_form import Pretrained, TransformersForm

CLASSES: dict[str, Any] = {
    "clm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "mlm": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
}

OUTER = "model."
"""What stands here before the names of parameters in transformers, which are those of our own implementation."""


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
        return CONFIG_MAPPING[kind].from_dict({**library.readable(content), "dtype": "float32", "use_cache": False})
    except Exception as error:  # the library's checks may raise any type
        raise UserError(
            f"{model}: transformers cannot read its config.json", why=" ".join(str(error).split())
        ) from None


def _trained(spec: RunSpec[Parameters], config: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the class of the language model, and its part of the configuration; UserError if it has none for the
    task."""
    text, task = config.get_text_config(), spec.parameters.task
    kinds = _kinds(text)
    if text is not config and not kinds[task]:
        kinds = {"clm": _with_head(config, text), "mlm": None}
    if kinds[task] is None:
        has = [name for name, kind in kinds.items() if kind]
        raise UserError(
            f"{spec.model}: {text.model_type} of transformers cannot be trained with task {task}",
            why=f"it has {' and '.join(has) or 'no task of a language model'}",
            next_step=f"set task: {has[0]}" if has else "choose another model",
        )
    text.dtype, text.use_cache = torch.float32, False
    return kinds[task], text


def _kinds(config: Any) -> dict[str, Any]:
    """Return the library's class for each task, or None."""
    kinds = {name: classes.get(type(config), None) for name, classes in CLASSES.items()}
    if kinds["mlm"] and not getattr(config, "is_decoder", False):
        kinds["clm"] = None  # an encoder: its positions would see the word that they predict
    return kinds


def _with_head(config: Any, text: Any) -> Callable[[Any], Any] | None:
    """Return what makes the language model of one for images and text, where it has no entry of its own."""
    kind = CLASSES["clm"].get(type(config), None)
    if kind and kind.config_class is type(text):
        return kind  # type: ignore[no-any-return]
    writes = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(type(config), None)
    base = modeling_auto.MODEL_MAPPING.get(type(text), None)
    return partial(WithHead, base) if writes and base else None


class WithHead(nn.Module):
    """The text part of a model, with a head over its vocabulary and the library's loss."""

    def __init__(self, base: Any, config: Any) -> None:
        super().__init__()
        self.config, self.model = config, base(config)
        self.name = f"{base.__name__} with a head"
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        nn.init.normal_(self.lm_head.weight, std=config.initializer_range)
        if getattr(config, "tie_word_embeddings", False):
            self.lm_head.weight = self.model.get_input_embeddings().weight
        self.supports_gradient_checkpointing = self.model.supports_gradient_checkpointing
        self.gradient_checkpointing_enable = self.model.gradient_checkpointing_enable

    def forward(self, labels: Tensor, **given: Tensor) -> CausalLMOutput:
        logits = self.lm_head(self.model(**given).last_hidden_state)
        return CausalLMOutput(ForCausalLMLoss(logits, labels, self.config.vocab_size), logits)


def _dropouts(config: Any) -> dict[str, float]:
    """Return the rates of dropout in a configuration, by the configuration's names."""
    values = config.to_dict().items()
    ends = ("dropout", "dropout_prob", "_pdrop")
    return {name: value for name, value in values if name.endswith(ends) and isinstance(value, (int, float))}


def inputs(entries: int | None, segments: bool, **batch: Tensor) -> dict[str, Tensor]:
    """Return the arguments of the model's forward pass, labels included. `segments`: the model distinguishes segments.

    entries: the size of the model's vocabulary if the data's is larger, otherwise None.
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
        kind, config = _trained(spec, _config(spec))
        if not spec.options.dropout:
            for name in _dropouts(config):
                setattr(config, name, 0.0)
        with torch.device(at or "cpu"):
            model = kind(config)
        recompute = bool(spec.options.activation_checkpointing)
        if recompute and not model.supports_gradient_checkpointing:
            raise Unsupported(f"{type(model).__name__} of transformers cannot recompute activations")
        entries = config.vocab_size if (facts.get("vocabulary") or 0) > config.vocab_size else None
        given = partial(inputs, entries, bool(getattr(config, "type_vocab_size", 0)))
        network = Pretrained(model.float(), given, recompute)
        network.unused = library.unused(WORKLOAD.content(spec))
        return network

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
            "architecture": getattr(network.model, "name", type(network.model).__name__),
            "dropout": list(_dropouts(network.model.config).values()),
            "loss": "mean over the predicted words, of each replica",
            **({"config_json": network.unused} if network.unused else {}),
        }


FORM = HuggingFaceInTransformers()

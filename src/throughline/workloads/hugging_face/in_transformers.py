"""A model of transformers by its config.json: the library's own class with random weights, and the loss it computes."""

from __future__ import annotations

import os
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read where the library is imported: nothing is ever downloaded

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from throughline.files import UserError
from throughline.workloads import Unsupported
from throughline.workloads.hugging_face import configuration
from throughline.workloads.in_torch_operations import load, weights

__all__ = ["CHANGING", "LACKS", "blocks", "build", "load", "settings", "versions", "weights"]

CLASSES: dict[str, Any] = {
    "clm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "mlm": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
}
LACKS: dict[str, str] = {}
CHANGING: frozenset[str] = frozenset()


def build(spec: dict[str, Any], facts: dict[str, Any], at: torch.device | None = None) -> Network:
    """The network that a run specification asks for, with random weights, made where this process trains it."""
    config = _config(spec)
    if not spec["options"]["dropout"]:
        for name in _dropouts(config):
            setattr(config, name, 0.0)
    kind = _class(spec, config)
    with torch.device(at or "cpu"):
        model = kind(config)
    if spec["options"]["checkpointing"]:
        if not model.supports_gradient_checkpointing:
            raise Unsupported(f"{kind.__name__} of transformers cannot recompute activations")
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return Network(model.float().train(), facts.get("vocabulary"))


def _config(spec: dict[str, Any]) -> Any:
    """The library's configuration for what config.json says; UserError where it cannot make one of it."""
    content, model = configuration.content(spec), spec["model"]
    kind = content["model_type"]
    if kind not in CONFIG_MAPPING:
        raise UserError(
            f"{model}: transformers {transformers.__version__} has no architecture {kind!r}",
            why="config.json names it as model_type",
            next_step="correct model_type, or use a version of transformers that has it",
        )
    try:
        return CONFIG_MAPPING[kind].from_dict({**content, "dtype": "float32", "use_cache": False})
    except Exception as error:  # whatever its checks raise
        raise UserError(
            f"{model}: transformers cannot read its config.json", why=" ".join(str(error).split())
        ) from None


def _class(spec: dict[str, Any], config: Any) -> Any:
    """The model's class for the task; UserError where the architecture has none."""
    task, kinds = spec["task"], {name: classes.get(type(config), None) for name, classes in CLASSES.items()}
    if task == "clm" and kinds["mlm"] and not getattr(config, "is_decoder", False):
        kinds["clm"] = None  # an encoder: its positions would see the word that they predict
    if kinds[task] is None:
        has = [name for name, kind in kinds.items() if kind]
        raise UserError(
            f"{spec['model']}: {config.model_type} of transformers cannot be trained with task {task}",
            why=f"it has {' and '.join(has) or 'no task of a language model'}",
            next_step=f"set task: {has[0]}" if has else "choose another model",
        )
    return kinds[task]


def _dropouts(config: Any) -> dict[str, float]:
    """The rates of dropout that a configuration has, by its own names."""
    values = config.get_text_config().to_dict().items()
    ends = ("dropout", "dropout_prob", "_pdrop")
    return {name: value for name, value in values if name.endswith(ends) and isinstance(value, (int, float))}


class Network(nn.Module):
    """`forward` takes the tensors of a batch, and returns the loss as the library computes it.

    vocabulary: entries of the vocabulary that made the data; None where it is the model's own.
    """

    half_type: torch.dtype | None = None

    def __init__(self, model: Any, vocabulary: int | None) -> None:
        super().__init__()
        self.model = model
        self.config = model.config.get_text_config()
        self.entries = int(self.config.vocab_size)
        self.beyond = vocabulary is not None and vocabulary > self.entries
        self.segments = bool(getattr(self.config, "type_vocab_size", 0))

    def inputs(self, **batch: Tensor) -> dict[str, Tensor]:
        """The arguments of the model's forward pass, labels among them, from the tensors of a batch."""
        ids = self.below(batch["input_ids"].long())
        given = {"input_ids": ids, "labels": self.below(batch["labels"].long()) if "labels" in batch else ids}
        if "attention_mask" in batch:
            given["attention_mask"] = batch["attention_mask"].long()
        if self.segments and "token_type_ids" in batch:
            given["token_type_ids"] = batch["token_type_ids"].long()
        return given

    def below(self, ids: Tensor) -> Tensor:
        """Ids below the model's vocabulary; labels that are not predicted stay negative."""
        return ids.where(ids < 0, ids % self.entries) if self.beyond else ids

    def forward(self, **batch: Tensor) -> Tensor:
        loss: Tensor = self.model(**self.inputs(**batch)).loss
        return loss

    def compile_parts(self, dynamic: bool) -> None:
        """Compile the layers in their places: one is compiled, and serves all that are alike."""
        for block in blocks(self):
            block.compile(dynamic=None if dynamic else False)


def blocks(network: Network) -> list[nn.Module]:
    """The layers, as the library marks them for recomputing."""
    return [module for module in network.modules() if isinstance(module, GradientCheckpointingLayer)]


def settings(network: Network) -> dict[str, Any]:
    """What the network is, as built, in the words of `SETTINGS`."""
    config = network.config
    return {
        "parameters": sum(one.numel() for one in network.parameters()),
        "architecture": type(network.model).__name__,
        "vocabulary_rows": network.entries,
        "attention": f"{config._attn_implementation} of transformers",
        "dropout": list(_dropouts(config).values()),
        "loss": "as transformers computes it: mean over the predicted words, of each replica",
    }


def versions() -> dict[str, str | None]:
    return {"transformers": transformers.__version__}

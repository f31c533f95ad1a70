"""What the implementations with Hugging Face's transformers share (`TransformersForm`): the library's own model, called
as its users call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from torch import Tensor, nn

from throughline.workloads.in_torch_form import TorchForm
from throughline.workloads.workload import P


class Pretrained(nn.Module):
    """A model of the library. `inputs` turns the tensors of a batch into the arguments of the model's `forward`, labels
    included. Calling this module with a batch returns the loss as the library computes it."""

    half_type = None
    """The framework enters autocast."""
    predictions: int | None = None
    """In BERT: the most masked tokens that a sample has."""
    unused: str | None = None
    """What the training leaves out of a config.json."""

    def __init__(self, model: Any, inputs: Callable[..., dict[str, Tensor]], activation_checkpointing: bool) -> None:
        super().__init__()
        self.model, self.inputs = model.train(), inputs
        if activation_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, **batch: Tensor) -> Tensor:
        loss: Tensor = self.model(**self.inputs(**batch)).loss
        return loss


class TransformersForm(TorchForm[P, Pretrained]):
    lacks = {
        "cuda_graph": "transformers' models read values on the host while they build masks, which a CUDA graph cannot "
        "record",
        "remove_padding": "the library's model computes the padding as well",
        "fp8": "transformers' own model is trained under autocast, which has no fp8: torch has it",
        "tensor_parallel": "the library's model is trained whole on each device here",
    }

    def settings(self, network: Pretrained) -> dict[str, Any]:
        config = network.model.config
        return {
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "vocabulary_rows": config.vocab_size,
            "attention": f"transformers: {config._attn_implementation}",
        }

    def versions(self) -> dict[str, str | None]:
        return {"transformers": transformers.__version__}

"""ResNet with `ResNetForImageClassification` of Hugging Face's transformers, for the frameworks hf-loop and hf-trainer.

Throughline itself has no such form. Benchmarks compare our step with it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from transformers import ResNetConfig, ResNetForImageClassification

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.in_transformers_form import Pretrained, TransformersForm
from throughline.workloads.resnet import DEVIATION, MEAN, SHAPES, WORKLOAD, Parameters


def inputs(pixels: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the library's arguments, with normalized pixels whose channels are last in memory."""
    normalized = (pixels - torch.tensor(MEAN, device=pixels.device)) / torch.tensor(DEVIATION, device=pixels.device)
    return {"pixel_values": normalized.permute(0, 3, 1, 2), "labels": labels.long()}


class ResNetInTransformers(TransformersForm[Parameters]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Pretrained:
        shape = SHAPES[spec.model]
        config = ResNetConfig(
            embedding_size=shape.width,
            hidden_sizes=[shape.width * shape.expansion << stage for stage in range(len(shape.stages))],
            depths=list(shape.stages),
            layer_type="bottleneck" if shape.expansion > 1 else "basic",
            downsample_in_bottleneck=False,
            num_labels=spec.parameters.classes,
        )
        model: Any = ResNetForImageClassification(config)
        recomputes = bool(spec.options.activation_checkpointing)
        return Pretrained(model.to(memory_format=torch.channels_last), inputs, recomputes)

    @torch.no_grad()
    def load(self, network: Pretrained, weights: Arrays) -> None:
        """Copy our weights in the order of the network. In our blocks the shortcut is last; in the library's, first."""
        here = dict(network.named_parameters())
        for shortcut in (False, True):
            theirs = [parameter for name, parameter in here.items() if ("shortcut" in name) is shortcut]
            ours = [array for name, array in weights.items() if ("shortcut" in name) is shortcut]
            for parameter, array in zip(theirs, ours, strict=True):
                parameter.copy_(torch.from_numpy(array))


FORM = ResNetInTransformers()


def register() -> None:
    """Let the frameworks find this implementation, in this process alone."""
    type(WORKLOAD).libraries = {**WORKLOAD.libraries, "transformers": frozenset({"amp", "bf16", "compile"})}
    sys.modules["throughline.workloads.resnet.in_transformers"] = sys.modules[__name__]

"""Helper process, in the environment of transformers: the loss and every gradient of one batch in double precision, by
our PyTorch implementation, which is the reference of an equivalence check, and by transformers' own model.

Arguments: specifications as JSON. It prints a line for each: both losses, the relative difference of each gradient, and
which gradients are zero.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

from throughline import frameworks, workloads
from throughline.spec import RunSpec

FACTS = {"vocabulary": 1000}
LEAST = 1e-6
"""A gradient whose norm is a smaller share of the largest counts as zero."""


def batch_of(spec: RunSpec) -> dict[str, Any]:
    """Return a batch in which samples have padding, if they can, and different numbers of predictions."""
    batch: dict[str, Any] = workloads.of(spec.model).synthetic(4, spec, 7)
    for name in {"tokens", "input_ids", "labels"} & batch.keys():
        batch[name] = batch[name] % 900
    if "positions" in batch:
        batch["mask"] = np.ones_like(batch["input_ids"], np.int8)
        batch["mask"][1, 20:] = 0
        batch["positions"][1] %= 20
        batch["positions"][2, 2:] = 0
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def drawn(network: Any) -> None:
    """Draw weights with which every bias, norm and gelu affects the loss."""
    with torch.no_grad():
        for name, one in network.named_parameters():
            is_gain = one.ndim == 1 and "norm" in name.lower() and name.endswith("weight")
            one.copy_(3 * one if one.ndim > 1 else 0.2 * torch.randn_like(one) + float(is_gain))


def trained(form: Any, network: Any, batch: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Return the loss and the gradients by the names of the PyTorch implementation."""
    loss = network.double()(**batch)
    loss.backward()
    for parameter in network.parameters():
        parameter.data = parameter.grad
    return float(loss.detach()), form.weights(network)


def compared(spec: RunSpec) -> dict[str, Any]:
    torch.manual_seed(3)
    ours, theirs = (workloads.form(spec.model, library) for library in ("torch", "transformers"))
    own, other = ours.build(spec, FACTS), theirs.build(spec, FACTS)
    drawn(own)
    theirs.load(other, {name: array.copy() for name, array in ours.weights(own).items()})
    assert type(other.model).__module__.startswith("transformers.models"), "that is not transformers' model"
    batch = batch_of(spec)
    loss, gradients = trained(ours, own, batch)
    their_loss, their_gradients = trained(theirs, other, batch)
    assert gradients.keys() == their_gradients.keys()
    norms = {name: float(np.linalg.norm(gradient)) for name, gradient in gradients.items()}
    least = LEAST * max(norms.values())
    off = {
        name: float(np.linalg.norm(their_gradients[name] - gradient)) / max(norms[name], least)
        for name, gradient in gradients.items()
    }
    zero = [name for name, norm in norms.items() if norm < least]
    return {"losses": [loss, their_loss], "off": off, "zero": zero}


def main() -> None:
    in_single = torch.Tensor.float  # GPT-2's loss casts scores to fp32, which would round them
    torch.Tensor.float = lambda tensor: tensor if tensor.dtype == torch.float64 else in_single(tensor)  # type: ignore
    for text in sys.argv[1:]:
        print(json.dumps(compared(frameworks.specification(json.loads(text)))))


if __name__ == "__main__":
    main()

"""Helper process, in the environment of transformers: decoders by their config.json in double precision, by our own
step and by transformers' own model with eager attention. Once tokens see all before them, and once the samples hold
several documents that do not see each other. For these, transformers makes a block-diagonal mask from position_ids, or
is handed one where its architecture makes none.

Arguments: a folder with files config.json of models, and the length of a sample. For each file it prints one line of
JSON: both losses, the loss where tokens see all before them, the largest relative difference of a gradient with its
name, and how many gradients there are.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

# transformers computes norms, softmax, rotary positions and routers in fp32. A test in double precision needs the same
# mathematics in double precision throughout, so the names of fp32 mean fp64 here.
torch.set_default_dtype(torch.float64)
SINGLE, torch.float32 = torch.float32, torch.float64  # type: ignore[misc]
torch.float, torch.Tensor.float = torch.float64, torch.Tensor.double  # type: ignore[misc, assignment, method-assign]

from throughline import frameworks, handover, workloads  # noqa: E402
from throughline.spec import RunSpec  # noqa: E402
from throughline.workloads.hugging_face import configuration  # noqa: E402

LEAST = 1e-6
"""A gradient whose norm is a smaller share of the largest is compared with this share."""


def spec_of(path: Path, sequence_length: int, attention: str) -> RunSpec[Any]:
    model = configuration.of_map({"transformers": str(path), "task": "clm"})
    handover.add(models={model.sha256: str(path)})
    values = json.loads(os.environ["SPEC"]) | {"model": str(model), "sequence_length": sequence_length, "task": "clm"}
    return frameworks.specification(values | {"config_sha256": model.sha256, "attention": attention})


def with_documents(ids: Any, workload: Any, spec: RunSpec[Any]) -> dict[str, Any]:
    """Return the batch of samples with some ends of documents, one of them at the very beginning."""
    end = 9
    tokens = np.concatenate([ids, ids[:, :1]], 1)
    tokens[0, [3, 4, 9]] = tokens[1, [0, len(ids[0]) - 2]] = end
    return dict(workload.batch({"tokens": tokens, "end_of_text": np.full(len(ids), end)}, spec.options))


def drawn(network: Any) -> None:
    """Draw weights with which every bias, norm, sink and expert affects the loss."""
    with torch.no_grad():
        for name, one in network.named_parameters():
            gain = "norm" in name and name.endswith("weight") and not network.made.unit_offset
            one.copy_(torch.randn_like(one) * (0.2 if one.ndim < 2 else one.shape[-1] ** -0.5) + float(gain))


def trained(form: Any, network: Any, batch: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    loss = network(**batch)
    loss.backward()
    for parameter in network.parameters():
        assert parameter.grad is not None and parameter.dtype == torch.float64
        parameter.data = parameter.grad
    return float(loss.detach()), {name: torch.from_numpy(array) for name, array in form.weights(network).items()}


def with_masks(window: int, **given: Any) -> dict[str, Any]:
    """Return the arguments of gpt_oss with the masks of documents."""
    places, documents = given["position_ids"], (given["position_ids"] == 0).cumsum(1)
    back = places[:, :, None] - places[:, None]
    seen = (documents[:, :, None] == documents[:, None]) & (back >= 0)
    masks = {"full_attention": seen, "sliding_attention": seen & (back < window)}
    shut = torch.finfo(torch.float64).min
    masks = {name: torch.zeros(mask.shape).masked_fill(~mask, shut)[:, None] for name, mask in masks.items()}
    return {**given, "attention_mask": masks}


def compared(path: Path, sequence_length: int, attention: str) -> dict[str, Any]:
    torch.manual_seed(len(path.stem))
    spec = spec_of(path, sequence_length, attention)
    ours, theirs = (workloads.form(spec.model, library) for library in ("torch", "transformers"))
    own = ours.build(spec, {}).double()
    drawn(own)
    other = theirs.build(spec, {}).double()
    other.model.config._attn_implementation = other.model.config._experts_implementation = "eager"
    theirs.load(other, ours.weights(own))
    workload = workloads.of(spec.model)
    arrays = workload.synthetic(2, spec, 7)
    if attention == "document":
        arrays = with_documents(arrays["input_ids"], workload, spec)
        if own.made.kind == "gpt_oss":
            inputs, window = other.inputs, other.model.config.sliding_window
            other.inputs = lambda **batch: with_masks(window, **inputs(**batch))
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    batch["input_ids"][0, 3] = min(own.made.padding or 0, own.made.vocabulary - 1)  # a token that may be padding
    whole = float(own(batch["input_ids"]).detach())
    loss, gradients = trained(ours, own, batch)
    their_loss, their_gradients = trained(theirs, other, batch)
    assert gradients.keys() == their_gradients.keys()
    norms = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    least = LEAST * max(norms.values())
    off = {name: float((their_gradients[name] - g).norm()) / max(norms[name], least) for name, g in gradients.items()}
    worst = max(off, key=lambda name: off[name])
    zero = [name for name, norm in norms.items() if norm <= least]
    model = {"model": path.stem, "attention": attention, "losses": [loss, their_loss], "whole": whole}
    return {**model, "off": off[worst], "at": worst, "tensors": len(off), "zero": zero}


def main() -> None:
    folder, sequence_length = sys.argv[1:]
    for path in sorted(Path(folder).iterdir()):
        for attention in ("sample", "document"):
            print(json.dumps(compared(path, int(sequence_length), attention)), flush=True)


if __name__ == "__main__":
    main()

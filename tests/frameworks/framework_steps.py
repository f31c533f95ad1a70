"""Helper process: a few steps of one framework with each of several specifications, and the features that it refuses.

Arguments: framework, file of the specifications, weights (.npz). It runs in the framework's environment and prints its
results as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from throughline import frameworks, workloads
from throughline.frameworks.rank import load
from throughline.rank import rounding
from throughline.spec import RunSpec

STEPS = 6
ASKED: dict[str, dict[str, Any]] = {
    "amp": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "compile": {"options": {"compile": True}},
    "activation_checkpointing": {"options": {"activation_checkpointing": True}},
    "remove_padding": {"options": {"remove_padding": True}},
}


def batch(spec: RunSpec, seed: int) -> dict[str, Any]:
    """Return a batch of sentences with several lengths and several numbers of masked tokens."""
    made: dict[str, Any] = workloads.of(spec.model).synthetic(4, spec, seed)
    made["input_ids"] %= 900
    made["labels"] %= 900
    made["positions"].reshape(-1)[3 * seed % 7 :: 5] = 0
    lengths = np.array([32, 20, 32, 30])
    made["mask"] = (np.arange(32) < lengths[:, None]).astype(np.int8)
    # Padding is never predicted, so the hidden states at padding are not defined.
    made["positions"][made["positions"] >= lengths[:, None]] = 0
    return made


def changed(spec: RunSpec, options: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    """Return the specification with other values. `options` changes only the options that it names."""
    return replace(spec, options=replace(spec.options, **options or {}), **changes)


def built(framework: Any, spec: RunSpec, weights: dict[str, Any]) -> Any:
    rank = framework(spec, 0, 0, 1, "cpu")
    rank.join()
    rank.device()
    rank.model({"vocabulary": 1000})
    rank.load(weights)
    rank.optimizer()
    return rank


def steps(rank: Any, spec: RunSpec, which: range) -> list[float]:
    """Make steps with batches that are the same for every framework; return the losses."""
    count = spec.options.gradient_accumulation
    losses = []
    for step in which:
        batches = [batch(spec, 10 + step * count + turn) for turn in range(count)]
        losses.append(rank.step([rank.deliver(rank.data(arrays)) for arrays in batches]))
    rank.sync()
    return list(rank.losses(losses))


def looked(rank: Any, spec: RunSpec) -> list[dict[str, float]]:
    """Return the sums of two held-out batches of different sizes."""
    whole = batch(spec, 5)
    part = {name: array[:3] for name, array in whole.items()}
    return [rank.form.sums(rank.network, rank.deliver(rank.data(arrays))) for arrays in (whole, part)]


def train(framework: Any, spec: RunSpec, weights: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Train without interruption, and train again from a checkpoint of that training."""
    rank, middle = built(framework, spec, weights), STEPS // 2
    before = looked(rank, spec)
    losses = steps(rank, spec, range(middle))
    with checkpoint.open("wb") as stream:
        rank.save(stream)
    losses += steps(rank, spec, range(middle, STEPS))
    other = built(framework, spec, weights)
    with checkpoint.open("rb") as stream:
        other.restore(stream)
    resumed = steps(other, spec, range(middle, STEPS))
    found = {"losses": losses, "resumed": resumed, "before": before, "after": looked(rank, spec)}
    return {**found, "after_resuming": looked(other, spec), "settings": rank.settings()}


def refused(name: str, spec: RunSpec) -> list[str]:
    framework, found = load(name), []
    for feature, change in ASKED.items():
        asked = changed(spec, **change)
        try:
            frameworks.refuse(asked)
            framework(asked, 0, 0, 1, "cpu").device()
        except workloads.Unsupported:
            found.append(feature)
    return found


def operands(framework: Any, spec: RunSpec, weights: dict[str, Any]) -> list[float]:
    """Return the standard deviation of each matrix that the large matrix product multiplies."""
    rank = built(framework, spec, weights)
    return [float(np.std(operand.asnumpy() if hasattr(operand, "asnumpy") else np.asarray(operand)))
            for operand in rank.product(256).args]  # fmt: skip


def multiplied(framework: Any, spec: RunSpec, refused: list[str]) -> dict[str, Any]:
    """Return what the framework's large product shows in each precision that it has on a CPU."""
    found = {}
    for precision in ("fp32", "bf16", "fp16"):
        if {"fp16": "amp"}.get(precision, precision) not in refused:
            rank = framework(changed(spec, precision=precision), 0, 0, 1, "cpu")
            rank.join()
            rank.device()
            found[precision] = asdict(rounding.probe(rank))
    return found


def main() -> None:
    name, specs, weights = sys.argv[1:]
    framework = load(name)
    with open(specs) as file:
        every = [frameworks.specification({**spec, "framework": name}) for spec in json.load(file)]
    with np.load(weights) as file:
        arrays = {key: file[key] for key in file.files}
    trained = [train(framework, spec, arrays, Path(weights).with_suffix(f".{name}")) for spec in every]
    cannot = refused(name, every[0])
    result = {
        **{name: [one[name] for one in trained] for name in trained[0]},
        "refused": cannot,
        "multiplied": multiplied(framework, every[0], cannot),
        "operands": operands(framework, every[0], arrays),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

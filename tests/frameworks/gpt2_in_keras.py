"""Helper process: GPT-2 in a framework that trains Keras' implementations.

Arguments: framework, folder with specs.json, weights.npz and tokens.npz. It prints its results as JSON and writes the
weights after one step to moved.npz. It runs in the framework's environment.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from framework_steps import changed

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.spec import RunSpec


def trained(rank: Any, windows: Any) -> list[float]:
    """Make steps over windows of tokens [steps, micro-batches, B, S + 1]; return the losses."""
    found = [rank.step([rank.deliver(rank.data({"tokens": each})) for each in step]) for step in windows]
    rank.sync()
    losses: list[float] = rank.losses(found)
    return losses


def arrays(network: Any, like: dict[str, Any]) -> dict[str, Any]:
    """Return a Keras implementation's weights with PyTorch's names and shapes. PyTorch keeps a kernel transposed."""
    found = {}
    for name, weight in network.by_name().items():
        array, shape = np.array(weight), like[name].shape
        found[name] = array.reshape(shape[::-1]).T if weight.name == "kernel" else array.reshape(shape)
    return found


def built(framework: Any, spec: RunSpec, weights: dict[str, Any], seed: int = 1) -> tuple[Any, dict[str, Any]]:
    """Return a rank that trains from `weights`, and the random weights that its network had before."""
    rank = framework(replace(spec, seed=seed), 0, 0, 1, "cpu")
    rank.join()
    rank.device()
    rank.model({"vocabulary": 1000})
    drawn = arrays(rank.network, weights)
    rank.load(weights)
    rank.optimizer()
    return rank, drawn


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    framework = load(name)
    in_keras = importlib.import_module("throughline.workloads.gpt2.in_keras")  # Keras reads the backend from `load`
    specs = json.loads((folder / "specs.json").read_text())
    plain, optioned = (frameworks.specification({**spec, "framework": name}) for spec in specs)
    weights, tokens = (dict(np.load(folder / f"{one}.npz")) for one in ("weights", "tokens"))
    rank, first = built(framework, plain, weights)
    found = {"sums": rank.form.sums(rank.network, rank.deliver(rank.data({"tokens": tokens["plain"][0, 0]})))}
    found["plain"] = trained(rank, tokens["plain"])
    np.savez(folder / "moved.npz", **arrays(rank.network, weights))
    other, again = built(framework, optioned, weights)
    found["optioned"], found["settings"] = trained(other, tokens["optioned"]), other.settings()
    in_keras.has_causal_kernel = lambda: True
    causal, _ = built(framework, optioned, weights)
    found["causal"], found["causal_settings"] = trained(causal, tokens["optioned"]), causal.settings()
    with_dropout = changed(plain, {"dropout": 0.1})
    dropping, third = built(framework, with_dropout, weights, seed=2)
    recomputing, _ = built(framework, changed(with_dropout, {"activation_checkpointing": True}), weights, seed=2)
    found["dropped"], found["recomputed"] = (trained(one, tokens["optioned"][:, :1]) for one in (dropping, recomputing))
    found["repeated"] = all(np.array_equal(first[name], again[name]) for name in weights)
    found["without_seed"] = [name for name, one in first.items() if one.std() and np.array_equal(one, third[name])]
    found["deviations"] = {name: float(array.std()) for name, array in first.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

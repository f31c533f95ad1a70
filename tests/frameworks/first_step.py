"""Helper process: a step of SGD in a framework's own environment, from given weights.

Arguments: framework, folder. cases.json there maps the name of a case to its specification, what to change, and its
facts; NAME.npz has the case's weights, the updates that are expected of them, and the batch. For each case a line of
JSON has the loss, the difference of each update, and what the implementation says of itself.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.rank.updates import Expected
from throughline.workloads import resnet


def parts(path: Path) -> dict[str, dict[str, Any]]:
    """Return the arrays of a file by the first words of their names."""
    found: dict[str, dict[str, Any]] = {"weights": {}, "updates": {}, "batch": {}}
    for name, array in np.load(path).items():
        kind, _, rest = name.partition(" ")
        found[kind][rest] = array
    return found


def started(name: str, case: dict[str, Any], seed: int = 1) -> Any:
    spec = replace(frameworks.specification({**case["spec"], "framework": name}), seed=seed)
    frameworks.refuse(spec)
    rank = load(name)(spec, 0, 0, 1, "cpu")
    rank.join()
    rank.device()
    if case.get("shape"):
        resnet.SHAPES[spec.model] = resnet.Shape(*case["shape"])
    if case.get("causal"):  # only now, because Keras reads the backend from `load`
        in_keras_form = importlib.import_module("throughline.workloads.in_keras_form")
        in_keras_form.has_causal_kernel = lambda: True  # type: ignore[attr-defined]
    rank.model(case["facts"])
    return rank


def drawn(name: str, case: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    """Return the random weights of a new network."""
    return {key: np.array(array) for key, array in started(name, case, seed).snapshot().items()}


def stepped(name: str, case: dict[str, Any], arrays: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rank = started(name, case)
    first = {key: np.array(array) for key, array in rank.snapshot().items()}
    expected = Expected(rank, arrays["weights"], arrays["updates"])
    rank.optimizer()
    batch = rank.deliver(rank.data(arrays["batch"]))
    found = {"sums": rank.form.sums(rank.network, batch)} if case["facts"] else {}
    (loss,) = rank.losses([rank.step([batch])])
    rank.sync()
    return {
        **found,
        "loss": loss,
        "updates": {each.name: [each.update, each.difference, each.weights] for each in expected.compared(rank)},
        "settings": rank.settings(),
        "deviations": {key: float(array.std()) for key, array in first.items()},
    }


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    cases = json.loads((folder / "cases.json").read_text())
    for case, asked in cases.items():
        print(json.dumps({"case": case, **stepped(name, asked, parts(folder / f"{case}.npz"))}))
    first, again, other = (drawn(name, next(iter(cases.values())), seed) for seed in (1, 1, 2))
    repeated = all(np.array_equal(again[key], array) for key, array in first.items())
    unseeded = [key for key, array in first.items() if array.std() and np.array_equal(array, other[key])]
    print(json.dumps({"case": "seeds", "repeated": repeated, "unseeded": unseeded}))


if __name__ == "__main__":
    main()

"""Helper process, in Paddle's environment: GPT-2's loss, gradients, settings and sums over held-out text, its loss
after a step of the optimizer, and the standard deviations of its initial weights.

Argument: a folder with specs.json, tokens.npy, and for each specification its weights (weights0.npz ...). The process
writes found.json into it, and for each specification the gradients (gradients0.npz ...). Paddle keeps matrices
transposed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.spec import RunSpec


def trained(spec: RunSpec, vocabulary: int, folder: Path, number: int) -> dict[str, Any]:
    frameworks.refuse(spec)
    rank: Any = load("paddle")(spec, 0, 0, 1, "cpu")
    rank.join()
    rank.device()
    rank.model({"vocabulary": vocabulary})
    scatter = {name: float(np.std(parameter.numpy())) for name, parameter in rank.network.named_parameters()}
    rank.load(dict(np.load(folder / f"weights{number}.npz")))
    rank.optimizer()
    batch = rank.deliver(rank.data({"tokens": np.load(folder / "tokens.npy")}))
    found = {"settings": rank.form.settings(rank.network), "sums": rank.form.sums(rank.network, batch)}
    loss = rank.parallel(**batch)
    loss.backward()
    gradients = {name: parameter.grad.numpy() for name, parameter in rank.network.named_parameters()}
    np.savez(folder / f"gradients{number}.npz", **gradients)
    rank.update.step()
    return {**found, "scatter": scatter, "loss": float(loss), "after": float(rank.parallel(**batch))}


def main() -> None:
    folder, vocabulary = Path(sys.argv[1]), int(sys.argv[2])
    specs = map(frameworks.specification, json.loads((folder / "specs.json").read_text()))
    found = [trained(spec, vocabulary, folder, number) for number, spec in enumerate(specs)]
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()

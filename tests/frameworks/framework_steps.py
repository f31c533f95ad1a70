"""Helper process: a few steps of one framework with each of several specifications, and what it refuses.

Arguments: framework, file of the specifications, weights (.npz), output. Runs in the framework's environment.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from throughline.training import frameworks, models

STEPS = 6
ASKED: dict[str, dict[str, Any]] = {
    "amp": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "compile": {"options": {"compile": True}},
    "checkpointing": {"options": {"checkpointing": True}},
    "unpadded": {"options": {"unpadded": True}},
}


def batch(model: Any, seed: int) -> dict[str, Any]:
    """Sentences of several lengths, with several numbers of masked tokens."""
    made: dict[str, Any] = model.synthetic(4, 32, 5, seed)
    made["input_ids"] %= 900
    made["labels"] %= 900
    made["positions"].reshape(-1)[3 * seed % 7 :: 5] = 0
    lengths = np.array([32, 20, 32, 30])
    made["mask"] = (np.arange(32) < lengths[:, None]).astype(np.int8)
    # Padding is never predicted: what stands at it is defined by nobody.
    made["positions"][made["positions"] >= lengths[:, None]] = 0
    return made


def train(framework: Any, spec: dict[str, Any], weights: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    model, count = models.of(spec["model"]), spec["options"]["accumulate"]
    one = framework(spec, 0, 0, 1, "cpu")
    one.join()
    one.device()
    one.model(1000)
    one.load(weights)
    one.optimizer()
    losses = []
    for step in range(STEPS):
        batches = [batch(model, 10 + step * count + turn) for turn in range(count)]
        losses.append(one.step([one.deliver(one.data(arrays)) for arrays in batches]))
    one.sync()
    return one.losses(losses), one.settings()


def refused(framework: Any, spec: dict[str, Any]) -> list[str]:
    found = []
    for name, change in ASKED.items():
        asked = {**spec, **change, "options": {**spec["options"], **change.get("options", {})}}
        try:
            framework(asked, 0, 0, 1, "cpu").device()
        except frameworks.Unsupported:
            found.append(name)
    return found


def main() -> None:
    name, specs, weights, output = sys.argv[1:]
    framework = frameworks.load(name)
    with open(specs) as file:
        every = json.load(file)
    with np.load(weights) as file:
        arrays = {key: file[key] for key in file.files}
    trained = [train(framework, spec, arrays) for spec in every]
    result = {
        "losses": [losses for losses, _ in trained],
        "settings": [settings for _, settings in trained],
        "refused": refused(framework, every[0]),
    }
    with open(output, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()

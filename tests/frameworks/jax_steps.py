"""Helper process, in JAX's environment: its optimizers on plain arrays, and what one rank does with options.

Arguments: specification (JSON), weights (.npz), optimizers (JSON), output (.npz). It prints losses and flags as JSON,
and writes the weights after each optimizer's steps to the output.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
from framework_steps import built, changed, refused, steps

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.spec import Optimizer, read

SHAPES = [(3, 2, 4), (2, 4), (5,)]
"""The shapes of a kernel, a bias with two dimensions, and a bias."""
DECAYS = [True, False, False]
UPDATES = 3


def arrays(seed: int) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape).astype(np.float32) for shape in SHAPES]


def updated(settings: Optimizer, clip: str) -> list[Any]:
    """Return the arrays after a few updates. The first gradients are so large that they are clipped; later ones are
    small."""
    from throughline.frameworks.jax.optimizers import build

    update, weights = build(settings, clip, DECAYS).transform, arrays(0)
    state = update.init(weights)
    for step in range(1, UPDATES + 1):
        gradients = [array / step**4 for array in arrays(step)]
        moves, state = update.update(gradients, state, weights)
        weights = [weight - settings.learning_rate * move for weight, move in zip(weights, moves, strict=True)]
    return weights


def main() -> None:
    text, initial, optimizers, output = sys.argv[1:]
    spec, weights = frameworks.specification(json.loads(text)), dict(np.load(initial))
    framework = load("jax")
    every = {
        f"{number} {place}": array
        for number, (settings, clip) in enumerate(json.loads(optimizers))
        for place, array in enumerate(updated(read(Optimizer, settings), clip))
    }
    np.savez(output, **every)

    rank, found = built(framework, spec, weights), dict[str, Any]()
    found["plain"] = steps(rank, spec, range(2))
    checkpoint = io.BytesIO()
    rank.save(checkpoint)
    found["after"] = steps(rank, spec, range(2, 4))
    checkpoint.seek(0)
    rank.restore(checkpoint)
    found["resumed"] = steps(rank, spec, range(2, 4))
    other = built(framework, changed(spec, {"checkpointing": True}), weights)
    found["checkpointing"] = steps(other, spec, range(2))

    # Loss scaling is tried with a model in fp32, because a CPU has no fp16.
    rank.spec = changed(spec, precision="fp16")
    rank.load(weights)
    rank.state = None
    rank.seed(spec.seed + 1)
    rank.optimizer()
    found["scaled"] = steps(rank, spec, range(2))
    rank.state["weights"][0] = rank.state["weights"][0] * np.float32(np.nan)
    before = [np.asarray(weight) for weight in rank.state["weights"]]
    steps(rank, spec, range(1))
    after = [np.asarray(weight) for weight in rank.state["weights"]]
    same = all(np.array_equal(*pair, equal_nan=True) for pair in zip(before, after, strict=True))
    found["overflow"] = [rank.skipped(), same]
    found["refused"] = refused("jax", spec)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

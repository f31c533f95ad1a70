"""Helper process, in JAX's environment: its optimizers on plain arrays, and what one rank does with options.

Arguments: specification (JSON), weights (.npz), optimizers (JSON), output (.npz). It prints losses and flags as JSON,
and writes the weights after each optimizer's steps to the output.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from framework_steps import batch, built, changed, refused, steps

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.rank import rounding
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


def donated(framework: Any, spec: Any, weights: dict[str, Any]) -> list[Any]:
    """Take a step as on a GPU. Return how many weights the model shared with the step's state before it, how many of
    them the step gave back, how many states the compiled step returns in the memory that it got them in, and the losses
    of that step and the next one."""
    import jax

    rank = built(framework, spec, weights)
    rank.kind = "cuda"
    rank.optimizer()
    variables, state = rank.built.trainable_variables, rank.state
    pairs = zip(variables, state["weights"], strict=True)
    shared = sum(
        variable.value.unsafe_buffer_pointer() == weight.addressable_data(0).unsafe_buffer_pointer()
        for variable, weight in pairs
    )
    every = rank.data(batch(spec, 1))
    step = rank.compiled.lower(state, [jax.tree.map(rank._side_by_side, every)], np.float32(0)).compile()
    rank.compiled = step  # so it is compiled once
    head = step.as_text().partition("entry_computation_layout")[0]
    aliases = head.partition("input_output_alias=")[2].count("-alias)")
    losses = steps(rank, spec, range(2))
    given_back = sum(variable.value.is_deleted() for variable in variables)
    counts = [shared - len(variables), given_back - len(variables), aliases - len(jax.tree.leaves(state))]
    return [*counts, losses, len(rank.form.settings(rank.network))]


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
    found["multiplied"] = asdict(rounding.probe(rank))
    checkpoint = io.BytesIO()
    rank.save(checkpoint)
    found["after"] = steps(rank, spec, range(2, 4))
    checkpoint.seek(0)
    rank.restore(checkpoint)
    found["resumed"] = steps(rank, spec, range(2, 4))
    found["donated"] = donated(framework, spec, weights)
    other = built(framework, changed(spec, {"activation_checkpointing": True}), weights)
    found["activation_checkpointing"] = steps(other, spec, range(2))

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

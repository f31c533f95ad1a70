"""Compare steps of BERT in `tensorflow` or `jax` with a plain loop around keras-hub's BERT, on CPUs, in one process.

    ~/.cache/throughline/environments/tensorflow-*/bin/python benchmarks/keras_step.py          minutes on two cores
    ~/.cache/throughline/environments/jax-*/bin/python benchmarks/keras_step.py --backend jax
    ... benchmarks/keras_step.py --rows bert-mini:4:128 --threads 2 --cpu-seconds

The plain loop is what the guides of Keras and keras-hub show: BertBackbone, its MaskedLMHead, a layer for the
sentences' order, Keras' AdamW, and one `tf.function` or, in JAX, one `jax.jit` around `stateless_call` and
`stateless_apply`. It uses keras-hub's approximation of gelu and its own weights. Both make their steps in turn on the
same batches. A figure is the time of the plain loop's step divided by the time of our step: above 1 ours is faster. It
is the median over the rounds, with the least and the largest. On a machine that has other work, `--cpu-seconds` counts
the processor's time instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

from throughline import frameworks  # noqa: E402
from throughline.frameworks.rank import Rank, load  # noqa: E402
from throughline.spec import RunSpec  # noqa: E402
from throughline.workloads import bert  # noqa: E402

ROWS = ["bert-tiny:8:128", "bert-mini:8:128", "bert-small:4:128"]
VOCABULARY, PREDICTIONS = 30522, 20


def spec(framework: str, model: str, batch: int, sequence: int, threads: int) -> RunSpec:
    return frameworks.specification({
        "benchmark": "step", "framework": framework, "model": model, "sequence": sequence, "predictions": PREDICTIONS,
        "batch_per_device": batch, "precision": "fp32", "topology": "1n1g", "repeat": 1, "seed": 1, "threads": threads,
        "protocol": 0,
    })  # fmt: skip


def plain(one: RunSpec, batches: list[dict[str, Any]]) -> Callable[[int], Any]:
    import keras
    import keras_hub

    shape = bert.SHAPES[one.model]
    backbone = keras_hub.models.BertBackbone(
        VOCABULARY, shape.layers, shape.heads, shape.hidden, shape.feed_forward, dropout=0.1
    )
    head = keras_hub.layers.MaskedLMHead(
        vocabulary_size=VOCABULARY, token_embedding=backbone.token_embedding, intermediate_activation="gelu"
    )
    order = keras.layers.Dense(2)
    ids, places = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    segments, mask = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    states = backbone({"token_ids": ids, "segment_ids": segments, "padding_mask": mask})
    outputs = head(states["sequence_output"], places), order(states["pooled_output"])
    model = keras.Model([ids, segments, mask, places], outputs)
    optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, epsilon=1e-6)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(model.trainable_variables)

    def inputs(batch: dict[str, Any]) -> list[Any]:
        return [batch["input_ids"], batch["segments"], keras.ops.ones_like(batch["input_ids"]), batch["positions"]]

    def loss_of(words: Any, follows: Any, batch: dict[str, Any]) -> Any:
        used = keras.ops.cast(batch["positions"] != 0, "float32")
        each = keras.losses.sparse_categorical_crossentropy(batch["labels"], words, from_logits=True)
        following = keras.losses.sparse_categorical_crossentropy(batch["following"], follows, from_logits=True)
        return keras.ops.sum(each * used) / keras.ops.sum(used) + keras.ops.mean(following)

    made = {"tensorflow": step_in_tensorflow, "jax": step_in_jax}[one.framework](model, optimizer, inputs, loss_of)
    return lambda number: float(made(batches[number % len(batches)]))


def step_in_tensorflow(model: Any, optimizer: Any, inputs: Any, loss_of: Any) -> Callable[[dict[str, Any]], Any]:
    import tensorflow as tf

    @tf.function
    def step(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(*model(inputs(batch), training=True), batch)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def step_in_jax(model: Any, optimizer: Any, inputs: Any, loss_of: Any) -> Callable[[dict[str, Any]], Any]:
    import jax

    def passes(weights: Any, own: Any, batch: dict[str, Any]) -> Any:
        outputs, own = model.stateless_call(weights, own, inputs(batch), training=True)
        return loss_of(*outputs, batch), own

    @jax.jit
    def stepped(state: Any, batch: dict[str, Any]) -> Any:
        weights, own, moments = state
        (loss, own), gradients = jax.value_and_grad(passes, has_aux=True)(weights, own, batch)
        weights, moments = optimizer.stateless_apply(moments, gradients, weights)
        return (weights, own, moments), loss

    variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state: Any = tuple([variable.value for variable in each] for each in variables)

    def step(batch: dict[str, Any]) -> Any:
        nonlocal state
        state, loss = stepped(state, batch)
        return loss

    return step


def ours(one: Rank, batches: list[dict[str, Any]]) -> Callable[[int], Any]:
    one.model({"vocabulary": VOCABULARY})
    one.optimizer()
    return lambda number: one.losses([one.step([batches[number % len(batches)]])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--rows", nargs="+", default=ROWS, help="model:batch:sequence")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu-seconds", action="store_true")
    given = parser.parse_args()
    os.environ["KERAS_BACKEND"] = given.backend
    clock = time.process_time if given.cpu_seconds else time.monotonic
    for row in given.rows:
        model, batch, sequence = row.split(":")
        one = spec(given.backend, model, int(batch), int(sequence), given.threads)
        rank = load(given.backend)(one, 0, 0, 1, "cpu")
        if row == given.rows[0]:
            rank.join()
        rank.device()
        drawn = (bert.WORKLOAD.synthetic(int(batch), one, seed) for seed in range(4))
        batches = [rank.data({name: array.astype("int32") for name, array in each.items()}) for each in drawn]
        both = {"ours": ours(rank, batches), "plain": plain(one, batches)}
        times: dict[str, list[float]] = {name: [] for name in both}
        for number in range(given.rounds + 3):
            for name, step in list(both.items())[:: 1 if number % 2 else -1]:  # neither is always first
                start = clock()
                step(number)
                times[name].append(clock() - start)
        ratios = sorted(b / a for a, b in zip(times["ours"][3:], times["plain"][3:], strict=True))
        middle = median(times["plain"][3:]) / median(times["ours"][3:])
        spread = [round(ratios[0], 3), round(ratios[-1], 3)]
        print(json.dumps({"backend": given.backend, "row": row, "ratio": round(middle, 3), "rounds": spread}))


if __name__ == "__main__":
    main()

"""Steps of BERT in `tensorflow` against a plain loop around keras-hub's BERT, on CPUs, in one process.

    ~/.cache/throughline/environments/tensorflow-*/bin/python benchmarks/keras_step.py          minutes on two cores
    ... benchmarks/keras_step.py --rows bert-mini:4:128 --threads 2 --cpu-seconds

The plain loop is what keras-hub's guides show: BertBackbone, its MaskedLMHead, a layer for the sentences' order, Keras'
AdamW, and one `tf.function`. Its gelu is the approximation that keras-hub has, its weights are its own. Both make their
steps in turn on the same batches. A figure is how many times as long a step of the plain loop takes as one of ours, the
median over the rounds and the least and the largest: above 1 ours is faster. `--cpu-seconds` counts the processor's
time instead, on a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import keras  # noqa: E402
import keras_hub  # noqa: E402
import tensorflow as tf  # noqa: E402

from throughline.frameworks.tensorflow.rank import TensorFlow  # noqa: E402
from throughline.workloads import bert  # noqa: E402

ROWS = ["bert-tiny:8:128", "bert-mini:8:128", "bert-small:4:128"]
VOCABULARY, PREDICTIONS = 30522, 20


def spec(model: str, batch: int, sequence: int, threads: int) -> dict[str, Any]:
    defaults = {"tensor": 1, "exchange": True, "accumulate": 1, "clip": "none", "compile": False, "graph": False}
    rest = {"checkpointing": False, "dropout": 0.1, "bucket_mb": 25, "sharding": "none"}
    return {
        "framework": "tensorflow", "model": model, "sequence": sequence, "predictions": PREDICTIONS, "seed": 1,
        "batch_per_device": batch, "precision": "fp32", "threads": threads, "options": {**defaults, **rest},
        "optimizer": {
            "name": "adamw", "learning_rate": 1e-4, "betas": [0.9, 0.999], "epsilon": 1e-6, "weight_decay": 0.01,
            "momentum": 0.9,
        },
    }  # fmt: skip


def plain(one: dict[str, Any], batches: list[dict[str, Any]]) -> Callable[[int], None]:
    shape = bert.SHAPES[one["model"]]
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

    @tf.function
    def step(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            mask = tf.ones_like(batch["input_ids"])
            words, follows = model([batch["input_ids"], batch["segments"], mask, batch["positions"]], training=True)
            used = tf.cast(batch["positions"] != 0, tf.float32)
            each = keras.losses.sparse_categorical_crossentropy(batch["labels"], words, from_logits=True)
            following = keras.losses.sparse_categorical_crossentropy(batch["following"], follows, from_logits=True)
            loss = tf.reduce_sum(each * used) / tf.reduce_sum(used) + tf.reduce_mean(following)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return lambda number: float(step(batches[number % len(batches)]))


def ours(one: TensorFlow, batches: list[dict[str, Any]]) -> Callable[[int], None]:
    one.model({"vocabulary": VOCABULARY})
    one.optimizer()
    return lambda number: float(one.step([batches[number % len(batches)]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=ROWS, help="model:batch:sequence")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu-seconds", action="store_true")
    given = parser.parse_args()
    clock = time.process_time if given.cpu_seconds else time.monotonic
    for row in given.rows:
        model, batch, sequence = row.split(":")
        one = spec(model, int(batch), int(sequence), given.threads)
        rank = TensorFlow(one, 0, 0, 1, "cpu")
        if row == given.rows[0]:
            rank.join()
        rank.device()
        drawn = (bert.synthetic(int(batch), one, seed) for seed in range(4))
        batches = [rank.data({name: array.astype("int32") for name, array in each.items()}) for each in drawn]
        both = {"ours": ours(rank, batches), "plain": plain(one, batches)}
        times: dict[str, list[float]] = {name: [] for name in both}
        for number in range(given.rounds + 3):
            for name, step in both.items():
                start = clock()
                step(number)
                times[name].append(clock() - start)
        ratios = sorted(b / a for a, b in zip(times["ours"][3:], times["plain"][3:], strict=True))
        middle = median(times["plain"][3:]) / median(times["ours"][3:])
        print(
            json.dumps({"row": row, "ratio": round(middle, 3), "rounds": [round(ratios[0], 3), round(ratios[-1], 3)]})
        )


if __name__ == "__main__":
    main()

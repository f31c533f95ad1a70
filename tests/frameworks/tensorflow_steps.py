"""Helper process, in TensorFlow's environment: what one rank does with threads, overflows, rates, memory and options.

Arguments: specification (JSON), weights (.npz). It prints its results as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from framework_steps import built, changed, steps
from tensorflow.python.framework import op_callbacks

from throughline import frameworks
from throughline.frameworks.rank import load
from throughline.spec import RunSpec


def ticks() -> dict[str, int]:
    """Return the processor time of every thread of this process except the first, in ticks."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        if thread.name != str(os.getpid()):
            user, system = (thread / "stat").read_text().rpartition(")")[2].split()[11:13]
            found[thread.name] = int(user) + int(system)
    return found


def busy_threads(rank: Any) -> int:
    """Return the number of threads, without the first, that take part in the computation of a device."""
    multiply = tf.function(rank.product(1024), autograph=False)
    multiply()
    before, after = ticks(), {}
    for _ in range(100):
        multiply()
        after = {thread: now - before.get(thread, 0) for thread, now in ticks().items()}
        if sum(after.values()) > 100:
            break
    return sum(time > 5 for time in after.values())


def exchanged_as_on_gpus(framework: Any, spec: RunSpec) -> list[str]:
    """Return the implementations that TensorFlow's strategy, and each of its exchanges, is asked for on a GPU."""
    asked: list[str] = []

    def strategy(communication_options: Any) -> Any:
        asked.append(communication_options.implementation.name)
        return tf.distribute.get_strategy()

    def all_reduce(self: Any, how: Any, values: Any, options: Any = None) -> Any:
        asked.append(options.implementation.name)
        return values

    tf.distribute.MultiWorkerMirroredStrategy = strategy
    tf.distribute.ReplicaContext.all_reduce = all_reduce
    os.environ["RANK_ADDRESSES"] = "localhost:1,localhost:2"
    rank = framework(spec, 0, 0, 2, "cuda")
    rank.join()
    rank._exchanged([tf.ones(3), tf.ones(2)])
    return asked


def loaded(rank: Any, arrays: dict[str, Any]) -> list[str]:
    """Return the operations that bring a batch to the device, each with the device of its result."""
    made: list[str] = []

    def note(kind: str, inputs: Any, attributes: Any, outputs: Any, *more: Any, **named: Any) -> None:
        made.extend(f"{kind} {output.device[-5:]}" for output in outputs)

    op_callbacks.add_op_callback(note)
    batch = rank.data(arrays)
    op_callbacks.remove_op_callback(note)
    assert all(np.array_equal(batch[name].numpy(), array) for name, array in arrays.items())
    return made


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    text, weights = sys.argv[1:]
    spec, arrays = frameworks.specification(json.loads(text)), dict(np.load(weights))
    framework = load("tensorflow")
    found: dict[str, Any] = {}

    def trained(**changes: Any) -> tuple[Any, list[float]]:
        rank = built(framework, changed(spec, **changes), arrays)
        return rank, steps(rank, spec, range(2))

    rank, found["plain"] = trained()
    found["traces"] = rank.finish.experimental_get_tracing_count()
    found["busy"] = busy_threads(rank)
    rank.set_rate(0.0)
    before = [weight.numpy() for weight in rank.weights]
    steps(rank, spec, range(1))
    found["still"] = all(np.array_equal(*pair) for pair in zip(before, (w.numpy() for w in rank.weights), strict=True))
    try:
        tf.zeros((1 << 20, 1 << 20, 1 << 8))
    except tf.errors.OpError as error:
        found["out_of_memory"] = rank.is_out_of_memory(error)
    _, found["activation_checkpointing"] = trained(options={"activation_checkpointing": True})
    _, found["dropped"] = trained(options={"dropout": 0.1})
    _, found["dropped again"] = trained(options={"dropout": 0.1, "activation_checkpointing": True})
    _, found["compile"] = trained(options={"compile": True})
    half, found["fp16"] = trained(precision="fp16")
    half.scale.assign(3e38)
    before = [weight.numpy() for weight in half.weights]
    steps(half, spec, range(1))
    same = all(np.array_equal(*pair) for pair in zip(before, (w.numpy() for w in half.weights), strict=True))
    found["overflow"] = [half.skipped(), bool(np.isclose(half.scale.numpy(), 1.5e38)), same]
    rank.kind, rank.at = "cuda", "CPU:1"  # a second device, as a GPU is
    found["loaded"] = loaded(rank, {"ids": np.ones(3), "rows": np.ones(2)})
    found["exchanged"] = exchanged_as_on_gpus(framework, spec)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

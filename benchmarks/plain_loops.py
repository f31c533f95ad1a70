"""Compare our training step with the loop that users of a library write by hand, in turn, on a CPU, in fp32.

    python benchmarks/plain_loops.py wide-deep        on one and two workers, some minutes
    python benchmarks/plain_loops.py faces            face recognition on two workers, with each kind of classifier
    ~/.cache/throughline/environments/tensorflow-*/bin/python benchmarks/plain_loops.py tensorflow
    ~/.cache/throughline/environments/jax-*/bin/python benchmarks/plain_loops.py jax
    ... plain_loops.py jax --rows 1:bert-tiny:2:sequence=32 --rounds 1 --seconds 0.1                       to try it

Each file in loops/ has a plain loop, and says what it consists of. A row is workers:model:batch:parameters. Each worker
holds all contestants, which make their steps in turn on the same batches. A figure is the time of the plain loop's step
divided by the time of our step (harness.ratio): above 1 ours is faster. `again` is the plain loop once more: it shows
the machine's noise. `--cpu-seconds` counts the processor's seconds of all workers together.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness

LOOPS = {
    "tensorflow": "bert_in_keras",
    "jax": "bert_in_keras",
    "wide-deep": "wide_deep_in_torch",
    "faces": "faces_in_torch",
}
"""What is compared -> the file in loops/."""
BATCHES = 4


def main() -> None:
    parser = harness.options(__doc__, rounds=7, cpu=True)
    parser.add_argument("loop", choices=list(LOOPS))
    parser.add_argument("--rows", nargs="+", help="workers:model:batch:parameters, such as 1:bert-tiny:8:sequence=128")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds of a turn")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    if given.loop in ("tensorflow", "jax"):
        os.environ["KERAS_BACKEND"] = given.loop
    plain = importlib.import_module(f"loops.{LOOPS[given.loop]}")
    if given.child:
        number, output = given.child
        harness.write(Path(output), worker(plain, given, int(number)))
        return
    labels = [*plain.OURS, "again"]
    step = "CPU-ms a step" if given.clock == "cpu_seconds" else "ms a step"
    table = harness.Table("row", f"plain, {step}", *labels)
    every = []
    for row in given.rows or plain.ROWS:
        rounds = measured(row, given)
        ratios = {label: harness.ratio(rounds, "plain", label) if label in rounds[0] else "" for label in labels}
        table.add(row, f"{1000 * harness.middle(rounds, 'plain'):.1f}", *ratios.values())
        every.append({"row": row, "rounds": rounds, "ratios": ratios})
        harness.write(given.json, every)


def measured(row: str, given: Any) -> list[dict[str, float]]:
    """Measure a row in new processes, one for each worker. Return the seconds of a step per round and contestant."""
    workers = int(row.partition(":")[0])
    with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.getsockname()[1])}
        command = [sys.executable, *sys.argv, "--rows", row, "--child"]
        outputs = [Path(folder, f"{number}.json") for number in range(workers)]
        children = [
            subprocess.Popen([*command, str(number), str(output)], env=os.environ | variables)
            for number, output in enumerate(outputs)
        ]
        statuses = [child.wait() for child in children]
        if any(statuses):
            sys.exit(f"row {row} failed")
        every: list[list[dict[str, float]]] = [json.loads(output.read_text()) for output in outputs]
    if given.clock == "seconds":
        return every[0]
    return [{label: sum(each[label] for each in same) for label in same[0]} for same in zip(*every, strict=True)]


def worker(plain: Any, given: Any, number: int) -> list[dict[str, float]]:
    """Build all contestants of a row in this process, and let them make their steps in turn."""
    from throughline import frameworks, workloads
    from throughline.frameworks.rank import load

    workers, model, batch, *rest = given.rows[0].split(":")
    sizes = {name: int(value) for name, value in (each.split("=") for each in rest)}
    framework = given.loop if given.loop in frameworks.NAMES else "torch"
    specs = {
        label: harness.specification(
            model, int(batch), framework=framework, topology=f"1n{workers}g", device="cpu", threads=given.threads,
            **plain.SETTINGS, **sizes | own,
        )
        for label, own in plain.OURS.items()
    }  # fmt: skip
    kind, last = load(framework), list(specs.values())[-1]
    joined = kind(last, number, number, int(workers), "cpu")  # of several kinds, the last one divides the model
    joined.join()
    joined.device()
    workload = workloads.of(model)
    arrays = [workload.synthetic(last.batch_size, last, BATCHES * number + turn) for turn in range(BATCHES)]
    step, weights = plain.contestant(last, joined, arrays)
    contestants: dict[str, Callable[[int], Any]] = {"plain": step}
    for label in list(specs)[: 1 if workers == "1" else None]:
        contestants[label] = ours(kind, specs[label], joined, arrays, weights)
    losses = {label: step(0) for label, step in contestants.items()}
    if weights and max(losses.values()) - min(losses.values()) > 1e-5:
        sys.exit(f"the contestants compute different losses: {losses}")
    rounds = in_turn({**contestants, "again": step}, joined, given)
    joined.close()
    return rounds


def ours(kind: Any, spec: Any, joined: Any, arrays: list[Any], weights: Any) -> Callable[[int], Any]:
    """Return a step of our framework, in the group of ranks that has met already."""
    from throughline import workloads

    rank = kind(spec, joined.rank, joined.rank, joined.world, "cpu")
    if hasattr(joined, "together"):
        rank.together = joined.together if workloads.of(spec.model).own_gradient_sync(spec) else None
    rank.device()
    rank.model(workloads.of(spec.model).facts(None))
    if weights:
        rank.load(weights)
    rank.optimizer()
    batches = [rank.deliver(rank.data(each)) for each in arrays]
    return lambda number: rank.losses([rank.step([batches[number % BATCHES]])])[0]


def in_turn(contestants: dict[str, Callable[[int], Any]], joined: Any, given: Any) -> list[dict[str, float]]:
    """Return the seconds of a step per round and contestant."""

    def seconds(label: str, count: int) -> float:
        def steps() -> None:
            for turn in range(count):
                contestants[label](turn)
            joined.barrier()

        joined.barrier()
        return harness.timed(steps, given.clock) / count

    counts = {
        label: joined.broadcast(max(1, round(given.seconds / max(seconds(label, 2), 1e-4)))) for label in contestants
    }
    ways = {label: (lambda label=label: seconds(label, counts[label])) for label in contestants}
    return harness.in_turn(ways, given.rounds)


if __name__ == "__main__":
    main()

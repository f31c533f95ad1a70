"""A convergence check in a rank: train, evaluate held-out data every `evaluate_every` steps, and resume after a kill.

It uses the same step as the measured loop (measurement.py), and it times nothing. At the start of each segment of
`evaluate_every` steps, we seed the dropout with the step number. So a training that resumes between two segments
computes exactly the same as one without an interruption. Standard library and numpy only.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughline import frameworks, workloads
from throughline.messages import Trained, Training
from throughline.rank.checkpoints import Checkpoints
from throughline.rank.data import first_held_out
from throughline.rank.run import Run
from throughline.spec import Options
from throughline.workloads import Unsupported


def train(run: Run, order: Training) -> Trained:
    """Train to the last step, from the start or from the checkpoint that the launcher has verified."""
    framework, heart = run.framework, run.heart
    if "convergence" not in frameworks.features(run.spec.framework, run.spec.model):
        raise Unsupported(f"{run.spec.framework} has no checkpoints that are safe to load")
    if run.options.tensor_parallel > 1 or run.options.sharding != "none":
        looks = "a convergence check looks at whole replicas, with all states of the optimizer"
        raise Unsupported(f"{looks}: train it without options.tensor_parallel and options.sharding")
    whole = workloads.whole(run.spec.model).items()
    if split := [name for name, value in whole if getattr(run.spec.parameters, name) != value]:
        raise Unsupported(f"a convergence check looks at whole models, and {', '.join(split)} splits this one")
    checkpoints = Checkpoints(Path(order.folder), order.identity, heart)
    done = 0
    curve: list[dict[str, Any]] = []
    losses: list[float | None] = []
    held_out = list(_held_out(run, order.samples)) if run.rank == 0 else []
    if order.resume:
        done = run.steps_made = order.resume.step
        with checkpoints.verified(order.resume) as stream:
            framework.restore(stream)
        curve, losses = checkpoints.until(done)
    else:
        if order.begin:
            with checkpoints.verified(order.begin) as stream:
                framework.restore(stream, weights_alone=True)
        if run.rank == 0:
            curve.append({"step": 0, **_looked(run, held_out)})
    while done < order.steps:
        heart.phase("training", order.steps)
        heart.step(done)
        # Each rank and segment has its own seed.
        framework.seed((run.spec.seed * 1_000_003 + run.rank) * 1_000_003 + done + 1 & 2**63 - 1)
        until = min(order.steps, (done // order.evaluate_every + 1) * order.evaluate_every)
        values = []
        for step in range(done + 1, until + 1):
            values.append(run.step())
            heart.step(step)
        framework.sync()
        done = until
        losses += map(_number, framework.losses(values))
        framework.barrier()
        if run.rank == 0:
            curve.append({"step": done, **_looked(run, held_out)})
            checkpoints.add(done, framework.save, curve, losses)
        framework.barrier()
        if not framework.broadcast(int(None not in losses[-len(values) :])):
            break
    heart.phase("end")
    return Trained(curve, losses)


def _held_out(run: Run, samples: int) -> Iterator[Any]:
    """Yield the first `samples` rows of the test shards, as batches on the device."""
    assert run.manifest
    for rows in run.decoded(first_held_out(run.manifest, samples, run.size.batch_per_replica)):
        yield run.framework.deliver(run.framework.data(run.workload.batch(rows, Options())))


def _looked(run: Run, held_out: list[Any]) -> dict[str, float | None]:
    """Return the workload's figures of the held-out samples, from sums over all batches."""
    sums: dict[str, float] = {}
    run.heart.phase("evaluation", len(held_out))
    for number, batch in enumerate(held_out, 1):
        for name, value in run.framework.form.sums(run.framework.network, batch).items():
            sums[name] = sums.get(name, 0.0) + value
        run.heart.step(number)
    figures = {name: _number(value) for name, value in run.workload.look(sums).items()}
    return {**figures, "samples": int(sums["samples"])}


def _number(value: float) -> float | None:
    """Return the value, or None if it is not finite and JSON cannot express it."""
    return value if math.isfinite(value) else None

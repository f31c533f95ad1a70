"""Checkpoints of plain arrays and held-out data, which a convergence check needs of a framework: for MXNet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx

LARGEST_SEED = 2**31 - 1


class Checkpointing:
    """The part of a rank that trains for long. Trainer.save_states would pickle: here arrays are written, by name."""

    network: Any
    trainer: Any
    form: Any
    at: Any
    half: bool

    def seed(self, value: int) -> None:
        """Seed what dropout draws from."""
        mx.random.seed(value & LARGEST_SEED)

    def save(self, path: Path) -> None:
        """Write weights, the optimizer's states and number of updates, and the loss scaler's state."""
        arrays = {f"weight {name}": parameter.data() for name, parameter in self.network.named_parameters()}
        for index, state in self.trainer._updaters[0].states.items():
            arrays |= {f"state {index} {part}": array for part, array in enumerate(state)}
        arrays["updates"] = mx.nd.array([self.trainer._optimizer.num_update], dtype="int64")
        if self.half:
            scaler = self.trainer._amp_loss_scaler
            arrays["scaler"] = mx.nd.array([getattr(scaler, name) for name in SCALER], dtype="float64")
        mx.nd.save(str(path), arrays)

    def restore(self, path: Path) -> None:
        """Take them over from a file, before the first step."""
        arrays = mx.nd.load(str(path))
        for name, parameter in self.network.named_parameters():
            parameter.set_data(arrays[f"weight {name}"])
        updater, optimizer = self.trainer._updaters[0], self.trainer._optimizer
        for index, state in _states(arrays):
            updater.states[index] = tuple(array.as_in_context(self.at) for array in state)
            updater.states_synced[index] = True
        optimizer.num_update = optimizer.begin_num_update = int(arrays["updates"].asscalar())
        if self.half:
            for name, value in zip(SCALER, arrays["scaler"].asnumpy().tolist()):  # noqa: B905  as Python 3.8 knows it
                setattr(self.trainer._amp_loss_scaler, name, value)

    def evaluate(self, batch: list[Any]) -> dict[str, float]:
        """Sums over a delivered batch, without dropout: `samples`, and what the workload's `look` takes."""
        sums: dict[str, float] = self.form.sums(self.network, *batch)
        return sums


SCALER = ("_loss_scale", "_next_loss_scale", "_unskipped")


def _states(arrays: dict[str, Any]) -> Iterator[tuple[int, list[Any]]]:
    """Every weight's number with the optimizer's arrays for it, in their order."""
    parts: dict[int, dict[int, Any]] = {}
    for name, array in arrays.items():
        kind, *numbers = name.split(" ")
        if kind == "state":
            parts.setdefault(int(numbers[0]), {})[int(numbers[1])] = array
    for index, state in parts.items():
        yield index, [state[part] for part in sorted(state)]

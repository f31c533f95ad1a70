"""Checkpoints and held-out data, which a convergence check needs of a framework: for those on PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from throughline import workloads


class Checkpointing:
    """The part of a rank that trains for long: `bare` is its network, `update` its optimizer."""

    bare: Any
    update: Any
    scaler: Any
    at: torch.device
    spec: dict[str, Any]

    def seed(self, value: int) -> None:
        """Seed what dropout draws from."""
        torch.manual_seed(value)

    def save(self, path: Path) -> None:
        """Write weights, the optimizer's and the loss scaler's states."""
        states = {part: getattr(self, name).state_dict() for part, name in STATES.items()}
        torch.save(states, path)

    def restore(self, path: Path) -> None:
        """Take them over from a file. Only tensors and plain values are read from it: nothing in it can run."""
        states = torch.load(path, map_location=self.at, weights_only=True)
        for part, name in STATES.items():
            getattr(self, name).load_state_dict(states[part])

    def evaluate(self, batch: dict[str, Any]) -> dict[str, float]:
        """Sums over a delivered batch, without dropout: `samples`, and what the workload's `look` takes."""
        sums: dict[str, float] = workloads.form(self.spec["model"], "torch_evaluation").sums(self.bare, **batch)
        return sums


STATES = {"weights": "bare", "optimizer": "update", "scaler": "scaler"}

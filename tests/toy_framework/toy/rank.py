"""One rank of `toy`: that of `torch` on the processor, with a pause before each step."""

from __future__ import annotations

import time
from typing import Any

from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec

from . import ToyOptions


class Toy(TorchDDP):
    def __init__(self, spec: RunSpec[Any], rank: int, local_rank: int, world: int, kind: str) -> None:
        assert kind in ("abacus", "cpu")
        super().__init__(spec, rank, local_rank, world, "cpu")
        assert isinstance(spec.options, ToyOptions)
        self.pause_s = spec.options.pause_ms / 1000

    def step(self, batches: list[Any]) -> Any:
        time.sleep(self.pause_s)
        return super().step(batches)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "pause_s": self.pause_s}

    def versions(self) -> dict[str, str | None]:
        return {**super().versions(), "toy": "1.0"}

"""The forward and backward passes of a step as one CUDA graph: a small step's kernels cost no time to launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Batch = dict[str, Tensor | None]
FIRST = 3
"""Passes before the recording: libraries and compilers choose their kernels in them."""


class Replayed:
    """`passes` (micro-batches -> loss, leaving gradients) recorded once; a call copies the batches in and replays it.

    Gradients lie where the recording has put them, and each replay writes them anew: nobody may drop them. What comes
    after (clipping, loss scaler, update) runs as it always does. Batches must not change their shapes.
    """

    def __init__(self, passes: Callable[[list[Batch]], Tensor], parameters: Sequence[Tensor]) -> None:
        self.passes, self.parameters = passes, parameters
        self.graph: Any = None

    def __call__(self, batches: list[Batch]) -> Tensor:
        if self.graph is None:
            self._record(batches)
        for kept, given in zip(self.inputs, batches, strict=True):
            for name, tensor in given.items():
                if tensor is not None:
                    kept[name].copy_(tensor)
        self.graph.replay()
        return self.total.clone()

    def _record(self, batches: list[Batch]) -> None:
        self.inputs: list[Any] = [
            {name: None if tensor is None else tensor.clone() for name, tensor in batch.items()} for batch in batches
        ]
        aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(FIRST):
                self.passes(self.inputs)
                self._drop()
        torch.cuda.current_stream().wait_stream(aside)
        graph: Any = torch.cuda.CUDAGraph()
        # The loader's thread may take memory meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.total = self.passes(self.inputs)
        self.graph = graph

    def _drop(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

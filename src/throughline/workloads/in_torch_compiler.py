"""How networks in PyTorch are compiled, and what a record says about it.

Every value is PyTorch's default, on purpose:

* `mode` is `default`. `max-autotune` times kernels of Triton against cuBLAS during the run. The choice depends on
  noise, so repeats could run different programs, and a large 16-bit product rarely gains. `reduce-overhead` keeps CUDA
  graphs of its own, and a run has `options.cuda_graph` for this.
* `coordinate_descent_tuning` times pointwise kernels in the same way.
* `fullgraph` is off, because tensor parallelism has exchanges that Dynamo leaves to Python.
* `freezing` folds weights into constants, so it is for inference only.

Whoever wants another value of Inductor sets its variable, such as TORCHINDUCTOR_COORDINATE_DESCENT_TUNING=1. The record
has the variable, and here the value that was in effect.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

INDUCTOR = (
    "max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "triton.cudagraphs",
    "epilogue_fusion", "shape_padding", "layout_optimization", "freezing",
)  # fmt: skip
"""The values of Inductor that decide which kernels there are, or how they are launched."""
Function = Callable[..., Any]


def compiled(part: Function, dynamic: bool | None, backend: Any = "inductor") -> Function:
    """`dynamic`: False: every shape has code of its own; None: also code for all lengths, where a length changes."""
    made: Function = torch.compile(part, mode="default", fullgraph=False, dynamic=dynamic, backend=backend)
    return made


def words(dynamic: bool | None = None) -> str:
    """Return the words of a record for how `compiled` compiles, with the values of Inductor that are in effect."""
    from torch._inductor import config  # only here, because it takes a second

    lengths = "for every shape" if dynamic is False else "for every shape, and for all lengths where one changes"
    values = ", ".join(f"{name} {str(attrgetter(name)(config)).lower()}" for name in INDUCTOR)
    return f"torch.compile, mode default, fullgraph false, code {lengths}; Inductor: {values}"

"""How a rank's large products are rounded, measured against float64.

The framework multiplies two matrices as its run does, after the window. numpy computes some rows of the product in
float64. The relative error tells the type that the device really multiplied in: fp32, TF32, bf16 or fp16. The launcher
compares it with what the run's precision claims (launch/rounding.py).
"""

from typing import Any

from throughline.frameworks.rank import Rank
from throughline.messages import Rounding
from throughline.rank import report

SIZE, CPU_SIZE = 2048, 512
"""Rows and columns of the matrices on a device. On a GPU, tensor cores multiply matrices of this size."""
ROWS = 16
"""So many rows of the product are computed in float64: a share that costs nothing."""
SEED = 1729


def probe(framework: Rank) -> Rounding:
    """Let the framework multiply, and return the relative error, or the reason why there is none."""
    size = CPU_SIZE if framework.kind == "cpu" else SIZE
    try:
        left, right = operands(size)
        product = framework.multiplied(left, right)
        error = None if product is None else relative_error(product, left, right)
    except Exception as problem:  # the run itself has already been measured
        return Rounding(size, None, report.words(problem).splitlines()[0])
    if product is None:
        return Rounding(size, None, "the framework has no product for it in this precision")
    return Rounding(size, error, "the product is not finite" if error is None else None)


def operands(size: int) -> tuple[Any, Any]:
    """Return two size x size matrices in float32, from a standard normal distribution. They are always the same."""
    import numpy as np

    draw = np.random.default_rng(SEED)
    left, right = (draw.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    return left, right


def relative_error(product: Any, left: Any, right: Any) -> float | None:
    """Return the norm of the error over the norm of the product, for ROWS rows spread over the product.

    The operands are those before any rounding, so the error has the rounding of the operands too. None if a value is
    not finite.
    """
    import numpy as np

    rows = np.linspace(0, len(left) - 1, ROWS, dtype=int)
    exact = left[rows].astype(np.float64) @ right.astype(np.float64)
    error = float(np.linalg.norm(np.asarray(product)[rows].astype(np.float64) - exact) / np.linalg.norm(exact))
    return error if np.isfinite(error) else None

"""Whether the products of a run are rounded as its precision claims (`rank/rounding.py` measures the error).

An operand with p significant bits has a relative error of about 0.4 x 2^-p, and a product of two normal matrices one of
about 0.6 x 2^-p. A 16-bit type rounds the product too. These are the errors, and the limits between them:

    fp32    24 bits   below 2e-6, which is the error of adding 8,192 products one after the other    limit 1e-5
    TF32    11 bits   2.8e-4, if its operands are rounded; 8e-4, if they are cut off                 limit 1.5e-3
    fp16    11 bits   3.4e-4                                                                         limit 1.5e-3
    bf16     8 bits   2.8e-3, or 2.3e-3 if the product stays in fp32                                 limit 1e-2

A larger error than the limit of the claim is no rounding of that type.
"""

import math
from collections.abc import Sequence
from typing import Any

from throughline.messages import Measured
from throughline.spec import RunSpec

LIMITS: dict[str, float] = {"fp32": 1e-5, "tf32": 1.5e-3, "fp16": 1.5e-3, "bf16": 1e-2}
"""Map each precision to the largest relative error of its products. fp8 scales its operands, so it has none."""
SHOWN = ((1e-5, "fp32"), (1.5e-3, "TF32 or fp16"), (1e-2, "bf16"))
"""Limits in rising order, and what an error up to each of them shows."""


def summary(spec: RunSpec, ranks: Sequence[Measured]) -> dict[str, Any] | None:
    """Return the record's `rounding`, from the rank with the largest error; None unless all ranks have looked."""
    measured = [rank.rounding for rank in ranks if rank.rounding]
    if not measured or len(measured) < len(ranks):
        return None
    worst = max(measured, key=lambda each: (each.relative_error is None, each.relative_error or 0.0))
    error, claim, shows = worst.relative_error, spec.precision, None
    if error is not None:
        shows = next((name for limit, name in SHOWN if error <= limit), "something coarser than bf16")
        if shows == "TF32 or fp16" and claim in ("tf32", "fp16"):  # equally many bits, so the claim names them
            shows = claim.replace("tf", "TF")
    return {"size": worst.size, "relative_error": error, "claims": claim, "shows": shows, "reason": worst.reason}


def fault(rounding: dict[str, Any] | None) -> str | None:
    """Return why a run does not compute in the precision that it claims; None if it does, or if that is not known."""
    error, claim = (rounding["relative_error"], rounding["claims"]) if rounding else (None, "")
    if rounding is None or error is None or error <= LIMITS.get(claim, math.inf):
        return None
    size, shows = rounding["size"], rounding["shows"]
    instead = ", or ask for tf32" if claim == "fp32" and shows.startswith("TF32") else ""
    return (
        f"{claim} was asked for, and a product of {size:,} x {size:,} matrices has the rounding of {shows}: its "
        f"relative error is {error:.1e}, and in {claim} it is {LIMITS[claim]:g} at most. So the figure would stand "
        "under a wrong precision. Look for a variable or a setting that lowers it (the record's "
        f"environment.variables names those that are set, such as NVIDIA_TF32_OVERRIDE){instead}"
    )


def warnings(rounding: dict[str, Any] | None) -> list[str]:
    """Return the warning about a run that was to compute in TF32, and whose products have all digits of fp32."""
    error = rounding["relative_error"] if rounding and rounding["claims"] == "tf32" else None
    if error is None or error > LIMITS["fp32"]:
        return []
    return [
        f"tf32 was asked for, and a large product has the rounding of fp32 (relative error {error:.1e}): the device "
        "did not use TF32, so this is a figure of fp32; unset NVIDIA_TF32_OVERRIDE, or ask for fp32"
    ]

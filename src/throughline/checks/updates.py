"""Judge the updates of an equivalence check: what a run adds to each tensor, against what the reference adds to it.

The difference of a tensor is the norm of (its update - the reference's), relative to the norm of the reference's. A
tensor that is never updated has the difference 1, whatever its losses are.
"""

from collections.abc import Collection, Mapping
from typing import Any

from throughline import workloads
from throughline.records.checks import TensorUpdate, Updates
from throughline.spec import RunSpec

TOLERANCE = {"adam": 5e-4, "adamw": 5e-4, "bertadam": 5e-4, "lamb": 2e-3, "sgd": 1e-4}
"""The largest difference of an update that is allowed in fp32 with each optimizer, apart from the rounding of the
weights.

docs/explanation/method-numerical-equivalence.md has what we measured: honest runs are at least five times below,
products that are rounded to TF32 at least twice above.
"""
LOWER = {"tf32": 0.5, "fp16": 0.5, "bf16": 0.7, "fp8": 0.7}
"""The same in lower precisions, with every optimizer.

There the rounding of the products is a large part of a small gradient, and Adam and LAMB turn even the smallest
gradients into steps of full size. So this only shows that a tensor is not updated, or in another direction.
"""
MOST = 0.7
"""No tolerance is larger: a tensor that is never updated differs by 1."""
ROUNDING = 2.0**-24
"""The largest relative error of a number that is rounded to fp32. A weight is rounded at every step."""
NO_GRADIENT = "the true gradient is zero, so rounding alone decides what is added"
UNKNOWN = "the reference trains it, and the framework shows no tensor that holds it"
UNSEEN = "the update is not above the rounding of the weights themselves in fp32"


def judged(
    stated: Mapping[str, Any] | None, spec: RunSpec, still: Collection[str], moved: Collection[str] = ()
) -> Updates:
    """Judge the key `equivalence` of a record. still: the tensors whose true gradient is zero; moved: all others."""
    if stated is None or stated["reason"]:
        return Updates(verdict="not compared", reason=stated["reason"] if stated else "its record has no updates")
    tensors: dict[str, TensorUpdate] = {}
    lacking = [name for name in moved if name not in stated["updates"]]
    left_out: dict[str, list[str]] = {UNKNOWN: lacking} if lacking else {}
    by_products = TOLERANCE[spec.optimizer.name] if spec.precision == "fp32" else LOWER[spec.precision]
    tolerated = min(MOST, by_products * workloads.of(spec.model).update_rounding)
    for name, norms in stated["updates"].items():
        lost = spec.steps.timed * ROUNDING * norms["weights"]
        if name in still:
            left_out.setdefault(NO_GRADIENT, []).append(name)
        elif lost and lost > (1 - MOST) * norms["update"]:
            left_out.setdefault(UNSEEN, []).append(name)
        elif norms["update"] or norms["difference"]:
            share = lost / norms["update"] if norms["update"] else 0.0
            finite = norms["difference"] is not None and norms["update"]
            difference = norms["difference"] / norms["update"] if finite else None
            tensors[name] = TensorUpdate(difference=difference, tolerance=tolerated + share)
    return _verdict(tensors, left_out)


def _verdict(tensors: dict[str, TensorUpdate], left_out: dict[str, list[str]]) -> Updates:
    """Return the verdict on these tensors. The worst is the one that is furthest off for what is tolerated."""
    if not tensors:
        return Updates(verdict="not compared", reason="; ".join(left_out) or "no weight is updated", left_out=left_out)
    name, worst = max(tensors.items(), key=lambda item: item[1].excess)
    reason = None
    if worst.difference is None:
        reason = f"the update of {name} is not finite, or the reference leaves {name} as it is"
    elif worst.excess > 1:
        reason = f"the update of {name} is off by {worst.difference:.1e}, and {worst.tolerance:.1e} is tolerated"
    return Updates(
        verdict="different" if reason else "equal",
        reason=reason,
        worst=name,
        difference=worst.difference,
        tolerance=worst.tolerance,
        tensors=tensors,
        left_out=left_out,
    )

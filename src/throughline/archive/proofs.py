"""Derive the verdicts of checks again: numerical equivalence, convergence, and searches for the largest batch."""

import math
from itertools import takewhile
from pathlib import Path
from typing import Any

from throughline.archive.differences import Difference, Found, between
from throughline.archive.opening import as_json
from throughline.archive.reading import PLAIN
from throughline.records import ConvergenceVerdict, Curve, Equivalence, MaxBatch
from throughline.records.checks import Comparison, Updates
from throughline.spec import Topology


def of_proof(name: str, proof: Equivalence, folder: Path) -> Found:
    """Yield what an equivalence check states otherwise than the records of its runs, which lie in `folder`."""
    names = [name for kept in (proof.frameworks, proof.precisions) for key in kept for name in (key, *kept[key])]
    if odd := [text for text in names if not PLAIN.fullmatch(text)]:
        yield Difference(name, "", f"{odd[0][:80]!r} is no name")  # a record has a name that is made of these
        return
    for framework, by_topology in proof.frameworks.items():
        for topology, compared in by_topology.items():
            where, record = f"frameworks.{framework}.{topology}", folder / f"{framework}_{topology}.json"
            expected = _expected(proof, topology)
            yield from _comparison(name, where, compared, record, expected, compared.tolerance or proof.tolerance)
        for precision, compared in proof.precisions.get(framework, {}).items():
            where = f"precisions.{framework}.{precision}"
            records = sorted(folder.glob(f"{framework}_*_{precision}.json"))
            topology = records[0].stem.removeprefix(f"{framework}_").split("_")[0] if records else ""
            in_fp32 = by_topology[topology].loss if topology in by_topology else None
            expected = None if compared.skipped_steps else in_fp32  # a reference that skips is not kept
            record = records[0] if records else folder / f"{framework}_{precision}.json"
            yield from _comparison(name, where, compared, record, expected, compared.tolerance or proof.tolerance)


def _expected(proof: Equivalence, topology: str) -> list[float] | None:
    """Return the reference's losses for a topology. With a layout over several devices, it has fewer replicas."""
    world = Topology.parse(topology).world
    kept = proof.reference_loss
    return kept.get(str(world)) or (next(iter(kept.values())) if len(kept) == 1 else None)


def _comparison(
    name: str, where: str, compared: Comparison, record: Path, expected: list[float] | None, tolerance: float
) -> Found:
    if not compared.loss:  # there was nothing to compare, and the reason says why
        return
    try:
        losses = _means(as_json(record))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        yield Difference(name, where, f"the archive lacks the record {record.name} behind it")
        return
    yield from between(name, compared.loss, losses[: len(compared.loss)], f"{where}.loss")
    if expected:
        difference = [abs(a - b) / abs(b) for a, b in zip(compared.loss, expected, strict=False)]
        yield from between(name, compared.difference, difference, f"{where}.difference")
    yield from between(
        name, compared.largest_difference, max(compared.difference, default=None), f"{where}.largest_difference"
    )
    off = (compared.largest_difference or 0.0) > tolerance
    off |= bool(compared.updates and _updates_differ(compared.updates))
    if compared.verdict == "equal" and off:
        yield Difference(name, f"{where}.verdict", "it states equal, and a difference is larger than its tolerance")


def _updates_differ(updates: Updates) -> bool:
    return any(tensor.excess > 1 for tensor in updates.tensors.values())


def _means(record: Any) -> list[float]:
    """Return the mean of all ranks' losses at every step, before the first that is not finite."""
    every = zip(*(rank["loss"] for rank in record["ranks"]), strict=True)
    finite = takewhile(lambda step: None not in step, every)
    return [math.fsum(step) / len(step) for step in finite]


def of_search(name: str, search: MaxBatch) -> Found:
    """Yield a largest size that the tries of a search do not bear out."""
    size, largest_of = ("batch", "largest_batch_per_device") if search.quantity == "batch" else ("size", "largest_size")
    for framework, largest in search.frameworks.items():
        fits = [getattr(one, size) for one in largest.tries if one.status == "fits"]
        if largest.status == "ok":
            stated = getattr(largest, largest_of)
            yield from between(name, stated, max(fits, default=None), f"frameworks.{framework}.{largest_of}")


def of_curve(name: str, verdict: ConvergenceVerdict, curve: Curve | None) -> Found:
    """Yield what the verdict of a convergence check states otherwise than its curve."""
    if curve is None:
        yield Difference(name, "", "the archive lacks the curve behind it")
        return
    looked = {look.step: look.figures for look in curve.curve}
    for compared in verdict.compared:
        where = f"compared.{compared.quantity}.{compared.step}"
        yield from between(name, compared.value, looked.get(compared.step, {}).get(compared.quantity), where)
    failed = [compared for compared in verdict.compared if not compared.passes]
    if verdict.verdict == "pass" and (failed or not verdict.compared or curve.status != "ok"):
        yield Difference(name, "verdict", "it states pass, and not all of its comparisons pass")
    last = curve.curve[-1].model_dump() if curve.curve else None
    yield from between(name, verdict.last and verdict.last.model_dump(), last, "last")

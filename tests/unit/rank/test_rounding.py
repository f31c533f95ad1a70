"""Which type a large product shows: measured on operands with the bits of each type, and what a run comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import training_fixtures
from throughline.launch import outcome, survey
from throughline.launch import rounding as judged
from throughline.messages import Rounding
from throughline.rank import rounding

SIZE = 512


def cut(matrix: Any, bits: int, how: Callable[[Any], Any] = np.rint) -> Any:
    """Return the matrix with so many significant bits in each number, rounded or cut off."""
    fraction, exponent = np.frexp(matrix.astype(np.float64))
    return np.ldexp(how(np.ldexp(fraction, bits)), exponent - bits)


def one_by_one(left: Any, right: Any) -> Any:
    """Return the product with every sum in fp32, one term after the other: the largest error that fp32 can have."""
    total = np.zeros((len(left), right.shape[1]), np.float32)
    for place in range(len(right)):
        total += left[:, place : place + 1] * right[place]
    return total


MULTIPLY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "fp32": ("fp32", lambda left, right: left @ right),
    "fp32, one by one": ("fp32", one_by_one),
    "tf32, rounded": ("TF32 or fp16", lambda left, right: cut(left, 11) @ cut(right, 11)),
    "tf32, cut off": ("TF32 or fp16", lambda left, right: cut(left, 11, np.trunc) @ cut(right, 11, np.trunc)),
    "fp16": ("TF32 or fp16", lambda left, right: cut(cut(left, 11) @ cut(right, 11), 11)),
    "bf16, product in fp32": ("bf16", lambda left, right: cut(left, 8) @ cut(right, 8)),
    "bf16": ("bf16", lambda left, right: cut(cut(left, 8) @ cut(right, 8), 8)),
    "fp8": ("something coarser than bf16", lambda left, right: cut(left, 4) @ cut(right, 4)),
}


def measured(rounded: Rounding | None) -> Any:
    return replace(training_fixtures.measured(), rounding=rounded)


def told(error: float | None, precision: Any = "fp32", reason: str | None = None) -> dict[str, Any]:
    return judged.summary(training_fixtures.spec(precision=precision), [measured(Rounding(SIZE, error, reason))])


@pytest.mark.parametrize("name", MULTIPLY)
def test_an_error_shows_the_type_of_the_product(name: str) -> None:
    expected, multiply = MULTIPLY[name]
    rank: Any = SimpleNamespace(kind="cpu", multiplied=multiply)
    found = rounding.probe(rank)
    assert (found.size, found.reason) == (SIZE, None) and found.relative_error is not None
    assert told(found.relative_error)["shows"] == expected
    assert bool(judged.fault(told(found.relative_error))) == (expected != "fp32")


@pytest.mark.parametrize(
    ("error", "precision", "shows", "invalid"),
    [
        (3e-7, "fp32", "fp32", False),
        (2.9e-4, "fp32", "TF32 or fp16", True),
        (2.9e-4, "tf32", "TF32", False),
        (3.6e-4, "fp16", "fp16", False),
        (2.9e-3, "fp16", "bf16", True),
        (2.9e-3, "tf32", "bf16", True),
        (2.9e-3, "bf16", "bf16", False),
        (3e-2, "bf16", "something coarser than bf16", True),
        (3e-2, "fp8", "something coarser than bf16", False),
    ],
)
def test_a_claim_holds_if_the_product_is_rounded_as_it_says(
    error: float, precision: str, shows: str, invalid: bool
) -> None:
    found = told(error, precision)
    assert (found["claims"], found["shows"]) == (precision, shows)
    assert bool(judged.fault(found)) == invalid


def test_the_rank_with_the_largest_error_decides_and_the_run_is_invalid() -> None:
    spec = training_fixtures.spec(topology="1n2g")
    reports = {0: training_fixtures.report(), 1: training_fixtures.report(1)}
    errors = {0: 3e-7, 1: 2.9e-4}
    probed = {
        rank: replace(told_by, measured=replace(told_by.measured, rounding=Rounding(SIZE, errors[rank])))
        for rank, told_by in reports.items()
        if told_by.measured
    }
    found = outcome.assemble(spec, probed, 2)
    assert (found.status, found.samples_per_s) == ("invalid", None) and found.rounding is not None
    assert found.rounding["relative_error"] == 2.9e-4
    assert "fp32 was asked for" in str(found.reason) and "2.9e-04" in str(found.reason)
    assert outcome.assemble(spec, reports, 2).status == "ok", "ranks that do not tell are no fault"
    assert "rounding" not in outcome.assemble(spec, reports, 2).as_record()


def test_tf32_that_is_not_used_is_a_warning() -> None:
    assert "unset NVIDIA_TF32_OVERRIDE" in judged.warnings(told(3e-7, "tf32"))[0]
    assert not judged.warnings(told(2.9e-4, "tf32")) and not judged.warnings(told(3e-7, "bf16"))


def broken(left: Any, right: Any) -> Any:
    raise MemoryError("no room for it\nand more")


@pytest.mark.parametrize(
    ("multiply", "reason"),
    [
        (broken, "MemoryError: no room for it"),
        (lambda left, right: None, "no product for it in this precision"),
        (lambda left, right: left @ right * np.float32(np.inf), "not finite"),
    ],
)
def test_a_product_that_cannot_be_had_is_a_reason_and_no_fault(multiply: Any, reason: str) -> None:
    rank: Any = SimpleNamespace(kind="cpu", multiplied=multiply)
    found = rounding.probe(rank)
    assert found.relative_error is None and reason in str(found.reason)
    entry = told(None, "fp32", found.reason)
    assert (entry["shows"], entry["reason"]) == (None, found.reason)
    assert judged.fault(entry) is None and not judged.warnings(entry)


def test_ranks_on_gpus_compute_in_tf32_only_if_they_are_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(survey.TF32, raising=False)
    off = {"NVIDIA_TF32_OVERRIDE": "0"}
    for precision, kind, expected in (
        ("fp32", "cuda", off), ("bf16", "cuda", off), ("tf32", "cuda", {}), ("fp32", "cpu", {}),
    ):  # fmt: skip
        assert survey.tf32(training_fixtures.spec(precision=precision), kind) == expected
    monkeypatch.setenv(survey.TF32, "1")
    assert survey.tf32(training_fixtures.spec(), "cuda") == {}, "the user's own setting stays, and the product tells"

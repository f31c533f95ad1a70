"""The updates of an equivalence check, in a library that keeps the reference's tensors in another layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import training_fixtures
from throughline.frameworks.rank import Rank
from throughline.messages import Update
from throughline.rank.updates import UNKNOWN, Expected

DRAW = np.random.default_rng(3)
WEIGHTS = {name: DRAW.normal(size=(4, 3)).astype(np.float32) for name in ("query", "key")}
WEIGHTS["bias"] = np.zeros(4, np.float32)
UPDATES = {name: DRAW.normal(size=array.shape).astype(np.float32) for name, array in WEIGHTS.items()}


class Turned(Rank):
    """A library that keeps query and key as one transposed matrix, and fills it up with a row of zeros."""

    def __init__(self) -> None:
        super().__init__(training_fixtures.spec(), 0, 0, 1, "cpu")
        self.held: dict[str, Any] = {}

    def memory(self) -> dict[str, Any]:
        return {}

    def versions(self) -> dict[str, str | None]:
        return {}

    def load(self, weights: dict[str, Any]) -> None:
        one = np.concatenate([weights["query"], weights["key"], np.zeros((1, 3), np.float32)]).T
        self.held = {"qk": one.copy(), "bias": weights["bias"].copy()}

    def snapshot(self) -> dict[str, Any]:
        return self.held


def trained(change: dict[str, float], rank: Turned | None = None) -> dict[str, Update]:
    """Train as the reference, but with these factors on the updates of some tensors; return what is found."""
    rank = rank or Turned()
    expected = Expected(rank, WEIGHTS, UPDATES)
    assert rank.held["qk"][0, 0] == WEIGHTS["query"][0, 0], "it starts from other weights"
    after = {name: WEIGHTS[name] + change.get(name, 1.0) * UPDATES[name] for name in WEIGHTS}
    rank.load(after)
    found = expected.compared(rank)
    assert expected.reason is None
    return {update.name: update for update in found}


def test_every_tensor_is_compared_under_the_references_name() -> None:
    found = trained({"key": 0.0, "bias": 1.5})
    assert sorted(found) == sorted(WEIGHTS)
    for name, factor in (("query", 0.0), ("key", 1.0), ("bias", 0.5)):
        norm = float(np.linalg.norm(UPDATES[name].astype(float)))
        assert found[name].update == pytest.approx(norm, rel=1e-6)
        assert found[name].difference == pytest.approx(factor * norm, rel=1e-6, abs=1e-6), name
        assert found[name].weights == pytest.approx(float(np.linalg.norm(WEIGHTS[name])), rel=1e-6)


def test_an_update_that_is_not_finite_has_no_difference() -> None:
    found = trained({"key": float("nan")})
    assert found["key"].difference is None and found["query"].difference == pytest.approx(0, abs=1e-6)


class Deaf(Turned):
    """A library that ignores what it is asked to load."""

    def load(self, weights: dict[str, Any]) -> None:
        super().load({name: np.full_like(array, 0.25) for name, array in weights.items()})


class Blind(Turned):
    def snapshot(self) -> dict[str, Any]:
        raise NotImplementedError


def test_what_cannot_be_compared_says_why_and_starts_from_the_weights_all_the_same() -> None:
    deaf = Deaf()
    expected = Expected(deaf, WEIGHTS, UPDATES)
    assert (expected.compared(deaf), expected.reason) == ([], UNKNOWN)
    blind = Blind()
    expected = Expected(blind, WEIGHTS, UPDATES)
    assert expected.compared(blind) == []
    assert expected.reason == "torch cannot show its weights: BertInTorch has no `snapshot`"
    assert blind.held["qk"][0, 0] == WEIGHTS["query"][0, 0]

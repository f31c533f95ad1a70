"""`options.sharding`: every kind trains as without sharding, and each rank holds only the parts that it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_sharding import CASES, GROUPS, KINDS, OVERFLOWS, kinds

import rank_helpers
import training_fixtures
from throughline.frameworks.rank import load
from throughline.workloads import Unsupported

HELPER = Path(__file__).with_name("torch_sharding.py")
TRAININGS = [
    (group, case, kind) for group, cases in GROUPS.items() for case in cases for kind in kinds(case) if kind != "none"
]
Told = dict[str, list[dict[tuple[str, str], dict[str, Any]]]]
"""Group of processes -> the results of each rank, by case and kind of sharding."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return rank_helpers.told(HELPER, tmp_path_factory.mktemp("sharding"), {group: int(group[0]) for group in GROUPS})


@pytest.mark.parametrize(("group", "case", "kind"), TRAININGS, ids=lambda one: one)
def test_what_is_split_trains_as_without(told: Told, group: str, case: str, kind: str) -> None:
    """Losses are compared on every rank, and weights too, except with bf16: Adam makes full steps even from the
    smallest gradients, where rounding decides."""
    half = CASES[case].get("precision") == "bf16"
    for number, rank in enumerate(told[group]):
        split, whole = rank[case, kind], rank[case, "none"]
        np.testing.assert_allclose(split["losses"], whole["losses"], rtol=3e-4 if half else 1e-6)
        assert split["skipped"] == whole["skipped"] == (case == OVERFLOWS)
        assert split["weights"].keys() == whole["weights"].keys()
        for name in () if half else split["weights"]:
            np.testing.assert_allclose(split["weights"][name], whole["weights"][name], atol=1e-6, err_msg=name)
        if case == "hf-loop":  # what the library's model does in a step is not our code
            continue
        assert split["read"] == [], "a step waits for a value"
        assert split["buffer"] == [float(number)] * 3, "no rank sends its running statistics in a step"


def test_what_a_rank_holds_after_a_step(told: Told) -> None:
    """Compare how many numbers (of 4 bytes) weights, gradients and states hold."""
    kept, world = {kind: [rank["adamw", kind]["held"] for rank in told["2"]] for kind in KINDS}, 2
    (parameters,) = {rank["weights"] for rank in kept["none"]}
    whole = {"weights": parameters, "gradients": parameters, "states": 2 * parameters}
    assert kept["none"] == [whole] * world
    for rank in kept["zero1"]:
        assert (rank["weights"], rank["gradients"]) == (parameters, parameters)
    assert sum(rank["states"] for rank in kept["zero1"]) == 2 * parameters
    # The states of one tensor are on one rank. These tensors are small enough for an even distribution.
    assert max(rank["states"] for rank in kept["zero1"]) < 1.1 * 2 * parameters / world
    for kind in ("shard_grad_op", "full_shard"):
        for name, numbers in whole.items():
            assert sum(rank[name] for rank in kept[kind]) == numbers
            assert max(rank[name] for rank in kept[kind]) < 1.01 * numbers / world


def test_an_exchange_in_bf16_rounds_gradients_and_nothing_else(told: Told) -> None:
    first = told["2"][0]["reduce_dtype", "none"]["weights"]
    for rank in told["2"]:
        half, full = rank["reduce_dtype", "none"], rank["adamw", "none"]
        assert half["losses"][0] == full["losses"][0]
        assert half["losses"] != full["losses"]
        np.testing.assert_allclose(half["losses"], full["losses"], rtol=3e-4)
        assert (half["settings"]["reduce_dtype"], "reduce_dtype" in full["settings"]) == ("bf16", False)
        assert half["read"] == []
        for name, array in half["weights"].items():
            assert array.dtype == np.float32
            np.testing.assert_array_equal(array, first[name], "ranks hold other weights")


def test_a_record_says_what_is_shared_out(told: Told) -> None:
    rank = told["2"][0]
    words = {kind: rank["adamw", kind]["settings"]["sharding"] for kind in KINDS}
    assert words["none"] == "none"
    assert "8 bytes" in words["zero1"]
    assert all("16 bytes" in words[kind] for kind in ("shard_grad_op", "full_shard"))
    assert len(set(words.values())) == 4
    halves = rank["halves", "full_shard"]["settings"]["sharding"]
    assert halves == words["full_shard"] + "; blocks are gathered in bfloat16, and gradients summed in float32"


@pytest.mark.parametrize(
    ("world", "options", "why"),
    [
        (1, {}, "needs several"),
        (2, {"tensor_parallel": 2}, "needs several"),
        (2, {"gradient_sync": False}, "options.gradient_sync has to be true"),
        (2, {"reduce_dtype": "bf16"}, "in fp32"),
    ],
)
@pytest.mark.parametrize("kind", KINDS[2:])
def test_what_cannot_be_shared_out_is_unsupported(kind: str, world: int, options: dict[str, Any], why: str) -> None:
    spec = training_fixtures.spec(topology=f"1n{world}g", options={"sharding": kind, **options})
    with pytest.raises(Unsupported, match=why):
        load("torch")(spec, 0, 0, world, "cpu").device()

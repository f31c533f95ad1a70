"""`options.sharding`: every kind trains as without sharding, and each rank holds only the parts that it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rank_helpers
import training_fixtures
from throughline.frameworks.rank import load
from throughline.workloads import Unsupported

HELPER = Path(__file__).with_name("torch_sharding.py")
KINDS = ("none", "zero1", "shard_grad_op", "full_shard")
CLIPPED = {"gradient_accumulation": 2, "clip": "global_norm"}
CASES: dict[str, dict[str, Any]] = {
    "adamw": {"model": "gpt2-tiny", "options": CLIPPED},
    "adam": {"precision": "bf16", "optimizer": {"name": "adam"},
        "options": {"clip": "norm", "activation_checkpointing": True}},
    "tensor_parallel": {"model": "gpt2-tiny", "precision": "fp16",
        "options": {"tensor_parallel": 2, "clip": "global_norm"}},
    "hf-loop": {"framework": "hf-loop", "model": "gpt2-tiny", "options": CLIPPED},
    "lamb": {"precision": "fp16", "optimizer": {"name": "lamb"}, "options": {"clip": "value"}, "overflows": True},
    "halves": {"precision": "bf16", "options": CLIPPED, "gathered": "bfloat16"},
    "reduce_dtype": {"model": "gpt2-tiny", "options": {**CLIPPED, "reduce_dtype": "bf16"}},
}  # fmt: skip
FITTING = {"adamw": KINDS, "tensor_parallel": KINDS[:2], "halves": ("none", "full_shard"), "reduce_dtype": KINDS[:1]}


def kinds(case: str) -> tuple[str, ...]:
    """Return the kinds of sharding that fit a case. `shard_grad_op` splits the same parts as `full_shard`, so one case
    for it is enough."""
    return FITTING.get(case, ("none", "zero1", "full_shard"))


GROUPS = {
    "2": ("adamw", "adam", "lamb", "halves", "reduce_dtype", "hf-loop"),
    "4": ("adamw",),
    "4 in pairs": ("tensor_parallel",),
}
"""Group of processes -> the cases that they train."""
TRAININGS = [
    (group, case, kind) for group, cases in GROUPS.items() for case in cases for kind in kinds(case) if kind != "none"
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of all ranks. One helper process makes the results for all tests of this module."""
    made = tmp_path_factory.mktemp("sharding")
    cases = {
        group: {
            f"{name}_{kind}": {**CASES[name], "options": {**CASES[name]["options"], "dropout": 0.0, "sharding": kind}}
            for name in names
            for kind in kinds(name)
        }
        for group, names in GROUPS.items()
    }
    (made / "cases.json").write_text(json.dumps(cases))
    rank_helpers.run(HELPER, made / "cases.json", made)
    return made


def told(folder: Path, group: str, case: str) -> list[dict[str, Any]]:
    """Return the results of every rank for a training."""
    return [json.loads((folder / f"{group}_{rank}.json").read_text())[case] for rank in range(int(group[0]))]


@pytest.mark.parametrize(("group", "case", "kind"), TRAININGS, ids=lambda one: one)
def test_what_is_split_trains_as_without(folder: Path, group: str, case: str, kind: str) -> None:
    """Losses are compared on every rank, and weights too, except with bf16: Adam makes full steps even from the
    smallest gradients, where rounding decides."""
    pairs = zip(told(folder, group, f"{case}_{kind}"), told(folder, group, f"{case}_none"), strict=True)
    half = CASES[case].get("precision") == "bf16"
    for rank, (split, whole) in enumerate(pairs):
        np.testing.assert_allclose(split["losses"], whole["losses"], rtol=3e-4 if half else 1e-6)
        assert split["skipped"] == whole["skipped"] == ("overflows" in CASES[case])
        ends = [np.load(folder / f"{group}_{case}_{one}_{rank}.npz") for one in (kind, "none")]
        assert ends[0].files == ends[1].files
        for name in () if half else ends[0].files:
            np.testing.assert_allclose(ends[0][name], ends[1][name], atol=1e-6, err_msg=name)
        if case == "hf-loop":  # what the library's model does in a step is not our code
            continue
        assert split["read"] == [], "a step waits for a value"
        assert split["buffer"] == [float(rank)] * 3, "no rank sends its running statistics in a step"


@pytest.mark.parametrize("group", ["2", "4"])
def test_what_a_rank_holds_after_a_step(folder: Path, group: str) -> None:
    """Compare how many numbers (of 4 bytes) weights, gradients and states hold."""
    kept, world = {kind: [rank["held"] for rank in told(folder, group, f"adamw_{kind}")] for kind in KINDS}, int(group)
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


def test_an_exchange_in_bf16_rounds_gradients_and_nothing_else(folder: Path) -> None:
    for rank, (half, full) in enumerate(
        zip(*(told(folder, "2", f"{case}_none") for case in ("reduce_dtype", "adamw")), strict=True)
    ):
        assert half["losses"][0] == full["losses"][0]
        assert half["losses"] != full["losses"]
        np.testing.assert_allclose(half["losses"], full["losses"], rtol=3e-4)
        assert (half["settings"]["reduce_dtype"], "reduce_dtype" in full["settings"]) == ("bf16", False)
        assert half["read"] == []
        weights = [np.load(folder / f"2_reduce_dtype_none_{one}.npz") for one in (0, rank)]
        for name in weights[0].files:
            assert weights[0][name].dtype == np.float32
            np.testing.assert_array_equal(weights[0][name], weights[1][name], "ranks hold other weights")


def test_a_record_says_what_is_shared_out(folder: Path) -> None:
    words = {kind: told(folder, "2", f"adamw_{kind}")[0]["settings"]["sharding"] for kind in KINDS}
    assert words["none"] == "none"
    assert "8 bytes" in words["zero1"]
    assert all("16 bytes" in words[kind] for kind in ("shard_grad_op", "full_shard"))
    assert len(set(words.values())) == 4
    halves = told(folder, "2", "halves_full_shard")[0]["settings"]["sharding"]
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

"""Replicas, batches and samples of an optimizer step."""

from __future__ import annotations

import pytest

import training_fixtures
from throughline.files import UserError
from throughline.spec import Layout, StepSize, Topology
from throughline.spec.topology import nearest

TWELVE = Topology.parse("3n4g")


@pytest.mark.parametrize(
    ("layout", "batch", "scaling", "gradient_accumulation", "expected", "samples"),
    [
        (Layout(), 8, "weak", 1, StepSize(12, 8), 96),
        (Layout(), 8, "weak", 5, StepSize(12, 8, 5), 480),
        (Layout(tensor_parallel=4), 8, "weak", 1, StepSize(3, 8), 24),
        (Layout(), 96, "strong", 1, StepSize(12, 8), 96),
        (Layout(tensor_parallel=4), 96, "strong", 2, StepSize(3, 32, 2), 192),
        (Layout(sharding="full_shard"), 8, "weak", 1, StepSize(12, 8), 96),
    ],
)
def test_samples_per_step(
    layout: Layout, batch: int, scaling: str, gradient_accumulation: int, expected: StepSize, samples: int
) -> None:
    step = StepSize.of(TWELVE, layout, batch, scaling, gradient_accumulation)
    assert (step, step.global_batch) == (expected, samples)


def test_what_does_not_divide_is_an_error() -> None:
    with pytest.raises(UserError, match="the 12 devices of 3n4g do not divide into replicas of 5"):
        StepSize.of(TWELVE, Layout(tensor_parallel=5), 8)
    with pytest.raises(UserError, match="the 6 replicas of 3n4g do not divide into 4 groups"):
        StepSize.of(TWELVE, Layout(tensor_parallel=2, sharding="full_shard", hybrid_shard_groups=4), 8)
    with pytest.raises(UserError, match="the 12 replicas of 3n4g do not divide into sets of 5"):
        StepSize.of(TWELVE, Layout(expert_parallel=5), 8)
    with pytest.raises(UserError, match="the 2 replicas of 3n4g do not divide into 3 groups"):
        StepSize.of(TWELVE, Layout(tensor_parallel=6, sharding="full_shard", hybrid_shard_groups="nodes"), 8)
    with pytest.raises(UserError, match="a batch of 100 does not divide over the 12 replicas of 3n4g"):
        StepSize.of(TWELVE, Layout(), 100, "strong")


@pytest.mark.parametrize(
    ("topology", "batch", "micro_batches"),
    [("1n1g", 32, 2112), ("1n8g", 48, 176), ("4n8g", 32, 66), ("4n8g", 48, 44), ("4n8g", 64, 33), ("4n8g", 96, 22)],
)
def test_micro_batches_follow_from_the_samples_of_a_step(topology: str, batch: int, micro_batches: int) -> None:
    size = StepSize.of(Topology.parse(topology), Layout(), batch).accumulating(67584)
    assert (size.gradient_accumulation, size.global_batch) == (micro_batches, 67584)


def test_samples_that_do_not_divide_name_the_nearest_that_do() -> None:
    size = StepSize.of(TWELVE, Layout(), 8)
    with pytest.raises(UserError, match="12 replicas of 8 compute 96 samples at once, and 100 is no mult") as caught:
        size.accumulating(100)
    assert caught.value.next_step == "choose 96 or 192"
    assert nearest([size], 95) == "96", "0 samples are no step"
    assert nearest([size, StepSize(12, 20)], 1000) == "960 or 1,440"


def test_a_specification_and_its_json_have_the_same_size() -> None:
    spec = training_fixtures.spec(
        topology="1n4g", scaling="strong", options={"tensor_parallel": 2, "gradient_accumulation": 3}
    )
    assert spec.size == StepSize(2, 2, 3)

"""What is special about TensorFlow: threads, one trace for all steps, overflows in fp16, compiled, recomputed steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

import training_fixtures
from framework_lab import helped
from throughline.checks import reference
from throughline.rank.data import Manifest


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of one process for all tests, because TensorFlow takes long to start."""
    folder = tmp_path_factory.mktemp("tensorflow")
    spec = training_fixtures.spec(framework="tensorflow", options={"dropout": 0.0})
    reference.initial(spec, Manifest(training_fixtures.corpus(folder), "corpus"), folder / "weights.npz")
    (words,) = helped("tensorflow", "tensorflow_steps.py", json.dumps(spec.values()), folder / "weights.npz")
    return dict(words)


def test_no_more_threads_compute_than_the_run_says(found: dict[str, Any]) -> None:
    assert found["busy"] <= 1


def test_a_step_is_traced_once(found: dict[str, Any]) -> None:
    assert found["traces"] == 1


def test_a_rate_of_the_schedule_reaches_the_graph(found: dict[str, Any]) -> None:
    assert found["still"]


def test_on_gpus_the_loader_copies_and_nccl_exchanges(found: dict[str, Any]) -> None:
    """TensorFlow blocks the thread that copies to a GPU, and would exchange over gRPC by itself.

    Only what lies in memory of its own allocator goes through pinned memory.
    """
    assert found["loaded"] == ["DeepCopy CPU:0"] * 2 + ["Identity CPU:1"] * 2
    assert found["exchanged"] == ["NCCL", "NCCL"]


def test_memory_that_is_refused_is_recognized(found: dict[str, Any]) -> None:
    assert found["out_of_memory"] is True


@pytest.mark.parametrize(
    ("option", "tolerance"), [("activation_checkpointing", 2e-6), ("compile", 2e-6), ("fp16", 1e-3)]
)
def test_options_train_the_same(found: dict[str, Any], option: str, tolerance: float) -> None:
    assert found[option] == pytest.approx(found["plain"], rel=tolerance)
    assert option != "fp16" or found[option] != found["plain"]


def test_a_recomputation_draws_the_same_dropout(found: dict[str, Any]) -> None:
    assert found["dropped again"] == pytest.approx(found["dropped"], rel=2e-6) != found["plain"]


def test_a_step_that_overflows_is_skipped_and_halves_the_scale(found: dict[str, Any]) -> None:
    assert found["overflow"] == [1, True, True]

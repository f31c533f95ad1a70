"""What is special about JAX: optax's optimizers equal the reference's; recomputed steps, checkpoints and overflows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from jax_steps import DECAYS, UPDATES, arrays

import training_fixtures
from framework_lab import helped
from throughline import frameworks
from throughline.checks import reference
from throughline.rank.data import Manifest
from throughline.spec import Optimizer, values

OPTIMIZERS = [
    (Optimizer(name="adamw", learning_rate=0.01, weight_decay=0.1, epsilon=1e-3), "global_norm"),
    (Optimizer(name="adam", learning_rate=0.01, weight_decay=0.1, epsilon=1e-3), "none"),
    (Optimizer(name="lamb", learning_rate=0.01, weight_decay=0.1, epsilon=1e-3), "norm"),
    (Optimizer(name="sgd", learning_rate=0.01, weight_decay=0.1, momentum=0.9), "value"),
    (Optimizer(name="bertadam", learning_rate=0.01, weight_decay=0.1, epsilon=1e-3), "none"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of one process for all tests, because JAX takes long to start and to compile."""
    folder = tmp_path_factory.mktemp("jax")
    spec = training_fixtures.spec(framework="jax", options={"dropout": 0.1})
    reference.initial(spec, Manifest(training_fixtures.corpus(folder), "corpus"), folder / "weights.npz")
    optimizers = json.dumps([(values(settings), clip) for settings, clip in OPTIMIZERS])
    files = [str(folder / "weights.npz"), optimizers, str(folder / "updated.npz")]
    (words,) = helped("jax", "jax_steps.py", json.dumps(spec.values()), *files)
    return {**words, "updated": dict(np.load(folder / "updated.npz"))}


@pytest.mark.parametrize("number", range(len(OPTIMIZERS)), ids=lambda number: OPTIMIZERS[number][0].name)
def test_optimizers_and_clipping_are_those_of_the_reference(found: dict[str, Any], number: int) -> None:
    settings, clip = OPTIMIZERS[number]
    weights = [torch.from_numpy(array).double() for array in arrays(0)]
    moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]
    for step in range(1, UPDATES + 1):
        gradients = [torch.from_numpy(array / step**4).double() for array in arrays(step)]
        reference._clip(gradients, clip)
        for weight, gradient, moment, decays in zip(weights, gradients, moments, DECAYS, strict=True):
            own = settings if decays else replace(settings, weight_decay=0.0)
            reference._update(weight, gradient, *moment, step, own)
    for place, weight in enumerate(weights):
        np.testing.assert_allclose(found["updated"][f"{number} {place}"], weight.numpy(), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("option", ["activation_checkpointing", "scaled"])
def test_options_train_the_same(found: dict[str, Any], option: str) -> None:
    assert found[option] == pytest.approx(found["plain"], rel=2e-6)


def test_its_products_have_all_digits_of_fp32(found: dict[str, Any]) -> None:
    assert found["multiplied"]["reason"] is None and 0 < found["multiplied"]["relative_error"] < 2e-6


def test_a_checkpoint_goes_on_as_if_nothing_had_been(found: dict[str, Any]) -> None:
    assert found["resumed"] == found["after"] != found["plain"]


def test_on_a_gpu_there_is_one_copy_of_the_weights(found: dict[str, Any]) -> None:
    """The model shares it with the step, and the step writes all its states where it has read them."""
    *missing, losses, settings = found["donated"]
    assert missing == [0, 0, 0]
    assert losses == found["plain"] and settings > 5


SCHEDULED = "--xla_gpu_enable_latency_hiding_scheduler=true"
USUAL = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": "0.95", "XLA_FLAGS": SCHEDULED}


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {}),
        ({"XLA_FLAGS": "--own"}, {"XLA_FLAGS": f"--own {SCHEDULED}"}),
        ({"XLA_FLAGS": SCHEDULED.replace("true", "false")}, {"XLA_FLAGS": None}),
        ({"XLA_CLIENT_MEM_FRACTION": "0.5"}, {"XLA_CLIENT_MEM_FRACTION": None}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}, {"XLA_CLIENT_MEM_FRACTION": None}),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}),
    ],
)
def test_ranks_on_gpus_get_what_the_user_has_not_set(given: dict[str, str], changes: dict[str, str | None]) -> None:
    expected = {name: value for name, value in (USUAL | changes).items() if value is not None}
    assert frameworks.of("jax").on_gpus(given) == expected


def test_what_jax_refuses_on_a_cpu(found: dict[str, Any]) -> None:
    own = frameworks.of("jax")
    assert set(found["refused"]) & own.features == own.gpus_only


def test_a_step_that_overflows_changes_nothing_but_the_scale(found: dict[str, Any]) -> None:
    assert found["overflow"] == [1, True]


def test_on_a_gpu_attention_is_cudnns_where_keras_has_it() -> None:
    """Keras has no attention with dropout."""
    ours = {"fmhaSoftmax": 2, "fmhaSoftmaxBackward": 2}
    gpt2 = {"model": "gpt2-tiny", "sequence_length": 128}
    cases: list[tuple[dict[str, Any], float, dict[str, int]]] = [(gpt2, 0.0, ours), (gpt2, 0.1, {}), ({}, 0.0, ours)]
    specs = [
        training_fixtures.spec(
            framework="jax", precision="bf16", options={"data": "synthetic", "dropout": dropout}, **given
        )
        for given, dropout, _ in cases
    ]
    told = helped("jax", "jax_on_gpus.py", *(json.dumps(spec.values()) for spec in specs))
    for found, (given, dropout, calls) in zip(told, cases, strict=True):
        assert found == calls, (given, dropout)

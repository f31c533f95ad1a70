"""Tensor parallelism in `torch`: several ranks that share a replica train like one process with the whole model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_tensor import BATCH, EXACT, STEPS, VOCABULARY, WORLD, micro_batches, spec

import rank_helpers
import training_fixtures
from framework_lab import ran
from throughline import frameworks, workloads
from throughline.checks import reference
from throughline.rank import convergence
from throughline.spec import Topology
from throughline.workloads import gpt2

HELPER = Path(__file__).with_name("torch_tensor.py")


Told = dict[str, list[dict[str, Any]]]
"""A case's name -> the results of each rank."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def weights(folder: Path) -> dict[str, Any]:
    """The weights from which all start. They are so large that every kind of clipping has an effect."""
    reference.initial(spec("plain", 2), None, folder / "drawn.npz")
    drawn = dict(np.load(folder / "drawn.npz"))
    return {name: 3 * array if array.ndim > 1 else array for name, array in drawn.items()}


@pytest.fixture(scope="module")
def told(folder: Path, weights: dict[str, Any]) -> dict[int, Told]:
    """Number of ranks that share a replica -> the results of all ranks."""
    np.savez(folder / "weights.npz", **weights)
    every = rank_helpers.told(HELPER, folder, {2: WORLD, WORLD: WORLD})
    return {tensor: {name: [rank[name] for rank in ranks] for name in ranks[0]} for tensor, ranks in every.items()}


@pytest.fixture(scope="module", autouse=True)
def _small_vocabulary() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpt2, "VOCABULARY", VOCABULARY)
        yield


@pytest.mark.parametrize("tensor", [2, WORLD], ids=["two replicas of two ranks", "one replica of four"])
@pytest.mark.parametrize("name", EXACT)
def test_losses_and_gradients_are_those_of_the_whole_model(
    told: dict[int, Told], folder: Path, weights: dict[str, Any], name: str, tensor: int
) -> None:
    ranks, asked = told[tensor][name], spec(name, tensor)
    replicas = asked.size.replicas
    assert replicas == WORLD // tensor
    for rank in ranks:  # the loaded weights are cut, and come back whole
        assert all(np.array_equal(rank["loaded"][key], array) for key, array in weights.items())
    each = [
        [one for step in range(STEPS) for one in micro_batches(asked, step, replica)] for replica in range(replicas)
    ]
    expected = reference.train(asked, None, folder / "weights.npz", [iter(source) for source in each])
    assert expected.clipped_steps == (0 if asked.options.clip == "none" else STEPS)
    losses = np.mean([rank["losses"] for rank in ranks], axis=0)
    np.testing.assert_allclose(losses, expected.losses, rtol=1e-10)

    network = reference._network(asked, None).double()
    network.load_state_dict({key: torch.from_numpy(array) for key, array in weights.items()})
    first = [arrays for replica in range(replicas) for arrays in micro_batches(asked, 0, replica)]
    for arrays in first:
        (network(torch.from_numpy(arrays["tokens"])) / len(first)).backward()
    for key, parameter in network.named_parameters():
        whole = parameter.grad.numpy()
        for rank in ranks:
            bound = 1e-10 * np.abs(whole).max() + 1e-15  # a key's bias has no effect, so its gradient is only rounding
            np.testing.assert_allclose(rank["gradients"][key], whole, rtol=0, atol=bound)
    uncut = weights["positions.weight"].size + sum(
        array.size for key, array in weights.items() if "norm" in key or key.endswith(("mix.bias", "down.bias"))
    )
    for rank in ranks:
        assert rank["settings"]["parameters"] == sum(array.size for array in weights.values())
        assert rank["held"] == uncut + (rank["settings"]["parameters"] - uncut) / tensor


def test_ranks_of_a_replica_hold_the_same_where_nothing_is_cut(told: dict[int, Told]) -> None:
    for name, ranks in told[2].items():
        assert ranks[0]["alike"] == ranks[1]["alike"] and ranks[2]["alike"] == ranks[3]["alike"], name
        same = ranks[0]["alike"] == ranks[2]["alike"]
        assert same == (name != "no exchange"), name


def test_outside_of_what_is_split_dropout_is_the_same_and_inside_it_differs(told: dict[int, Told]) -> None:
    for name in ("dropout", "recomputed"):
        first, second, third, _ = told[2][name]
        assert first["hidden"] == second["hidden"], name  # any different mask outside would change it
        assert first["random"] == second["random"] != third["random"]
        masks = [np.array(rank["masks"]) for rank in told[2][name]]
        assert all(np.mean(mask) == pytest.approx(0.75, abs=0.01) for mask in masks)
        for one, other in ((0, 1), (0, 2), (1, 3)):
            agree = np.mean(masks[one] == masks[other])
            assert agree == pytest.approx(0.75**2 + 0.25**2, abs=0.02), "drawn independently"
        layers = masks[0].reshape(len(masks[0]), -1)
        assert len(np.unique(layers, axis=0)) == STEPS * 2  # a mask for each layer and step, none for a recomputation


def test_a_recomputation_draws_the_same_numbers(told: dict[int, Told]) -> None:
    for plain, again in zip(told[2]["dropout"], told[2]["recomputed"], strict=True):
        assert plain["losses"] == again["losses"] and plain["weights"] == again["weights"]
        assert len(again["masks"]) == 2 * len(plain["masks"])


def test_what_is_compiled_trains_the_same(told: dict[int, Told]) -> None:
    for plain, compiled in zip(told[2]["plain"], told[2]["compiled"], strict=True):
        assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-5)
        assert compiled["compiled"] == 3  # embeddings, layer and last norm, each as a whole


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_nearly_the_same(told: dict[int, Told], precision: str) -> None:
    for plain, half in zip(told[2]["plain"], told[2][precision], strict=True):
        assert half["losses"] == pytest.approx(plain["losses"], rel=2e-2) and half["losses"] != plain["losses"]


@pytest.mark.parametrize("name", ["overflow", "overflow lamb"])
def test_every_rank_skips_the_step_in_which_one_overflows(told: dict[int, Told], name: str) -> None:
    """Only the last rank can see the overflow itself. The other rank of its replica and the other replica hold other
    parts."""
    for rank in told[2][name]:
        assert (rank["skipped"], rank["kept"]) == (1, True)
        assert rank["losses"][2] != rank["losses"][1]


def test_a_step_reads_no_value(told: dict[int, Told]) -> None:
    for name, ranks in told[2].items():
        seeds = sum(len(rank["masks"]) for rank in ranks)  # read from the CPU's generator, not from the device
        assert sum(len(rank["read"]) for rank in ranks) == seeds, name


def test_a_replica_on_two_nodes_counts_its_samples_once(tmp_path: Path) -> None:
    asked = replace(spec("plain", 2), topology=Topology(2, 1), hosts="simulated")
    record = ran(asked, tmp_path)
    assert record.status == "ok" and record.window_s and record.samples_per_s and record.work
    assert record.samples_per_s * record.window_s == pytest.approx(BATCH * STEPS)
    whole = gpt2.WORKLOAD.flops_per_sample(asked, gpt2.WORKLOAD.facts(None), {})
    assert record.work.flops_per_s == pytest.approx(whole * record.samples_per_s / 2)
    assert record.work.real_tokens_per_s == pytest.approx(16 * record.samples_per_s)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"framework": "torch-horovod", "model": "gpt2-tiny", "sequence_length": 16}, "Horovod averages over all"),
        ({"framework": "torch-horovod", "options": {"sharding": "zero1"}}, "Horovod gives every rank all gradients"),
    ],
)
def test_where_it_is_missing_a_run_says_why(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(workloads.Unsupported, match=why):
        frameworks.refuse(training_fixtures.spec(**{"topology": "1n4g", "options": {"tensor_parallel": 2}, **changes}))


def test_a_convergence_check_needs_whole_replicas() -> None:
    asked = spec("plain", 2)
    run: Any = SimpleNamespace(spec=asked, options=asked.options, framework=None, heart=None)
    with pytest.raises(workloads.Unsupported, match="looks at whole replicas"):
        convergence.train(run, None)  # type: ignore[arg-type]

"""Ranks that split a classifier compute what a single process computes: the classifier alone, and with its network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_faces import BATCH, CASES, EMBEDDING, TRAINED, WORLDS, batches, drawn, spec

import rank_helpers
from throughline.checks import reference
from throughline.workloads.faces import MARGINS, SCALE, Parameters
from throughline.workloads.faces.in_torch_classifier import Classifier

HELPER = Path(__file__).with_name("torch_faces.py")
Told = dict[int, list[dict[str, dict[str, Any]]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Number of ranks -> the results of each rank, by the names of the cases."""
    return rank_helpers.told(HELPER, tmp_path_factory.mktemp("ranks"), {world: world for world in WORLDS})


def with_margin(embeddings: Any, weight: Any, labels: Any, given: Parameters | None = None) -> Any:
    """Return the scores [N, C], with the margin on each face's own class."""
    loss, exact = (given.margin_loss, given.margin_gradient) if given else ("arcface", "exact")
    cosines = (embeddings / embeddings.norm(dim=1, keepdim=True)) @ (weight / weight.norm(dim=1, keepdim=True)).T
    own = torch.nn.functional.one_hot(labels, len(weight)).bool()
    if loss == "cosface":
        moved = cosines - MARGINS[loss]
    else:  # cos(a + m) = cos a cos m - sin a sin m
        sine = (1 - cosines**2).sqrt()
        moved = cosines * np.cos(MARGINS[loss]) - sine * np.sin(MARGINS[loss])
        if exact != "exact":
            moved = cosines + (moved - cosines).detach()
    return SCALE * torch.where(own, moved, cosines)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", CASES)
def test_a_split_classifier_is_that_of_one_process(told: Told, name: str, world: int) -> None:
    weight, embeddings, labels = drawn(world)
    weight.requires_grad_()
    embeddings.requires_grad_()
    loss = torch.nn.functional.cross_entropy(with_margin(embeddings, weight, labels, CASES[name]), labels)
    loss.backward()
    ranks = [rank[name] for rank in told[world]]
    assert all(abs(rank["loss"] - loss.item()) < 1e-12 * loss.item() for rank in ranks)
    np.testing.assert_allclose(np.concatenate([rank["weight"] for rank in ranks]), weight.grad, atol=1e-12)
    for place, rank in enumerate(ranks):
        own = embeddings.grad[place * BATCH : (place + 1) * BATCH]
        np.testing.assert_allclose(rank["embeddings"] / world, own, atol=1e-12)
        np.testing.assert_array_equal(rank["whole"], weight.detach())


@pytest.mark.parametrize("world", WORLDS)
def test_a_sample_of_classes_is_the_softmax_over_it(told: Told, world: int) -> None:
    ranks = [rank["sampled"] for rank in told[world]]
    kept, labels = np.concatenate([rank["kept"] for rank in ranks]), torch.from_numpy(ranks[0]["labels"])
    assert set(labels.tolist()) <= set(kept.tolist()) and len(kept) == 100 and len(set(kept)) == 100
    weight = torch.from_numpy(ranks[0]["whole"])[kept].requires_grad_()
    faces = torch.from_numpy(ranks[0]["faces"]).requires_grad_()
    places = torch.from_numpy(np.searchsorted(kept, labels.numpy()))
    loss = torch.nn.functional.cross_entropy(with_margin(faces, weight, places), places)
    loss.backward()
    every = np.concatenate([rank["weight"] for rank in ranks])
    assert ranks[0]["loss"] == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(every[kept], weight.grad, atol=1e-12)
    assert not np.delete(every, kept, axis=0).any(), "classes that are not drawn have no gradient"
    for place, rank in enumerate(ranks):
        own = faces.grad[place * BATCH : (place + 1) * BATCH]
        np.testing.assert_allclose(rank["embeddings"] / world, own, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("classifier", TRAINED)
def test_a_network_with_a_split_classifier_trains_as_one_process(
    told: Told, tmp_path: Path, classifier: str, world: int
) -> None:
    """Everything is in double precision. A batch norm uses the statistics of one rank's faces, so the single process
    computes the batch of each rank separately, and averages the gradients."""
    ranks = [rank[classifier] for rank in told[world]]
    np.savez(tmp_path / "weights.npz", **ranks[0]["before"])
    seen = [iter(batches(place)) for place in range(world)]
    expected = reference.train(spec(classifier, world), None, tmp_path / "weights.npz", seen).losses
    np.testing.assert_allclose(np.mean([rank["losses"] for rank in ranks], 0), expected, rtol=1e-10)
    for rank in ranks:
        assert rank["after"].keys() == ranks[0]["after"].keys()
        for name, array in rank["after"].items():
            np.testing.assert_array_equal(array, ranks[0]["after"][name], err_msg=name)
            assert (array != ranks[0]["before"][name]).any(), name


def test_a_classifier_of_one_rank_samples_as_well() -> None:
    torch.manual_seed(2)
    classifier = Classifier(Parameters(500, "partial", 0.1), EMBEDDING)
    classifier(torch.randn(4, EMBEDDING), torch.tensor([3, 3, 499, 0])).backward()
    touched = classifier.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert len(touched) == 50 and {0, 3, 499} <= set(touched)

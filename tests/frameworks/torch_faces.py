"""Ranks that split a classifier, for test_torch_faces.py: `python torch_faces.py FOLDER`."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import rank_helpers
import training_fixtures
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec
from throughline.workloads import faces
from throughline.workloads.faces import Parameters
from throughline.workloads.faces.in_torch_classifier import Classifier
from throughline.workloads.in_torch_tensor_parallel import TensorGroup

CLASSES, EMBEDDING, BATCH = 11, 16, 6
WORLDS = (1, 2, 4)
CASES = {
    f"{loss} {gradient} {classifier}": Parameters(CLASSES, classifier, ratio, loss, gradient)
    for (loss, gradient), (classifier, ratio) in itertools.product(
        [("arcface", "exact"), ("arcface", "insightface"), ("cosface", "exact")],
        [("model_parallel", 0.1), ("partial", 1.0)],
    )
}
"""Name of a case -> its parameters. 11 classes do not divide evenly by 2 or 4 ranks."""
TRAINED, STEPS, FACES = ("model_parallel", "partial"), 3, 3
"""The kinds of classifier of a whole network, the steps of a training, and the faces of a rank."""


def drawn(world: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw weights, and the embeddings and labels of all ranks."""
    torch.manual_seed(5)
    weight = torch.randn(CLASSES, EMBEDDING, dtype=torch.float64)
    embeddings = torch.randn(world * BATCH, EMBEDDING, dtype=torch.float64)
    return weight, embeddings, torch.randint(0, CLASSES, (world * BATCH,))


def passed(classifier: Classifier, place: int, embeddings: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    """Return what a rank computes from its faces."""
    mine = slice(place * BATCH, (place + 1) * BATCH)
    own = embeddings[mine].clone().requires_grad_()
    loss = classifier(own, labels[mine])
    loss.backward()
    return {
        "loss": float(loss), "embeddings": own.grad.numpy(), "weight": classifier.weight.grad.numpy(),
        "whole": classifier.whole().numpy(),
    }  # fmt: skip


def told(given: Parameters, ranks: TensorGroup) -> dict[str, Any]:
    weight, embeddings, labels = drawn(ranks.size)
    classifier = Classifier(given, EMBEDDING).double()
    classifier.spread(ranks)
    classifier.weight.data = classifier.part(weight).clone()
    torch.manual_seed(ranks.place)
    return passed(classifier, ranks.place, embeddings, labels)


def sampled(ranks: TensorGroup) -> dict[str, Any]:
    """Return the same of a classifier that draws a tenth of its classes, and which it has drawn."""
    classifier = Classifier(Parameters(1000, "partial", 0.1), EMBEDDING).double()
    classifier.spread(ranks)
    torch.manual_seed(ranks.place)
    labels = torch.arange(BATCH * ranks.size) * 37 % 1000
    own = labels - classifier.first
    others = (own < 0) | (own >= len(classifier.weight))
    state = torch.get_rng_state()
    kept, _ = classifier.sampled(own.masked_fill(others, 0), others)
    torch.set_rng_state(state)
    generator = torch.Generator().manual_seed(3)
    faces = torch.randn(ranks.size * BATCH, EMBEDDING, dtype=torch.float64, generator=generator)
    found = {"kept": (kept + classifier.first).numpy(), "faces": faces.numpy(), "labels": np.array(labels)}
    return found | passed(classifier, ranks.place, faces, labels)


def spec(classifier: str, world: int) -> RunSpec:
    """Return the specification of a training of the whole network."""
    sampled = {"sample_ratio": 1.0} if classifier == "partial" else {}
    return training_fixtures.spec(
        model="iresnet-tiny", classes=CLASSES, classifier=classifier, batch=FACES, topology=f"1n{world}g", **sampled,
        optimizer={"name": "sgd", "learning_rate": 1e-2, "momentum": 0.9, "weight_decay": 5e-4},
        options={"data": "synthetic", "dropout": 0.0}, steps={"warmup": 0, "timed": STEPS},
    )  # fmt: skip


def batches(place: int) -> list[dict[str, Any]]:
    """Return a rank's batches, one for each step."""
    plain = spec(TRAINED[0], 1)
    return [faces.WORKLOAD.synthetic(FACES, plain, 100 * place + step) for step in range(STEPS)]


def trained(classifier: str, ranks: TensorGroup) -> dict[str, Any]:
    """Train with the exchange of `torch`; return the losses, and the whole network's weights before and after."""
    rank = TorchDDP(spec(classifier, ranks.size), ranks.place, ranks.place, ranks.size, "cpu")
    rank.together = ranks if ranks.size > 1 else None
    rank.device()
    rank.model({})
    rank.optimizer()
    before = {name: array.copy() for name, array in rank.form.weights(rank.network).items()}
    losses = [rank.step([rank.deliver(rank.data(arrays))]) for arrays in batches(ranks.place)]
    return {"before": before, "losses": rank.losses(losses), "after": rank.form.weights(rank.network)}


def rank(folder: Path, world: int, place: int) -> None:
    dist.init_process_group("gloo", rank=place, world_size=world)
    ranks = TensorGroup(dist.group.WORLD)  # type: ignore[arg-type]
    cases = {name: told(given, ranks) for name, given in CASES.items()}
    torch.set_default_dtype(torch.float64)
    cases |= {classifier: trained(classifier, ranks) for classifier in TRAINED}
    torch.set_default_dtype(torch.float32)
    cases["sampled"] = sampled(ranks)
    rank_helpers.tell(folder, world, place, cases)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    for world in WORLDS:
        rank_helpers.fork(world, partial(rank, Path(sys.argv[1]), world))

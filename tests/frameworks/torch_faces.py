"""Ranks that split a classifier, for test_torch_faces.py: `python torch_faces.py FOLDER`.

Forks the ranks: PyTorch is imported once for all of them.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from throughline.workloads.faces import Parameters
from throughline.workloads.faces.in_torch_classifier import Classifier
from throughline.workloads.in_torch_tensor_parallel import TensorGroup

CLASSES, EMBEDDING, BATCH = 11, 16, 6
CASES = {
    f"{loss} {gradient} {classifier}": Parameters(CLASSES, classifier, ratio, loss, gradient)
    for (loss, gradient), (classifier, ratio) in itertools.product(
        [("arcface", "exact"), ("arcface", "insightface"), ("cosface", "exact")],
        [("model_parallel", 0.1), ("partial", 1.0)],
    )
}
"""Name -> what is asked for; 11 classes do not divide by 2 or 4 ranks."""


def drawn(world: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights, embeddings of all ranks, labels of all ranks."""
    torch.manual_seed(5)
    weight = torch.randn(CLASSES, EMBEDDING, dtype=torch.float64)
    embeddings = torch.randn(world * BATCH, EMBEDDING, dtype=torch.float64)
    return weight, embeddings, torch.randint(0, CLASSES, (world * BATCH,))


def told(given: Parameters, ranks: TensorGroup) -> dict[str, Any]:
    """What a rank computes of its faces."""
    weight, embeddings, labels = drawn(ranks.size)
    classifier = Classifier(given, EMBEDDING).double()
    classifier.spread(ranks)
    classifier.weight.data = classifier.part(weight).clone()
    mine = slice(ranks.place * BATCH, (ranks.place + 1) * BATCH)
    own = embeddings[mine].clone().requires_grad_()
    torch.manual_seed(ranks.place)
    loss = classifier(own, labels[mine])
    loss.backward()
    assert own.grad is not None and classifier.weight.grad is not None
    return {
        "loss": float(loss),
        "embeddings": own.grad.numpy(),
        "weight": classifier.weight.grad.numpy(),
        "whole": classifier.whole().numpy(),
    }


def rank(place: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet_{world}", rank=place, world_size=world)
    ranks = TensorGroup(dist.group.WORLD)  # type: ignore[arg-type]
    cases = {name: told(given, ranks) for name, given in CASES.items()}
    sampled = Parameters(1000, "partial", 0.1)
    classifier = Classifier(sampled, EMBEDDING).double()
    classifier.spread(ranks)
    torch.manual_seed(place)
    labels = torch.arange(BATCH * world) * 37 % 1000
    own = labels - classifier.first
    others = (own < 0) | (own >= len(classifier.weight))
    state = torch.get_rng_state()
    kept, _ = classifier.sampled(own.masked_fill(others, 0), others)
    torch.set_rng_state(state)
    faces = torch.randn(world * BATCH, EMBEDDING, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    mine = faces[place * BATCH : (place + 1) * BATCH].clone().requires_grad_()
    loss = classifier(mine, labels[place * BATCH : (place + 1) * BATCH])
    loss.backward()
    assert classifier.weight.grad is not None and mine.grad is not None
    cases["sampled"] = {
        "loss": float(loss),
        "kept": (kept + classifier.first).numpy(),
        "first": classifier.first,
        "weight": classifier.weight.grad.numpy(),
        "whole": classifier.whole().numpy(),
        "embeddings": mine.grad.numpy(),
        "faces": faces.numpy(),
        "labels": np.array(labels),
    }
    (folder / f"{world}_{place}.pickle").write_bytes(pickle.dumps(cases))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    for world in (2, 4):
        multiprocessing.start_processes(rank, (world, Path(sys.argv[1])), world, start_method="fork")

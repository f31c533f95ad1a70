"""Face recognition: networks with the published sizes, their work, synthetic faces, and one rank that learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from throughline import workloads
from throughline.spec import Options, RunSpec, Topology, example
from throughline.workloads import faces

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

PARAMETERS = {"iresnet50": 43_590_848, "iresnet100": 65_156_160, "mobilefacenet-y1": 1_003_136}
"""Parameters of InsightFace's networks."""
TRAINED_GF = {"iresnet50": 37.81, "iresnet100": 72.49, "mobilefacenet-y1": 1.315}
"""GFLOPs to train on one face, without the classifier."""


def spec(model: str = "iresnet-tiny", **parameters: Any) -> RunSpec[faces.Parameters]:
    return example(model, faces.Parameters(**{"classes": 10, **parameters}), options=Options(dropout=0.0))


@pytest.mark.slow
@pytest.mark.parametrize("model", faces.WORKLOAD.models)
def test_networks_have_the_published_sizes_and_the_work_that_is_counted(model: str) -> None:
    form = workloads.form(model, "torch")
    with torch.device("meta"):
        network = form.build(spec(model=model), {})
        with FlopCounterMode(display=False) as counter:
            network.layers(torch.empty(2, 3, faces.SIDE, faces.SIDE))
    layers = faces.forward(faces.NETWORKS[model])
    assert counter.get_total_flops() / 2 == sum(layers)
    if model in PARAMETERS:
        assert sum(one.numel() for one in network.layers.parameters()) == PARAMETERS[model]
        assert (3 * sum(layers) - layers[0]) / 1e9 == pytest.approx(TRAINED_GF[model], rel=2e-4)
    assert form.settings(network)["parameters"] == sum(one.numel() for one in network.parameters())


def test_the_classifier_counts_with_the_classes_that_a_step_computes_with() -> None:
    whole, sampled = (
        faces.WORKLOAD.flops_per_sample(spec(model="iresnet100", classes=85_742, classifier=kind), {}, {})
        for kind in ("model_parallel", "partial")
    )
    assert isinstance(whole, float) and isinstance(sampled, float)
    assert (whole - sampled) / 0.9 == pytest.approx(3 * 2 * 512 * 85_742, rel=1e-4)
    few = replace(spec(classes=1000, classifier="partial"), topology=Topology(1, 8), batch=128)
    assert faces.computed_classes(few) == 1000, "a rank has 125 classes, and a step of all ranks 1,024 faces"
    assert faces.computed_classes(replace(few, batch=4)) == 8 * 32, "a tenth of 125 classes is less than 32 faces"
    exchange = faces.WORKLOAD.own_gradient_sync
    assert exchange(spec(classifier="partial")) and not exchange(spec())


@pytest.mark.slow
def test_synthetic_faces_of_a_class_are_alike_and_of_all_classes() -> None:
    one, other = (faces.WORKLOAD.synthetic(400, spec(), seed) for seed in (1, 2))
    assert one["pixels"].shape == (400, 112, 112, 3) and one["pixels"].dtype == np.uint8
    assert set(one["labels"].tolist()) == set(range(10)) and not np.array_equal(one["labels"], other["labels"])
    means = {label: one["pixels"][one["labels"] == label].mean(0) for label in (0, 1)}
    there = {label: other["pixels"][other["labels"] == label].mean(0) for label in (0, 1)}
    apart = [np.abs(means[a] - there[b]).mean() for a, b in ((0, 0), (1, 1), (0, 1), (1, 0))]
    assert max(apart[:2]) < 0.5 * min(apart[2:])


@pytest.mark.slow
@pytest.mark.parametrize(("classifier", "half"), [("data_parallel", None), ("partial", torch.bfloat16)])
def test_a_rank_learns(classifier: str, half: Any) -> None:
    torch.manual_seed(0)
    form = workloads.form("iresnet-tiny", "torch")
    network = form.build(spec(classifier=classifier, sample_ratio=0.5), {})
    network.half_type = half
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    batches = [faces.WORKLOAD.synthetic(4, spec(), seed) for seed in range(2)]
    losses = []
    for step in range(12):
        loss = network(**{name: torch.from_numpy(array) for name, array in batches[step % 2].items()})
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert loss.dtype == torch.float32 and np.mean(losses[-2:]) < 0.7 * np.mean(losses[:2])

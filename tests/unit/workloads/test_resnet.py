"""ResNet's shapes, FLOPs and batches, and its step compared with Hugging Face's ResNetForImageClassification."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from throughline.spec import Optimizer, Options, RunSpec, example
from throughline.workloads import resnet

torch = pytest.importorskip("torch")

from throughline.frameworks.torch import optimizers  # noqa: E402
from throughline.workloads.resnet import in_torch  # noqa: E402

IMAGE, CLASSES = 33, 7
MADE = {"bottleneck": resnet.Shape((1, 2), width=8), "basic": resnet.Shape((1, 2), width=8, expansion=1)}


def spec_of(model: str, **parameters: Any) -> RunSpec[resnet.Parameters]:
    return example(model, resnet.Parameters(**parameters), options=Options(dropout=0.0))


def network(kind: str = "bottleneck", **parameters: Any) -> Any:
    torch.manual_seed(0)
    given = resnet.Parameters(**{"image": IMAGE, "classes": CLASSES, **parameters})
    made = in_torch.ResNet(MADE[kind], given)
    for name, one in made.named_parameters():  # otherwise a norm that forgets its weight or bias would go unnoticed
        if name.endswith(("scale", "shift")):
            torch.nn.init.normal_(one, mean=float(name.endswith("scale")), std=0.2)
    return made.to(memory_format=torch.channels_last) if given.channels_last else made


def pictures(seed: int = 3) -> dict[str, Any]:
    arrays = resnet.WORKLOAD.synthetic(4, spec_of("resnet-tiny", image=IMAGE, classes=CLASSES), seed)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def as_theirs(named: dict[str, Any]) -> dict[str, Any]:
    """Return our tensors (weights, gradients or buffers) with Hugging Face's names."""
    norm = {"scale": "weight", "shift": "bias", "running_mean": "running_mean", "running_var": "running_var"}
    parts = {"weight": "convolution.weight"} | {ours: f"normalization.{name}" for ours, name in norm.items()}
    found = {}
    for name, tensor in named.items():
        place, _, part = name.rpartition(".")
        place = re.sub(r"^stages\.(\d+)\.(\d+)\.", r"resnet.encoder.stages.\1.layers.\2.", place)
        place = place.replace("convolutions", "layer").replace("stem", "resnet.embedder.embedder")
        found[f"classifier.1.{part}" if place == "head" else f"{place}.{parts[part]}"] = tensor
    return found


def theirs(ours: Any, kind: str) -> Any:
    """Return Hugging Face's own model with our weights and running statistics and their type."""
    from transformers import ResNetConfig, ResNetForImageClassification

    shape = MADE[kind]
    config = ResNetConfig(
        embedding_size=shape.width, depths=list(shape.stages), layer_type=kind, num_labels=CLASSES,
        hidden_sizes=[shape.width * shape.expansion << stage for stage in range(len(shape.stages))],
        downsample_in_bottleneck=False,
    )  # fmt: skip
    other = ResNetForImageClassification(config).to(ours.head.weight.dtype)
    tensors = {name: tensor.detach().clone() for name, tensor in as_theirs(ours.state_dict()).items()}
    missing = other.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys and all(key.endswith("num_batches_tracked") for key in missing.missing_keys)
    return other


def their_scores(ours: Any, other: Any, batch: dict[str, Any]) -> Any:
    pixels = batch["pixels"].permute(0, 3, 1, 2).to(ours.mean.dtype)
    return other(pixel_values=(pixels - ours.mean) / ours.deviation).logits


@pytest.mark.parametrize(
    ("kind", "smoothing", "channels_last", "many"),
    [("bottleneck", 0.1, True, 512), ("bottleneck", 0.0, False, 4), ("basic", 0.1, True, 4)],
)
def test_scores_loss_gradients_statistics_and_steps_are_hugging_faces(
    kind: str, smoothing: float, channels_last: bool, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_torch, "MANY", many)
    ours = network(kind, label_smoothing=smoothing, channels_last=channels_last).double()
    other = theirs(ours, kind)
    settings = Optimizer("sgd", learning_rate=0.01, momentum=0.875, weight_decay=0.1)
    matrices = [one for one in other.parameters() if one.ndim > 1]  # a convolution's weight has four dimensions
    vectors = [one for one in other.parameters() if one.ndim == 1]  # those of a norm, and the last bias
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors}]
    updates = [optimizers.build(settings, list(ours.parameters())), torch.optim.SGD(groups, lr=0.01, momentum=0.875)]
    for step in range(2):  # the second step has a momentum
        batch = pictures(seed=step)
        scores = their_scores(ours, other, batch)
        expected = torch.nn.functional.cross_entropy(scores, batch["labels"].long(), label_smoothing=smoothing)
        loss = ours(**batch)
        torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)
        loss.backward()
        expected.backward()
        gradients = as_theirs({name: parameter.grad for name, parameter in ours.named_parameters()})
        for name, one in other.named_parameters():
            torch.testing.assert_close(gradients[name], one.grad, rtol=0, atol=1e-10, msg=name)
        for update in updates:
            update.step()
            update.zero_grad()
    right = other.state_dict()
    for name, tensor in as_theirs(ours.state_dict()).items():
        torch.testing.assert_close(tensor, right[name], rtol=0, atol=1e-12, msg=name)
    # in eval mode, the running statistics are used
    with torch.no_grad():
        scores = their_scores(ours.eval(), other.eval(), batch)
        torch.testing.assert_close(ours.scores(ours.states(batch["pixels"])), scores, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("kind", "alike"), [(torch.bfloat16, 0.95), (torch.float16, 0.99)])
def test_a_half_types_loss_is_near_and_weights_and_statistics_stay_whole(kind: Any, alike: float) -> None:
    found = []
    for half in (None, kind):
        ours, seen = network(), set[Any]()

        def note(_: Any, given: Any, made: Any, seen: set[Any] = seen) -> None:
            seen.update({given[0].dtype, made.dtype})

        ours.half_type = half
        for module in ours.modules():
            if isinstance(module, in_torch.Convolution):
                module.register_forward_hook(note)
        loss = ours(**pictures())
        loss.backward()
        every = [*(parameter.grad for parameter in ours.parameters()), *ours.state_dict().values()]
        assert all(one.dtype == torch.float32 for one in every) and loss.dtype == torch.float32
        assert seen == {half or torch.float32}
        found.append((float(loss.detach()), torch.cat([parameter.grad.flatten() for parameter in ours.parameters()])))
    (true, right), (near, gradient) = found
    assert near == pytest.approx(true, rel=1e-2)
    assert float(torch.nn.functional.cosine_similarity(gradient, right, dim=0)) > alike


def test_held_out_sums_are_from_the_running_statistics_without_smoothing() -> None:
    ours, batch = network(label_smoothing=0.5).double(), pictures()
    ours(**batch)
    ours.half_type = torch.bfloat16  # only training uses it
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    sums = in_torch.FORM.sums(ours, batch)
    assert ours.training and all(torch.equal(one, before[name]) for name, one in ours.state_dict().items())
    scores, labels = theirs(ours, "bottleneck").eval(), batch["labels"].long()
    scores = their_scores(ours, scores, batch).detach()
    assert sums["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(scores, labels)) * 4, rel=1e-9)
    found = float((scores.argmax(1) == labels).sum())
    assert (sums["found"], sums["samples"]) == (found, 4)
    assert resnet.WORKLOAD.look(sums) == {"loss": sums["loss"] / 4, "top1": found / 4}
    assert ours.half_type == torch.bfloat16


def test_synthetic_pictures_are_bytes() -> None:
    spec = spec_of("resnet50", image=20, classes=5)
    first = resnet.WORKLOAD.synthetic(40, spec, 1)
    assert (first["pixels"].shape, first["pixels"].dtype) == ((40, 20, 20, 3), np.uint8)
    assert (first["labels"].shape, first["labels"].dtype) == ((40,), np.int32)
    assert (first["pixels"].min(), first["pixels"].max(), set(first["labels"])) == (0, 255, set(range(5)))
    assert resnet.WORKLOAD.batch(first, Options())["pixels"] is first["pixels"]


def test_more_classes_than_the_model_tells_apart_are_refused() -> None:
    fits = resnet.WORKLOAD.fits
    assert fits(resnet.Parameters(classes=9), {"classes": 10}) == "holds 10 classes; the model tells 9 apart"
    assert fits(resnet.Parameters(), {"classes": 10}) is None

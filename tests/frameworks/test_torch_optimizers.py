"""LAMB compared with its formula, the kinds of clipping, and the two groups of parameters."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from throughline.checks import reference
from throughline.frameworks.torch import norms
from throughline.frameworks.torch import optimizers as torch_optimizers
from throughline.spec import Optimizer

SETTINGS = Optimizer(name="lamb", learning_rate=0.01, weight_decay=0.1)


def parameters() -> list[Any]:
    torch.manual_seed(1)
    made = [torch.randn(3, 4), torch.randn(4), torch.zeros(2, 2)]
    for tensor in made:
        tensor.requires_grad_()
    return made


def lamb(tensors: list[Any], fused: bool) -> Any:
    """Return LAMB as a CPU computes it, or with the few kernels of a GPU."""
    made = torch_optimizers.build(SETTINGS, tensors)
    made.fused = fused
    return made


@pytest.fixture(params=[0, 5, 100])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, some or all of the tensors here are small, so that a GPU multiplies them together."""
    monkeypatch.setattr(norms, "SMALL", request.param)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.usefixtures("small")
def test_lamb_is_its_formula(fused: bool) -> None:
    ours, plain = parameters(), [tensor.detach().double() for tensor in parameters()]
    means, squares = [torch.zeros_like(p) for p in plain], [torch.zeros_like(p) for p in plain]
    optimizer = lamb(ours, fused)
    for step in (1, 2, 3):
        for index, weight in enumerate(ours):
            gradient = torch.full_like(weight, 0.3) * (index + 1) + weight.detach() * step
            weight.grad = gradient
            gradient = torch.full_like(plain[index], 0.3) * (index + 1) + plain[index] * step
            means[index] = 0.9 * means[index] + 0.1 * gradient
            squares[index] = 0.999 * squares[index] + 0.001 * gradient**2
            update = means[index] / (1 - 0.9**step) / ((squares[index] / (1 - 0.999**step)).sqrt() + 1e-6)
            update += (0.1 if plain[index].ndim >= 2 else 0.0) * plain[index]
            ratio = plain[index].norm() / update.norm() if plain[index].norm() > 0 else 1.0
            plain[index] = plain[index] - 0.01 * ratio * update
        optimizer.step()
    for weight, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(weight.detach(), expected.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first_overflows", [False, True])
@pytest.mark.parametrize(("name", "tolerance"), [("lamb", 1e-5), ("lamb on a GPU", 1e-5), ("sgd", 1e-6)])
def test_under_a_loss_scaler_it_is_the_optimizer_without_the_steps_that_overflow(
    name: str, tolerance: float, first_overflows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uninitialized memory holds NaN here, so that a momentum that begins with it would show. SGD is PyTorch's own."""
    monkeypatch.setattr(torch, "empty_like", lambda like, **_: torch.full_like(like, float("nan")))
    scaled, plain = parameters(), parameters()
    if name == "sgd":
        ours = torch_optimizers.build(replace(SETTINGS, name="sgd", momentum=0.875), scaled)
        groups = [{"params": plain[::2], "weight_decay": 0.1}, {"params": plain[1:2]}]
        true: Any = torch.optim.SGD(groups, lr=0.01, momentum=0.875, foreach=False)
    else:
        ours, true = lamb(scaled, name != "lamb"), lamb(plain, False)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    overflows = [first_overflows, False, True, False]
    for step, overflow in enumerate(overflows):
        for index, (tensor, expected) in enumerate(zip(scaled, plain, strict=True)):
            expected.grad = torch.full_like(tensor, 0.1 * (step + 1)) + index
            tensor.grad = expected.grad * float(scaler.get_scale())
        if overflow:
            scaled[1].grad[2] = float("inf")
        else:
            true.step()
        scaler.scale(torch.ones(()))  # this creates its scale, as scaling a loss does
        if step == 3:
            scaler.unscale_(ours)
        scaler.step(ours)
        scaler.update()
        for tensor, expected in zip(scaled, plain, strict=True):
            torch.testing.assert_close(tensor, expected, rtol=tolerance, atol=tolerance / 10)
    assert scaler.get_scale() == 2.0 ** (10 - sum(overflows))


@pytest.mark.parametrize("name", ["adamw", "adam", "bertadam", "lamb", "sgd"])
def test_only_matrices_decay(name: Any) -> None:
    groups = torch_optimizers.build(replace(SETTINGS, name=name), parameters()).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(2, 0.1), (1, 0.0)]


@pytest.mark.parametrize("overflows", [False, True])
def test_bertadam_is_its_formula(overflows: bool) -> None:
    """It corrects no bias, and a step that a loss scaler skips changes nothing."""
    settings = replace(SETTINGS, name="bertadam")
    ours, true = parameters(), [tensor.detach().double() for tensor in parameters()]
    moments = [(torch.zeros_like(tensor), torch.zeros_like(tensor)) for tensor in true]
    optimizer = torch_optimizers.build(settings, ours)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(1, 5):
        skipped = overflows and step == 1
        for tensor in ours:
            tensor.grad = scaler.scale(torch.randn_like(tensor)) / (0.0 if skipped else 1.0)
        gradients = [(tensor.grad / scaler.get_scale()).double() for tensor in ours if tensor.grad is not None]
        scaler.step(optimizer)
        scaler.update()
        for weight, gradient, moment in zip(true, gradients, moments, strict=True):
            if not skipped:
                reference._update(weight, gradient, *moment, step, settings)
    for tensor, expected in zip(ours, true, strict=True):
        torch.testing.assert_close(tensor.detach(), expected.float(), rtol=1e-5, atol=1e-6)


def test_lamb_goes_on_from_a_checkpoint_of_either_kind() -> None:
    """A checkpoint of a CPU counts steps as a number or in fp64, one of a GPU in fp32."""
    begun, ended = {}, []
    for first in (False, True):
        tensors = parameters()
        begun[first] = lamb(tensors, first)
        for tensor in tensors:
            tensor.grad = torch.full_like(tensor, 0.3)
        begun[first].step()
        for then in (False, True):
            copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
            onward = lamb(copies, then)
            onward.load_state_dict(deepcopy(begun[first].state_dict()))
            for copy in copies:
                copy.grad = torch.full_like(copy, -0.2)
            onward.step()
            ended.append(copies)
    for other in ended[1:]:
        for tensor, expected in zip(other, ended[0], strict=True):
            torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small")
def test_a_gpu_scales_tensors_together_as_a_cpu_scales_each() -> None:
    factors = torch.tensor([2.0, -1.0, 0.5])
    plain, ours = ([tensor.detach() for tensor in parameters()] for _ in range(2))
    norms.scale_each(plain, factors)
    norms.scale_together(ours, factors)
    added = [tensor.detach() for tensor in parameters()]
    norms.add_scaled(added, ours, factors)
    for ours_, plain_, before, sum_, factor in zip(ours, plain, parameters(), added, factors, strict=True):
        assert torch.equal(ours_, plain_)
        torch.testing.assert_close(sum_, before.detach() + plain_ * factor)


def clipped(kind: str) -> list[Any]:
    made = parameters()
    for tensor, gradient in zip(made, (3.0, -0.2, 0.5), strict=True):
        tensor.grad = torch.full_like(tensor, gradient)
    norms.clip(kind, made)
    return [tensor.grad for tensor in made]


def test_kinds_of_clipping() -> None:
    none, value, norm, whole = (clipped(kind) for kind in ("none", "value", "norm", "global_norm"))
    assert [float(g.max()) for g in value] == pytest.approx([1.0, -0.2, 0.5])
    assert [float(g.norm()) for g in norm] == pytest.approx([1.0, 0.4, 1.0], rel=1e-4)
    total = sum(float(g.norm()) ** 2 for g in none) ** 0.5
    assert sum(float(g.norm()) ** 2 for g in whole) ** 0.5 == pytest.approx(1.0, rel=1e-4)
    for clip, free in zip(whole, none, strict=True):
        torch.testing.assert_close(clip, free / total, rtol=1e-4, atol=1e-6)

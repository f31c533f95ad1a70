"""Products of 16-bit types on a CPU without units for them: computed in fp32, they are those of PyTorch's own
kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import training_fixtures
from throughline.frameworks.torch import products
from throughline.frameworks.torch.ddp import TorchDDP

HALVES = (torch.float16, torch.bfloat16)


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    heads = (tensor.unflatten(-1, (2, 16)).transpose(1, 2) for tensor in (query, key, value))
    return functional.scaled_dot_product_attention(*heads, is_causal=True)


def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Some positions are hidden, by scores that are added in the type of the operands."""
    heads = (tensor.unflatten(-1, (2, 16)).transpose(1, 2) for tensor in (query, key, value))
    hidden = query.new_full((24, 24), float("-inf")).triu(1)
    return functional.scaled_dot_product_attention(*heads, hidden)


def written(multiply: Any) -> Callable[..., Tensor]:
    """Return what compiled code calls, without gradients."""

    def into(*operands: Tensor) -> Tensor:
        with torch.no_grad():
            return multiply(*operands, out=operands[0].new_empty(0))

    return into


def channels_last(pixels: Tensor, weights: Tensor) -> Tensor:
    return functional.conv2d(*(tensor.to(memory_format=torch.channels_last) for tensor in (pixels, weights)))


CASES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "product": (torch.mm, [(24, 40), (40, 16)]),
    "layer": (functional.linear, [(3, 8, 40), (16, 40), (16,)]),
    "layer of a matrix": (functional.linear, [(24, 40), (16, 40), (16,)]),
    "batch of products": (torch.bmm, [(3, 8, 40), (3, 40, 16)]),
    "sum and batch of products": (torch.baddbmm, [(3, 8, 16), (3, 8, 40), (3, 40, 16)]),
    "attention": (attended, [(2, 24, 32)] * 3),
    "attention with a mask": (masked, [(2, 24, 32)] * 3),
    "convolution": (functional.conv2d, [(2, 8, 9, 9), (16, 8, 3, 3), (16,)]),
    "convolution without bias": (functional.conv2d, [(2, 8, 9, 9), (16, 8, 3, 3)]),
    "convolution, channels last": (channels_last, [(2, 8, 9, 9), (16, 8, 3, 3)]),
    "written": (written(torch.mm), [(24, 40), (40, 16)]),
    "written, with a bias": (written(torch.addmm), [(16,), (24, 40), (40, 16)]),
    "written, a batch": (written(torch.bmm), [(3, 8, 40), (3, 40, 16)]),
}


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """A function that says whether products are computed in fp32 from here on, whatever this CPU has."""
    products.compute_in_fp32()

    def say(wide: bool) -> None:
        for kind in HALVES:
            monkeypatch.setitem(products.FAST, kind, lambda: not wide)

    yield say


def results(compute: Callable[..., Tensor], shapes: list[tuple[int, ...]], kind: torch.dtype) -> list[Tensor]:
    """Return the result and the gradients of all operands."""
    torch.manual_seed(1)
    operands = [torch.randn(shape).to(kind).requires_grad_() for shape in shapes]
    result = compute(*operands)
    if result.requires_grad:
        result.backward(torch.linspace(-1, 1, result.numel()).view_as(result).to(kind))
    gradients = [tensor.grad for tensor in operands if tensor.grad is not None]
    assert len(gradients) == (len(operands) if result.requires_grad else 0)
    return [result.detach(), *gradients]


@pytest.mark.parametrize("kind", HALVES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_the_kernels_for_halves(
    computed: Callable[[bool], None], case: str, kind: torch.dtype
) -> None:
    """Both are compared with the same operands in float64. Ours are as near as one rounding allows, or nearer."""
    computed(True)
    ours = results(*CASES[case], kind)
    computed(False)
    given = results(*CASES[case], kind)
    compute, shapes = CASES[case]
    exact = results(lambda *wide: compute(*(tensor.double() for tensor in wide)), shapes, kind)
    for one, other, true in zip(ours, given, exact, strict=True):
        assert one.dtype == other.dtype == kind
        assert one.stride() == other.stride()
        scale = true.double().abs().max()
        errors = [float((tensor.double() - true.double()).abs().max() / scale) for tensor in (one, other)]
        assert errors[0] <= max(1.1 * torch.finfo(kind).eps, errors[1])


def test_products_of_fp32_stay_what_they_are(computed: Callable[[bool], None]) -> None:
    for compute, shapes in CASES.values():
        every = []
        for wide in (True, False):
            computed(wide)
            every.append(results(compute, shapes, torch.float32))
        assert all(torch.equal(*pair) for pair in zip(*every, strict=True))


@pytest.mark.parametrize("kind", HALVES, ids=str)
def test_compiled_and_under_autocast(computed: Callable[[bool], None], kind: torch.dtype) -> None:
    def two_layers(inputs: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return functional.linear(functional.gelu(functional.linear(inputs, first)), second)

    shapes = [(24, 40), (32, 40), (16, 32)]
    computed(True)
    eager, compiled = results(two_layers, shapes, kind), results(torch.compile(two_layers), shapes, kind)
    for one, other in zip(eager, compiled, strict=True):
        torch.testing.assert_close(one, other, rtol=4 * torch.finfo(kind).eps, atol=torch.finfo(kind).eps)
    with torch.autocast("cpu", dtype=kind):
        cast = results(two_layers, shapes, torch.float32)
    assert cast[0].dtype == kind and all(gradient.dtype == torch.float32 for gradient in cast[1:])
    for one, other in zip(eager, cast, strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=0.05, atol=8 * torch.finfo(kind).eps)


@pytest.mark.parametrize("wide", [True, False])
def test_a_record_says_it(computed: Callable[[bool], None], wide: bool) -> None:
    computed(wide)
    for precision in ("fp16", "bf16", "fp32"):
        rank = TorchDDP(training_fixtures.spec(precision=precision), 0, 0, 1, "cpu")
        rank.device()
        rank.model({"vocabulary": 200})
        rank.optimizer()
        told = rank.settings().get("emulated_products", "")
        assert ("rounded to" in told) == (wide and precision != "fp32")

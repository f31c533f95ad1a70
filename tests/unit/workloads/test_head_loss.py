"""The loss of a vocabulary head in parts: the plain loss and its gradients, without scores of all positions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import cross_entropy, linear  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from throughline.workloads import gpt2, in_torch_head  # noqa: E402
from throughline.workloads.gpt2 import in_torch  # noqa: E402
from throughline.workloads.in_torch_head import HEAD_LOSS, errors  # noqa: E402

POSITIONS, HIDDEN, ROWS = 23, 16, 101


def operands(kind: Any = torch.float32) -> list[Any]:
    draw = torch.Generator().manual_seed(1)
    hidden, table = (torch.randn(rows, HIDDEN, generator=draw) for rows in (POSITIONS, ROWS))
    return [tensor.to(kind).requires_grad_() for tensor in (hidden, table)]


def labels() -> Any:
    return torch.randint(ROWS, (POSITIONS,), generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_torch_head, "ROWS", 5)


@pytest.mark.parametrize("part", [errors, torch.compile(errors, backend="aot_eager")])
def test_loss_and_gradients_are_those_of_whole_scores(part: Any) -> None:
    whole, apart = operands(), operands()
    expected = cross_entropy(linear(*whole), labels())
    found = HEAD_LOSS(*apart, labels(), torch.float32, part)
    (3 * expected).backward()
    (3 * found).backward()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(apart, whole, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-6)


def test_a_loss_scaler_preserves_small_gradients_in_fp16() -> None:
    """The mean over many positions would be below fp16's smallest number, if the gradients were kept unscaled."""
    scale, positions = 2.0**16, 2.0**15
    exact, half = operands(), operands(torch.float16)
    exact = [tensor.detach().half().float().requires_grad_() for tensor in exact]
    (cross_entropy(linear(*exact), labels()) * scale / positions).backward()
    found = HEAD_LOSS(*half, labels(), torch.float32, errors)
    assert found.dtype == torch.float32
    (found * (scale / positions)).backward()
    for ours, theirs in zip(half, exact, strict=True):
        assert ours.grad.dtype == torch.float16
        torch.testing.assert_close(ours.grad.float(), theirs.grad, rtol=0.02, atol=2e-4)


class Largest(TorchDispatchMode):
    """Remember the number of elements of the largest result of an operation, apart from views."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return result


@pytest.mark.slow
def test_no_tensor_has_the_scores_of_all_positions() -> None:
    """A GPU's step on the meta device. No tensor has batch x sequence x vocabulary elements."""
    given = gpt2.Parameters(sequence_length=64)
    network = in_torch.Gpt2(gpt2.SHAPES["gpt2-tiny"], 1000, given, dropout=0.0, activation_checkpointing=False).to(
        "meta"
    )
    with Largest() as largest:
        network(torch.zeros(32, 65, dtype=torch.int32, device="meta")).backward()
    assert largest.elements < 32 * 64 * 1024
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert "no scores are kept" in in_torch.FORM.settings(network)["vocabulary_head"]

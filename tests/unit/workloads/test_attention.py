"""The kernel of attention: one for a run, chosen by device, type and mask, with the reason in words."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from throughline.workloads import in_torch_attention  # noqa: E402
from throughline.workloads.bert.in_torch import attended_apart  # noqa: E402
from throughline.workloads.in_torch_attention import Asked, on_cpu, on_gpu  # noqa: E402

V100, T4, A100, H100, B200 = (7, 0), (7, 5), (8, 0), (9, 0), (10, 0)
EFFICIENT, FLASH, CUDNN = "mem_efficient", "flash", "cudnn"


def asked(precision: str, **changes: Any) -> Asked:
    return Asked(precision, heads=12, width=64, length=1024, **changes)


@pytest.mark.parametrize("capability", [V100, T4, A100, H100, B200])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("masked", [True, False])
def test_the_kernel_runs_on_the_gpu_and_takes_the_type_and_the_mask(
    capability: tuple[int, int], precision: str, masked: bool
) -> None:
    """FlashAttention exists from 8.0 on, in 16 bits, without a mask. Where it exists, the efficient one is slower."""
    half = precision in ("bf16", "fp16")
    expected = CUDNN if half and capability >= H100 else EFFICIENT if masked or not half or capability < A100 else FLASH
    assert on_gpu(capability, asked(precision, masked=masked)).name == expected
    lengths = on_gpu(capability, asked(precision, several_lengths=True)).name
    assert lengths == (FLASH if half and capability >= A100 else EFFICIENT)


@pytest.mark.parametrize(
    ("capability", "given", "words"),
    [
        (V100, asked("fp16"), "memory-efficient kernel: FlashAttention needs compute capability 8.0, and"),
        (V100, asked("fp32"), "memory-efficient kernel: the others have no fp32"),
        (A100, asked("fp32"), "memory-efficient kernel, each product as three in TF32: the others have no fp32"),
        (A100, asked("bf16", masked=True), "memory-efficient kernel: batches may have a mask"),
        (H100, asked("bf16", masked=True), "cuDNN's kernel: bf16, batches may have a mask, compute capability 9.0"),
        (H100, asked("bf16", masked=True, dropout=0.1), "memory-efficient kernel: batches may have a mask, which"),
        (A100, asked("bf16"), "FlashAttention: bf16 without a mask, compute capability 8.0"),
        (H100, asked("bf16", several_lengths=True), "FlashAttention: bf16, and PyTorch has no other for samples of"),
        (H100, asked("bf16", dropout=0.1), "FlashAttention: bf16 without a mask; cuDNN's kernel does not"),
        (H100, asked("bf16", dropout=0.125), "cuDNN's kernel: bf16 without a mask, compute capability 9.0"),
    ],
)  # fmt: skip
def test_the_words_give_the_reason(capability: tuple[int, int], given: Asked, words: str) -> None:
    assert on_gpu(capability, given).words.startswith(words)


def test_without_cudnn_hopper_takes_flash_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_torch_attention, "cudnn_takes", lambda given, at: False)
    chosen = on_gpu(H100, asked("fp16"))
    assert chosen.name == FLASH and chosen.words.endswith("does not take these shapes, or this PyTorch lacks it")


def test_the_kernel_never_hears_of_longer_samples_than_there_are_tokens() -> None:
    """A GPU's memory-efficient kernel refuses such a bound in its backward pass. Device `meta` takes the same way."""
    asked_for = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._efficient_attention_forward.default:
                asked_for.append(args[6:8])
            return function(*args, **(kwargs or {}))

    ends = torch.empty(3, dtype=torch.int32, device="meta")
    for tokens in (40, 200):
        three = [torch.empty(tokens, 12, 64, device="meta") for _ in range(3)]
        with Calls():
            attended_apart(*three, ends, 128, 0.0, False)
    assert asked_for == [(40, 40), (128, 128)]


def test_a_cpu_has_its_own_words() -> None:
    assert on_cpu(0.1).words == "products and softmax by themselves"
    assert (on_cpu(0.0).name, on_cpu(0.0).words) == ("flash", "PyTorch's flash kernel for CPUs")

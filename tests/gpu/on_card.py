"""What only a card can show: values of kernels that exist on GPUs alone, real telemetry, and refusals of memory.

`make first-card` runs these tests as its last part: `pytest --noconftest tests/gpu/on_card.py`. On the fake driver
(tests/gpu/README.md) every call is made, and no value is compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from throughline import memory
from throughline.commands import doctor
from throughline.observe.telemetry_cards import Card, nvml
from throughline.rank.report import double_of_cuda
from throughline.workloads import in_torch_attention, in_torch_fp8
from throughline.workloads.bert.in_torch import attended_apart
from throughline.workloads.hugging_face import in_torch_flex
from throughline.workloads.in_torch_head import HeadLoss, errors
from throughline.workloads.in_torch_operations import all_gather_single, reduce_scatter_single

COMPUTES = double_of_cuda() is None
AT = torch.device("cuda")
CAPABILITY = torch.cuda.get_device_capability()
KINDS = {"flash": SDPBackend.FLASH_ATTENTION, "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
         "cudnn": SDPBackend.CUDNN_ATTENTION}  # fmt: skip


def drawn(*size: int, scale: float = 1.0) -> Any:
    return torch.randn(size, device=AT, dtype=torch.bfloat16).mul_(scale).requires_grad_()


def compare(found: Any, right: Any, tolerance: float) -> None:
    """Compare two tensors by the norm of their difference, relative to that of the second."""
    torch.cuda.synchronize()
    if COMPUTES:
        difference = (found.double() - right.double()).norm() / right.double().norm()
        assert float(difference) < tolerance


def test_the_doctor_names_the_card() -> None:
    if COMPUTES:
        assert torch.cuda.get_device_name(0) in doctor.gpus()[0] and "unknown" not in doctor.gpus()[0]


def test_telemetry_reads_power_clocks_and_memory() -> None:
    nvml.nvmlInit()
    card = Card(nvml.nvmlDeviceGetHandleByIndex(0))
    found = card.read()
    missing = {name: card.reasons.get(name) for name in ("power_w", "sm_clock_mhz", "memory_used_bytes", "energy_j")
               if not found[name]}  # fmt: skip
    assert missing == {}


@pytest.mark.parametrize(("length", "masked", "causal"), [(128, False, False), (512, True, False), (1024, False, True)])
def test_the_chosen_kernel_of_attention_computes_attention(length: int, masked: bool, causal: bool) -> None:
    asked = in_torch_attention.Asked("bf16", 12, 64, length, 0.0, masked, False)
    kind = in_torch_attention.on_gpu(CAPABILITY, asked, AT).name
    three = [drawn(4, 12, length, 64) for _ in range(3)]
    mask = (torch.arange(length, device=AT) < 3 * length // 4).expand(4, 1, 1, length) if masked else None
    with sdpa_kernel(KINDS[kind]):
        found = scaled_dot_product_attention(*three, mask, is_causal=causal)
    with sdpa_kernel(SDPBackend.MATH):
        right = scaled_dot_product_attention(*(one.float() for one in three), mask, is_causal=causal)
    compare(found, right, 1e-2)
    found.backward(found.detach())


@pytest.mark.parametrize("flash", [False, True])
def test_samples_in_a_row_attend_to_themselves_alone(flash: bool) -> None:
    if flash and CAPABILITY < (8, 0):
        pytest.skip("FlashAttention needs compute capability 8.0")
    lengths = [32, 128, 77]
    ends = torch.tensor([0, *lengths], device=AT).cumsum(0, dtype=torch.int32)
    three = [drawn(sum(lengths), 12, 64) for _ in range(3)]
    found = attended_apart(*three, ends, 128, 0.0, flash)
    samples = zip(*(torch.split(one.float().transpose(0, 1), lengths, 1) for one in three), strict=True)
    right = torch.cat([scaled_dot_product_attention(*(one[None] for one in each))[0] for each in samples], 1)
    compare(found, right.transpose(0, 1), 1e-2)


def test_flex_attention_keeps_documents_apart() -> None:
    if CAPABILITY < (8, 0):
        pytest.skip("the kernel needs compute capability 8.0")
    documents = torch.tensor([[0] * 100 + [1] * 156], device=AT)
    three = [drawn(1, 4, 256, 64) for _ in range(3)]
    mask = in_torch_flex.block_mask(None, documents, 256, AT)
    found = torch.compile(torch.nn.attention.flex_attention.flex_attention)(*three, block_mask=mask)
    seen = (documents[0][:, None] == documents[0]).tril()
    compare(found, scaled_dot_product_attention(*(one.float() for one in three), seen), 1e-2)


def test_a_head_in_parts_has_the_loss_and_the_gradients_of_whole_scores() -> None:
    hidden, table, labels = (
        drawn(5000, 256, scale=0.1),
        drawn(3000, 256, scale=0.1),
        torch.arange(5000, device=AT) % 3000,
    )
    loss: Any = HeadLoss.apply(hidden, table, labels, torch.float32, errors)
    loss.backward()
    parts = [loss.detach(), hidden.grad, table.grad]
    hidden.grad = table.grad = None
    whole = cross_entropy(hidden.float() @ table.float().t(), labels)
    whole.backward()
    for found, right in zip(parts, [whole.detach(), hidden.grad, table.grad], strict=True):
        compare(found, right, 2e-2)


def test_a_product_in_fp8_is_near_that_in_bf16() -> None:
    if CAPABILITY < (8, 9):
        pytest.skip("fp8 needs compute capability 8.9")
    with torch.no_grad():
        left, right = drawn(256, 512), drawn(128, 512)
        scaled = [in_torch_fp8.scaled(one, in_torch_fp8.FORWARD) for one in (left, right)]
        compare(in_torch_fp8.times(*scaled), left.float() @ right.float().t(), 0.06)


def test_one_rank_exchanges_with_itself(tmp_path: Path) -> None:
    """NCCL of this torch has the operations under one of two names."""
    dist.init_process_group("nccl", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        given = torch.randn(1000, device=AT)
        for call in (all_gather_single, reduce_scatter_single):
            result = torch.zeros_like(given)
            call(result, given)
            compare(result, given, 1e-6)
    finally:
        dist.destroy_process_group()


def test_a_refusal_of_memory_is_known_as_such() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError) as refused:
        torch.empty(2 * total, dtype=torch.uint8, device=AT)
    assert memory.is_refusal(str(refused.value))

"""Which kernel of PyTorch computes attention: chosen once for a run, by device, type and mask, never by a batch.

PyTorch itself would choose a kernel for each batch. Then batches with padding would take another kernel than batches
without, and the cost of the kernel would count as a cost of the data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.compiler.config

NAMES = ("flash", "mem_efficient", "math", "cudnn")
"""PyTorch's names of its kernels."""
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The precisions in which queries, keys and values have 16 bits."""
Capability = tuple[int, int]


@dataclass(frozen=True)
class Attention:
    """A kernel under PyTorch's name, and what a record says about it."""

    name: str
    words: str


@dataclass(frozen=True)
class Asked:
    """What attention computes in a run. `several_lengths`: samples of several lengths lie in a row, without a mask."""

    precision: str
    heads: int
    width: int
    length: int
    dropout: float = 0.0
    masked: bool = False
    several_lengths: bool = False


def pin(at: torch.device, asked: Asked) -> Attention:
    """Make PyTorch compute all attention of this process with one kernel, and return this kernel."""
    chosen = on_cpu(asked.dropout) if at.type == "cpu" else on_gpu(torch.cuda.get_device_capability(at), asked, at)
    for name in NAMES:
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(name == chosen.name)
    # Compiled code that PyTorch keeps on the disk holds the kernel, but is found again by the operations alone.
    config: Any = torch.compiler.config
    config.cache_key_tag = f"{os.environ.get('TORCH_COMPILE_CACHE_KEY_TAG', '')} attention: {chosen.name}".strip()
    return chosen


def on_cpu(dropout: float) -> Attention:
    return Attention("flash", "products and softmax by themselves" if dropout else "PyTorch's flash kernel for CPUs")


def on_gpu(capability: Capability, asked: Asked, at: torch.device | None = None) -> Attention:
    """Return the kernel for a GPU of this compute capability.

    cuDNN's kernel is the fastest on Hopper and later, and takes a mask. FlashAttention needs Ampere. The
    memory-efficient kernel runs on every GPU and takes every type and a mask. `at`: the device, where cuDNN is asked
    what it can; None: it can all.
    """
    precision, old = asked.precision, f"compute capability {capability[0]}.{capability[1]}"
    if precision not in HALF:
        products = ", each product as three in TF32" if capability >= (8, 0) else ""
        return _efficient(f"the others have no {precision}", products)
    if asked.masked:
        if capability >= (9, 0) and _no_cudnn(asked, at) is None:
            return Attention("cudnn", f"cuDNN's kernel: {precision}, batches may have a mask, {old}")
        return _efficient("batches may have a mask, which FlashAttention does not take")
    if capability < (8, 0):
        return _efficient(f"FlashAttention needs compute capability 8.0, and the GPU has {old.split()[-1]}")
    if capability < (9, 0):
        return Attention("flash", f"FlashAttention: {precision} without a mask, {old}")
    if asked.several_lengths:
        words = f"FlashAttention: {precision}, and PyTorch has no other for samples of several lengths"
        return Attention("flash", words)
    if why := _no_cudnn(asked, at):
        return Attention("flash", f"FlashAttention: {precision} without a mask; cuDNN's kernel does not take {why}")
    return Attention("cudnn", f"cuDNN's kernel: {precision} without a mask, {old}")


def _efficient(why: str, products: str = "") -> Attention:
    return Attention("mem_efficient", f"memory-efficient kernel{products}: {why}")


def _no_cudnn(asked: Asked, at: torch.device | None) -> str | None:
    """Return what cuDNN's kernel does not take."""
    if asked.dropout * 16 % 1:
        return f"a dropout of {asked.dropout:g}, only multiples of 1/16"
    return None if cudnn_takes(asked, at) else "these shapes, or this PyTorch lacks it"


def cudnn_takes(asked: Asked, at: torch.device | None) -> bool:
    """Ask PyTorch whether cuDNN is there, and whether it takes these shapes; True if there is no device to ask."""
    if at is None:
        return True
    torch.backends.cuda.enable_cudnn_sdp(True)
    shape = (1, asked.heads, asked.length, asked.width)
    heads = torch.empty(shape, dtype=HALF[asked.precision], device=at, requires_grad=True)
    mask = torch.empty((1, 1, 1, asked.length), dtype=heads.dtype, device=at) if asked.masked else None
    given = torch.backends.cuda.SDPAParams(heads, heads, heads, mask, asked.dropout, False, False)
    return torch.backends.cuda.can_use_cudnn_attention(given)

"""Attention of a decoder by PyTorch's FlexAttention: windows, documents, soft caps and sinks in one kernel.

The kernel computes only the blocks of scores that a mask lets through, and stores none of them (Dong et al. 2024). It
exists in compiled code on GPUs. Elsewhere PyTorch computes all scores, without a backward pass on CPUs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from throughline.workloads import Unsupported
from throughline.workloads.hugging_face.architecture import Layer
from throughline.workloads.in_torch_attention import Attention
from throughline.workloads.in_torch_compiler import compiled

KERNEL = Attention("flex", "FlexAttention, compiled: windows, documents, soft caps and sinks in one kernel")


def refuse(at: torch.device, compiles: bool) -> None:
    """Raise Unsupported if FlexAttention cannot train on this device."""
    if at.type == "cpu":
        raise Unsupported("attention_kernel: PyTorch's FlexAttention has no backward pass on a CPU")
    if not compiles:
        raise Unsupported("attention_kernel: FlexAttention stores all scores unless compiled; set options.compile")


def block_mask(window: int | None, documents: Tensor | None, length: int, at: torch.device) -> BlockMask:
    """Return which blocks of scores [S, S] a layer computes; with the documents [B, S] of tokens, [B, 1, S, S]."""
    if documents is None:
        return _of_positions(window, length, at)

    def visible(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _before(query, key, window) & (documents[sample, query] == documents[sample, key])

    return _made(at)(visible, len(documents), None, length, length, device=at)  # type: ignore[no-any-return]


@cache
def _of_positions(window: int | None, length: int, at: torch.device) -> BlockMask:
    def visible(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _before(query, key, window)

    return _made(at)(visible, None, None, length, length, device=at)  # type: ignore[no-any-return]


def _before(query: Tensor, key: Tensor, window: int | None) -> Tensor:
    return query >= key if window is None else (query >= key) & (query - key < window)


@cache
def _made(at: torch.device) -> Any:
    """Return what makes masks. Uncompiled, it would hold a number for each of the S x S scores."""
    return create_block_mask if at.type == "cpu" else compiled(create_block_mask, None)


def attended(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, layer: Layer, mask: BlockMask) -> Tensor:
    """Return the attention [B, heads, S, width].

    A sink is one more score of each query, with no value. So it takes the share exp(sink) / (exp(sink) + sum) of the
    softmax, and the rest of the result is sigmoid(log sum - sink) of what it would be without a sink.
    """

    def capped(score: Tensor, sample: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        assert layer.softcap is not None
        return layer.softcap * torch.tanh(score / layer.softcap)

    mixed, aux = flex_attention(
        query,
        key,
        value,
        score_mod=None if layer.softcap is None else capped,
        block_mask=mask,
        scale=layer.scale,
        enable_gqa=query.shape[1] != key.shape[1],
        return_aux=AuxRequest(lse=sinks is not None),
    )
    if sinks is None:
        return mixed
    assert aux.lse is not None  # asked for
    return mixed * torch.sigmoid(aux.lse - sinks.to(aux.lse.dtype)[:, None])[..., None].to(mixed.dtype)

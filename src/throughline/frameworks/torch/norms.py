"""The norms of single tensors, tensors times factors of their own, and the three kinds of gradient clipping.

Nothing here waits for the device: there is no `.item()` and no Python branch that depends on a tensor.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from throughline.frameworks.rank import CLIP_AT

Tensors = list[Tensor] | tuple[Tensor, ...]
Norms = Callable[[Tensors, Sequence[Tensor]], Tensor]
"""Map n tensors, which have the shapes of the given parameters, to the vector [n] of their norms.

If the ranks hold parts of a parameter, this is the norm of the whole tensor.
"""
SMALL = 2**16
"""A GPU multiplies tensors of fewer elements together. Larger ones are worth a kernel each, because the kernel for
several tensors moves twice the bytes."""


def norms_here(tensors: Tensors, parameters: Sequence[Tensor]) -> Tensor:
    """Return the norms if every rank holds whole parameters."""
    return torch.stack(list(torch._foreach_norm(tensors)))


def clip(kind: str, parameters: Sequence[Tensor], norms: Norms = norms_here) -> None:
    """Clip the gradients in place."""
    clipped = [p for p in parameters if p.grad is not None]
    gradients = [p.grad for p in clipped if p.grad is not None]
    if kind == "value":
        torch.nn.utils.clip_grad_value_(clipped, CLIP_AT)
    elif kind == "global_norm":
        whole = torch.linalg.vector_norm(norms(gradients, clipped))
        torch._foreach_mul_(here(gradients), (CLIP_AT / (whole + 1e-6)).clamp(max=1.0))
    elif kind == "norm":
        scale_each(here(gradients), (CLIP_AT / (norms(gradients, clipped) + 1e-6)).clamp(max=1.0))


def here(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of tensors that this rank holds. They share memory with the tensors."""
    return [getattr(tensor, "_local_tensor", tensor) for tensor in tensors]


def scale_each(tensors: Tensors, factors: Tensor) -> None:
    """Multiply each of n tensors in place by its element of `factors` [n]."""
    if tensors[0].device.type == "cpu":
        torch._foreach_mul_(tensors, factors.unbind())
    else:
        scale_together(tensors, factors)


def scale_together(tensors: Tensors, factors: Tensor) -> None:
    """Do the same with few kernels."""
    small, large = by_size(tensors)
    if large:
        each = factors.unbind()
        torch._foreach_mul_([tensors[place] for place in large], [each[place] for place in large])
    if small:
        torch._foreach_copy_([tensors[place] for place in small], scaled(tensors, small, factors))


def add_scaled(targets: Tensors, tensors: Tensors, factors: Tensor) -> None:
    """Add to each of n targets in place the tensor of the same place, times its element of `factors` [n]."""
    small, large = by_size(tensors)
    if large:
        into, added, by = ([given[place] for place in large] for given in (targets, tensors, factors.unbind()))
        torch._foreach_addcmul_(into, added, by)
    if small:
        torch._foreach_add_([targets[place] for place in small], scaled(tensors, small, factors))


def by_size(tensors: Tensors) -> tuple[list[int], list[int]]:
    """Return the places of the small tensors, and those of the large ones."""
    sizes = [tensor.numel() for tensor in tensors]
    return [n for n, size in enumerate(sizes) if size < SMALL], [n for n, size in enumerate(sizes) if size >= SMALL]


def scaled(tensors: Tensors, places: list[int], factors: Tensor) -> list[Tensor]:
    """Return copies of the tensors at these places, times their elements of `factors`. Few kernels make them all."""
    asked = [tensors[place] for place in places]
    sizes = [tensor.numel() for tensor in asked]
    flat = torch.cat([tensor.reshape(-1) for tensor in asked])
    flat *= factors.index_select(0, owners(tuple(places), tuple(sizes), factors.device))
    return [part.view(tensor.shape) for part, tensor in zip(torch.split(flat, sizes), asked, strict=True)]


@lru_cache(maxsize=64)
def owners(places: tuple[int, ...], sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return for each element of concatenated tensors the place of its tensor. Only the first step copies it."""
    return torch.tensor(places, dtype=torch.int32).repeat_interleave(torch.tensor(sizes)).to(device)

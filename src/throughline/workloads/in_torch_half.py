"""A copy of weights in a 16-bit type, which all passes of a step read (`HalfCopy`). The weights themselves stay fp32.

Without it, every pass casts each weight where it is used, with a kernel of its own. With it, a few kernels cast all of
them once a step. The values that a product gets are the same, and so are the gradients that reach the weights: both to
the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

Places = tuple[tuple[int, ...], ...]
"""The places of some parameters in a list. Each inner tuple has those that one product takes, stacked."""


class Halved(NamedTuple):
    """The parameters that a part of a network takes, and copies of some of them: one tensor for each of `places`."""

    parameters: list[Tensor]
    places: Places
    copies: list[Tensor]


class HalfCopy:
    """The copies of all weights that a network has handed in."""

    def __init__(self, kind: torch.dtype) -> None:
        self.kind = kind
        self.weights: list[Tensor] = []
        self.parts: list[Tensor] = []

    @property
    def words(self) -> str:
        """The words of a record for what is copied."""
        count, name = sum(part.numel() for part in self.parts), str(self.kind).removeprefix("torch.")
        return f"{count:,} weights in {name}, made once a step before its passes; gradients go to the fp32 weights"

    def of(self, parameters: Sequence[Tensor], places: Places) -> Halved:
        """Return these parameters with copies of those at `places`. The copies are empty until `refresh`."""
        copies = []
        for group in places:
            members = [parameters[place] for place in group]
            copies.append(_empty(members, self.kind))
            self.weights += members
            self.parts += torch.split(copies[-1], [len(member) for member in members])
        return Halved(list(parameters), places, copies)

    @torch.no_grad()
    def refresh(self) -> None:
        """Write the present weights into the copies."""
        torch._foreach_copy_(self.parts, self.weights)


def _empty(members: Sequence[Tensor], kind: torch.dtype) -> Tensor:
    """Return a tensor for these weights, stacked. One alone keeps its memory format, such as channels last."""
    if len(members) == 1:
        return torch.empty_like(members[0], dtype=kind, requires_grad=False)
    rows = sum(len(member) for member in members)
    return members[0].new_empty((rows, *members[0].shape[1:]), dtype=kind, requires_grad=False)


class Standing(torch.autograd.Function):
    """Let copies stand for the weights that they were made of: the gradient of a copy goes to its weights.

    `rows`: for each copy, how many rows it has of each of its weights. `tensors`: all weights, then all copies.
    """

    @staticmethod
    def forward(ctx: Any, rows: tuple[tuple[int, ...], ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.rows, ctx.kind = rows, tensors[0].dtype
        return tuple(copy.view_as(copy) for copy in tensors[sum(map(len, rows)) :])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.compiler.is_compiling():  # the compiler puts these casts together with what computes the gradients
            wide = [gradient.to(ctx.kind) for gradient in gradients]
        else:
            wide = [torch.empty_like(gradient, dtype=ctx.kind) for gradient in gradients]
            torch._foreach_copy_(wide, gradients)
        each = [part for rows, whole in zip(ctx.rows, wide, strict=True) for part in torch.split(whole, rows)]
        return None, *each, *[None] * len(gradients)


def used(parameters: list[Tensor] | Halved) -> list[Tensor]:
    """Return the tensors that a part of a network computes with, in the order of the parameters.

    A copy has the place of the first parameter that it holds.
    """
    if not isinstance(parameters, Halved):
        return parameters
    own, places, copies = parameters
    rows, weights = (
        tuple(tuple(len(own[place]) for place in group) for group in places),
        [own[place] for group in places for place in group],
    )
    standing: Any = Standing.apply(rows, *weights, *copies)  # type: ignore[no-untyped-call]
    found = {group[0]: copy for group, copy in zip(places, standing, strict=True)}
    copied = {place for group in places for place in group}
    return [
        found[place] if place in found else own[place]
        for place in range(len(own))
        if place in found or place not in copied
    ]


class Named(NamedTuple):
    """Like Halved, of parameters that a part of a network takes by their names, in the same order."""

    names: list[str]
    halved: Halved


def by_name(parameters: dict[str, Tensor] | Named) -> dict[str, Tensor]:
    """Return the tensors that a part of a network computes with. A copy has the name of the first parameter in it."""
    if not isinstance(parameters, Named):
        return parameters
    rest = {place for group in parameters.halved.places for place in group[1:]}
    names = [name for place, name in enumerate(parameters.names) if place not in rest]
    return dict(zip(names, used(parameters.halved), strict=True))

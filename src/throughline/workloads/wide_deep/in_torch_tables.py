"""Tables of embeddings in PyTorch that are whole on every rank, or split over the ranks by columns or by rows.

Every rank has its own samples, and the loss is the mean over the ranks. For a split table, the ranks gather the ids of
all ranks (all-gather) and send vectors to the ranks that need them (all-to-all). The backward pass sends gradients in
the opposite direction. No rank sends a sparse tensor, because NCCL cannot exchange sparse tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import embedding

from throughline.workloads import Unsupported
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, all_gathered, sent

INITIAL = 0.05
"""Initial weights are drawn uniformly between this and its negative."""


class Table(nn.Module):
    """A table that looks up rows by their ids.

    `lazy`: the gradient is sparse and names single rows; otherwise it is dense. `exchange=False`: each rank trains
    alone. `apart`: there are several ranks, so a split table has no rows before `spread`, and no rank ever holds the
    whole table.
    """

    ranks: TensorGroup | None = None

    def __init__(self, rows: int, columns: int, split: str, lazy: bool, gradient_sync: bool, apart: bool) -> None:
        super().__init__()
        self.rows, self.columns, self.split, self.lazy, self.gradient_sync = rows, columns, split, lazy, gradient_sync
        held = 0 if apart and split != "replicated" else rows
        self.weight = nn.Parameter(torch.empty(held, columns).uniform_(-INITIAL, INITIAL))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows [B, fields, columns] of ids i8[B, fields]."""
        if self.split == "replicated" and not self.lazy:
            return embedding(ids, self.weight)  # its dense gradient is exchanged like any other
        look: dict[str, Callable[..., Tensor]] = {"replicated": WHOLE, "columns": COLUMNS, "rows": ROWS}
        ranks = self.ranks if self.gradient_sync else None
        return look[self.split if ranks else "replicated"](self.weight, ids, self.lazy, ranks, self.columns)

    @property
    def words(self) -> str:
        parted = "whole on every rank" if self.split == "replicated" else f"split by {self.split} over the ranks"
        return f"{self.rows} x {self.columns}, {parted}"

    def spread(self, ranks: TensorGroup) -> None:
        """Share this table with other ranks: keep a part of it, or exchange its gradient."""
        if self.split == "columns" and self.columns < ranks.size:
            raise Unsupported(f"{self.columns} columns of a table cannot be split over {ranks.size} ranks")
        self.ranks = ranks
        if self.split != "replicated":
            # Up to here the ranks have drawn the same numbers. Now each rank draws its own rows or columns.
            draw = torch.Generator().manual_seed(int(torch.randint(2**62, ())) + ranks.place)
            shape = self.part(np.broadcast_to(0, (self.rows, self.columns))).shape
            self.weight.data = torch.empty(shape).uniform_(-INITIAL, INITIAL, generator=draw)

    def part(self, whole: Any) -> Any:
        """Return this rank's part of a whole table: neighbouring columns, or every W-th row with W ranks."""
        if self.ranks is None or self.split == "replicated":
            return whole
        if self.split == "rows":
            return whole[self.ranks.place :: self.ranks.size]
        ends = columns_of(self.columns, self.ranks.size)
        return whole[:, ends[self.ranks.place] : ends[self.ranks.place + 1]]

    def whole(self) -> Any:
        """Return the whole table as an array. All ranks that share it have to call this together."""
        held = self.weight.detach().cpu().numpy()
        if self.ranks is None or self.split == "replicated":
            return held
        parts: list[Any] = [None] * self.ranks.size
        dist.all_gather_object(parts, held, group=self.ranks.group)
        if self.split == "columns":
            return np.concatenate(parts, 1)
        whole = np.empty((self.rows, self.columns), held.dtype)
        for rank, part in enumerate(parts):
            whole[rank :: self.ranks.size] = part
        return whole


def columns_of(columns: int, size: int) -> list[int]:
    """Return the first column of each rank, and the end of the last rank's columns."""
    return [columns * rank // size for rank in range(size + 1)]


def gradient(table: Tensor, ids: Tensor, vectors: Tensor, lazy: bool) -> Tensor:
    """Return a table's gradient from the gradients of its rows. Ids may repeat: their gradients add up."""
    vectors = vectors.reshape(-1, table.shape[1])
    if lazy:
        # Without checks, which would wait for the device.
        return torch.sparse_coo_tensor(ids.reshape(1, -1), vectors, table.shape, check_invariants=False)
    return torch.zeros_like(table).index_add_(0, ids.flatten(), vectors)


class Whole(torch.autograd.Function):
    """Every rank has the whole table. The backward pass gathers the ids and gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, lazy: bool, ranks: TensorGroup | None, columns: int) -> Tensor:
        ctx.save_for_backward(table, ids)
        ctx.lazy, ctx.ranks = lazy, ranks
        return embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, vectors: Tensor) -> tuple[Tensor | None, ...]:
        table, ids = ctx.saved_tensors
        if ctx.ranks:
            ids, vectors = all_gathered(ids, ctx.ranks.group), all_gathered(vectors / ctx.ranks.size, ctx.ranks.group)
        return gradient(table, ids, vectors, ctx.lazy), None, None, None, None


class Columns(torch.autograd.Function):
    """Every rank has some columns. It looks them up for the samples of all ranks, and sends each rank its vectors."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, lazy: bool, ranks: TensorGroup, columns: int) -> Tensor:
        every = all_gathered(ids, ranks.group)
        ctx.save_for_backward(table, every)
        ctx.lazy, ctx.ranks = lazy, ranks
        ctx.widths = [end - begin for begin, end in itertools.pairwise(columns_of(columns, ranks.size))]
        ctx.own = [ids.numel() * table.shape[1]] * ranks.size
        ctx.others = [ids.numel() * width for width in ctx.widths]
        parts = sent(embedding(every, table).flatten(), ctx.own, ctx.others, ranks.group)
        each = zip(torch.split(parts, ctx.others), ctx.widths, strict=True)
        return torch.cat([part.view(*ids.shape, width) for part, width in each], 2)

    @staticmethod
    def backward(ctx: Any, vectors: Tensor) -> tuple[Tensor | None, ...]:
        table, every = ctx.saved_tensors
        parts = torch.cat([part.flatten() for part in torch.split(vectors / ctx.ranks.size, ctx.widths, 2)])
        here = sent(parts, ctx.others, ctx.own, ctx.ranks.group)
        return gradient(table, every, here, ctx.lazy), None, None, None, None


class Rows(torch.autograd.Function):
    """Rank r of W has the rows r, r + W, ...: so all ranks share the frequent ids, which are often neighbours.

    How many vectors go to each rank depends on the ids. So every forward pass waits once for numbers of the device.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, lazy: bool, ranks: TensorGroup, columns: int) -> Tensor:
        size, rank = ranks.size, ranks.place
        every = all_gathered(ids.flatten(), ranks.group).view(size, -1)
        owners = every % size
        pairs = owners + size * torch.arange(size, device=ids.device)[:, None]
        counted = torch.zeros(size**2, dtype=pairs.dtype, device=ids.device)
        counted.index_add_(0, pairs.flatten(), torch.ones_like(pairs).flatten())
        counts = counted.view(size, size).tolist()
        ctx.sizes, ctx.received = [asked[rank] for asked in counts], counts[rank]
        mine = torch.nonzero_static((owners == rank).flatten(), size=sum(ctx.sizes))[:, 0]
        local = every.flatten().index_select(0, mine) // size
        ctx.order = owners[rank].argsort(stable=True)
        ctx.save_for_backward(table, local)
        ctx.lazy, ctx.ranks = lazy, ranks
        parts = sent(embedding(local, table), ctx.sizes, ctx.received, ranks.group)
        return torch.empty_like(parts).index_copy_(0, ctx.order, parts).view(*ids.shape, -1)

    @staticmethod
    def backward(ctx: Any, vectors: Tensor) -> tuple[Tensor | None, ...]:
        table, local = ctx.saved_tensors
        parts = (vectors.flatten(0, 1) / ctx.ranks.size)[ctx.order]
        here = sent(parts, ctx.received, ctx.sizes, ctx.ranks.group)
        return gradient(table, local, here, ctx.lazy), None, None, None, None


WHOLE: Callable[..., Tensor] = Whole.apply
COLUMNS: Callable[..., Tensor] = Columns.apply
ROWS: Callable[..., Tensor] = Rows.apply

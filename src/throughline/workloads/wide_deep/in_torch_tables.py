"""Tables of embeddings in PyTorch that are whole on every rank, or split over the ranks by columns or by rows.

Every rank has its own samples, and the loss is the mean over the ranks. For a split table, the ranks gather all ids
(all-gather) and send vectors to the ranks that need them (all-to-all); gradients travel back. No rank sends a sparse
tensor, because NCCL cannot.
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
from throughline.workloads.in_torch_tensor_parallel import ALL_TO_ALL, TensorGroup, all_gathered

INITIAL = 0.05
"""Initial weights are drawn uniformly between this and its negative."""


class Table(nn.Module):
    """A table that looks up rows by their ids.

    `lazy`: the gradient is sparse and names single rows. `gradient_sync=False`: each rank trains alone. `apart`: there
    are several ranks, so a split table has no rows before `spread`, and no rank ever holds the whole table.
    """

    ranks: TensorGroup | None = None

    def __init__(self, rows: int, columns: int, split: str, lazy: bool, gradient_sync: bool, apart: bool) -> None:
        super().__init__()
        self.rows, self.columns, self.split, self.lazy, self.gradient_sync = rows, columns, split, lazy, gradient_sync
        held = 0 if apart and split != "replicated" else rows
        self.weight = nn.Parameter(torch.empty(held, columns).uniform_(-INITIAL, INITIAL))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows [B, fields, columns] of ids i8[B, fields]."""
        ranks = self.ranks if self.gradient_sync else None
        if ranks and self.split == "columns":
            return self.looked_up_by_columns(ids, ranks)
        if ranks and self.split == "rows":
            return self.looked_up_by_rows(ids, ranks)
        if ranks and self.lazy:
            return SPARSE_OF_ALL(self.weight, ids, ranks)
        return embedding(ids, self.weight, sparse=self.lazy)  # a dense gradient is exchanged like any other

    def looked_up_by_columns(self, ids: Tensor, ranks: TensorGroup) -> Tensor:
        """Every rank looks up its columns for the samples of all ranks, and sends each rank its vectors."""
        widths = [end - begin for begin, end in itertools.pairwise(columns_of(self.columns, ranks.size))]
        sent, received = [ids.numel() * self.weight.shape[1]] * ranks.size, [ids.numel() * width for width in widths]
        vectors = embedding(all_gathered(ids, ranks.group), self.weight, sparse=self.lazy).flatten()
        parts = torch.split(ALL_TO_ALL(vectors, sent, received, ranks.group, 1 / ranks.size), received)
        return torch.cat([part.view(*ids.shape, width) for part, width in zip(parts, widths, strict=True)], 2)

    def looked_up_by_rows(self, ids: Tensor, ranks: TensorGroup) -> Tensor:
        """Rank r of W has the rows r, r + W, ...: so all ranks share the frequent ids, which are often neighbours.

        How many vectors go to each rank depends on the ids. So this waits once for numbers of the device.
        """
        size, rank = ranks.size, ranks.place
        every = all_gathered(ids.flatten(), ranks.group).view(size, -1)
        owners = every % size
        pairs = owners + size * torch.arange(size, device=ids.device)[:, None]
        counted = torch.zeros(size**2, dtype=pairs.dtype, device=ids.device)
        counted.index_add_(0, pairs.flatten(), torch.ones_like(pairs).flatten())
        counts = counted.view(size, size).tolist()
        sizes, received = [asked[rank] for asked in counts], counts[rank]
        mine = torch.nonzero_static((owners == rank).flatten(), size=sum(sizes))[:, 0]
        local = every.flatten().index_select(0, mine) // size
        vectors = embedding(local, self.weight, sparse=self.lazy)
        parts = ALL_TO_ALL(vectors, sizes, received, ranks.group, 1 / size)
        order = owners[rank].argsort(stable=True)
        return torch.empty_like(parts).index_copy_(0, order, parts).view(*ids.shape, -1)

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


class SparseOfAll(torch.autograd.Function):
    """Look up rows of a table that every rank has whole.

    The backward pass gathers the ids and gradients of all ranks. The table's gradient names single rows.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, ranks: TensorGroup) -> Tensor:
        ctx.save_for_backward(table, ids)
        ctx.ranks = ranks
        return embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, vectors: Tensor) -> tuple[Tensor, None, None]:
        table, ids = ctx.saved_tensors
        every = all_gathered(ids, ctx.ranks.group).reshape(1, -1)
        vectors = all_gathered(vectors / ctx.ranks.size, ctx.ranks.group).reshape(-1, table.shape[1])
        # Without checks, which would wait for the device.
        return torch.sparse_coo_tensor(every, vectors, table.shape, check_invariants=False), None, None


SPARSE_OF_ALL: Callable[..., Tensor] = SparseOfAll.apply

"""Tensor parallelism in PyTorch: what the ranks that share a replica hold and exchange, for all workloads.

It follows Shoeybi et al. 2019 (Megatron-LM), section 3. If two matrices follow each other, the first is cut by columns
and the second by rows. So each rank computes its own part of the activations between them. `copied` is the beginning of
such a region and costs one all-reduce in the backward pass. `row_parallel_linear` is its end and costs one all-reduce
in the forward pass. If `ranks` is None, one rank holds everything.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import linear

from throughline.workloads import Arrays
from throughline.workloads.in_torch_operations import all_gather_single, by_rows, reduce_scatter_single

Sections = tuple[int, ...]
Function = Callable[[Tensor, dist.ProcessGroup], Tensor]


class TensorGroup:
    """The ranks that share a replica, in the order of their parts. `place` is the position of this rank."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.size, self.place = group, group.size(), group.rank()
        self.dimensions: Mapping[str, int] = {}
        """Map the name of each parameter that is cut to the dimension along which it is cut."""
        self.sections: Mapping[str, Sections] = {}
        """Map the name of a parameter that consists of several matrices to their sizes. Each of them is cut."""

    def part(self, whole: Tensor, dimension: int, sections: Sections = ()) -> Tensor:
        """Return this rank's part of a tensor that is cut along a dimension into equal parts, or of each section."""
        if sections:
            return torch.cat(
                [self.part(one, dimension) for one in torch.split(whole, list(sections), dimension)], dimension
            )
        length = whole.shape[dimension]
        if length % self.size:
            raise ValueError(f"{length} does not divide by {self.size}")
        return whole.narrow(dimension, self.place * (length // self.size), length // self.size)

    def whole(self, part: Tensor, dimension: int, sections: Sections = ()) -> Tensor:
        """Return the whole tensor from the parts of the ranks. All ranks have to call this together."""
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(parts, part.contiguous(), group=self.group)
        sizes = [size // self.size for size in sections] or [part.shape[dimension]]
        each = zip(*(torch.split(one, sizes, dimension) for one in parts), strict=True)
        return torch.cat([one for section in each for one in section], dimension)

    def part_of(self, name: str, whole: Tensor) -> Tensor:
        """Return this rank's part of the whole parameter of this name."""
        if name not in self.dimensions:
            return whole
        return self.part(whole, self.dimensions[name], self.sections.get(name, ()))

    def cut(
        self, network: nn.Module, dimensions: Mapping[str, int], sections: Mapping[str, Sections] | None = None
    ) -> None:
        """Cut the parameters of these names along their dimensions, and keep this rank's parts."""
        self.dimensions, self.sections = dimensions, sections or {}
        with torch.no_grad():
            for name in dimensions:
                parameter = network.get_parameter(name)
                parameter.data = self.part_of(name, parameter).clone(memory_format=torch.contiguous_format)

    def local_arrays(self, weights: Arrays) -> Arrays:
        """Return this rank's parts of whole weights, and the weights that are not cut."""
        cut = {name: self.part_of(name, torch.from_numpy(weights[name])).numpy() for name in self.dimensions}
        return {**weights, **cut}

    def whole_arrays(self, network: nn.Module) -> Arrays:
        """Return the whole weights of a network. All ranks have to call this together."""
        parts = {name: parameter.detach() for name, parameter in network.named_parameters()}
        cut = {
            name: self.whole(parts[name], axis, self.sections.get(name, ())) for name, axis in self.dimensions.items()
        }
        return {name: tensor.cpu().numpy() for name, tensor in {**parts, **cut}.items()}

    def local(self, ids: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Return the ids counted from this rank's first row of a table, and a mask of the ids that other ranks hold.

        `rows` is how many rows each rank holds. The ids of other ranks become 0.
        """
        here = ids - self.place * rows
        others = (here < 0) | (here >= rows)
        return here.masked_fill(others, 0), others

    def cross_entropy(self, scores: Tensor, labels: Tensor, kind: torch.dtype) -> Tensor:
        """Cross entropies [N], computed in `kind`, of scores [N, this rank's columns] and labels [N] in all columns.

        The ranks exchange two numbers for each row, and no scores.
        """
        return CROSS_ENTROPY(scores, *self.local(labels, scores.shape[1]), kind, self)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def with_own_seed(self, operation: Callable[..., Tensor], first: Tensor, *rest: Any) -> Tensor:
        """Return operation(first, *rest), computed with random numbers that differ from those of the other ranks.

        Elsewhere the ranks of a replica draw the same random numbers. The seed is drawn from these common numbers. A
        recomputation sets the common generator back, so it draws the same seed again. The seed is drawn on the CPU, so
        nothing waits for a GPU.
        """
        seed = int(torch.randint(2**62, (), device="cpu"))
        on_gpu = first.device.type == "cuda"
        generator = torch.cuda.default_generators[first.device.index] if on_gpu else torch.default_generator
        shared = generator.get_state()
        generator.manual_seed(seed + self.place)
        try:
            return operation(first, *rest)
        finally:
            generator.set_state(shared)


def copied(hidden: Tensor, ranks: TensorGroup | None) -> Tensor:
    """Return the same tensor. The backward pass adds up the gradients of all ranks."""
    return EXCHANGE(hidden, same, all_reduced, ranks.group) if ranks else hidden


def reduced(part: Tensor, ranks: TensorGroup | None) -> Tensor:
    """Return the sum of the tensors of all ranks."""
    return EXCHANGE(part, all_reduced, same, ranks.group) if ranks else part


def gathered(rows: Tensor, ranks: TensorGroup) -> Tensor:
    """Return the rows [N x R, ...] of all N ranks. In the backward pass each rank gets the sum of the gradients of its
    R rows."""
    return EXCHANGE(rows, all_gathered, reduce_scattered, ranks.group)


def scattered(part: Tensor, ranks: TensorGroup) -> Tensor:
    """Return this rank's rows [R, ...] of the sum of the tensors [N x R, ...] of all ranks."""
    return EXCHANGE(part, reduce_scattered, all_gathered, ranks.group)


def row_parallel_linear(part: Tensor, weight: Tensor, bias: Tensor, ranks: TensorGroup | None) -> Tensor:
    """A linear layer whose matrix is cut by rows. The bias is whole and is added once."""
    return reduced(linear(part, weight), ranks) + bias.to(part.dtype) if ranks else linear(part, weight, bias)


def same(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    return tensor.view_as(tensor)


def all_reduced(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def all_gathered(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    all_rows = rows.new_empty((group.size() * len(rows), *rows.shape[1:]))
    all_gather_single(all_rows, rows.contiguous(), group=group)
    return all_rows


def reduce_scattered(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    rows = part.new_empty((len(part) // group.size(), *part.shape[1:]))
    reduce_scatter_single(rows, part.contiguous(), group=group)
    return rows


def all_to_all(rows: Tensor, sizes: list[int], received: list[int], group: dist.ProcessGroup) -> Tensor:
    """All-to-all: send the first `sizes[0]` rows to the first rank, and so on. `received` is how many come from each
    rank."""
    here = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(here, rows, received, sizes, group=group)
    return here


class Exchange(torch.autograd.Function):
    """A function of a tensor and a group of ranks, and in the backward pass another function of the gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, forward: Function, backward: Function, group: dist.ProcessGroup) -> Tensor:
        ctx.function, ctx.group = backward, group
        return forward(tensor, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.function(gradient, ctx.group), None, None, None


class AllToAll(torch.autograd.Function):
    """Rows that all ranks send to each other. In the backward pass their gradients travel back, times `factor`."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sizes: list[int], received: list[int], group: dist.ProcessGroup, factor: float
    ) -> Tensor:
        ctx.back, ctx.factor = (received, sizes, group), factor
        return all_to_all(rows.contiguous(), sizes, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return all_to_all(gradient * ctx.factor, *ctx.back), None, None, None, None


class CrossEntropy(torch.autograd.Function):
    """Cross entropies of scores whose columns are cut. A CPU computes some rows at a time: they stay in its caches, and
    no second tensor of the size of the scores is needed."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, labels: Tensor, others: Tensor, kind: torch.dtype, ranks: TensorGroup
    ) -> Tensor:
        sums = torch.cat([some.to(kind).logsumexp(1) for (some,) in some_rows(scores)])
        right = scores.gather(1, labels[:, None])[:, 0].to(kind).masked_fill(others, 0)
        of_all = ranks.whole(torch.stack([sums, right])[None], 0)
        total = of_all[:, 0].logsumexp(0)
        ctx.save_for_backward(scores, labels, others, total)
        return total - of_all[:, 1].sum(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        """The gradient is softmax - label, for this rank's columns."""
        scores, labels, others, total = ctx.saved_tensors
        result = torch.empty_like(scores)
        right = others.to(total.dtype) - 1
        for some, label, there, sums, scale, part in some_rows(scores, labels, right, total, gradient, result):
            softmax = (some.to(total.dtype) - sums[:, None]).exp_()
            softmax.scatter_add_(1, label[:, None], there[:, None])
            part.copy_(softmax.mul_(scale[:, None]))
        return result, None, None, None, None


def some_rows(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split all tensors into parts of some rows; the first tensor is the widest. On a GPU, or while PyTorch compiles,
    return them whole."""
    eager_on_cpu = tensors[0].device.type == "cpu" and not torch.compiler.is_compiling()
    return by_rows(*tensors) if eager_on_cpu else iter([tensors])


EXCHANGE: Callable[[Tensor, Function, Function, dist.ProcessGroup], Tensor] = Exchange.apply
ALL_TO_ALL: Callable[..., Tensor] = AllToAll.apply
CROSS_ENTROPY: Callable[..., Tensor] = CrossEntropy.apply

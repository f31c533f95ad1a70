"""Adam and AdamW for tables of which a step updates only the rows that its samples name."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


class ByRows(torch.optim.Optimizer):
    """Adam or AdamW of only the rows that a sparse gradient names. All other rows and their moments do not change.

    This is the same as TensorFlow's LazyAdam and PyTorch's SparseAdam, except that epsilon is added at the same place
    as in the other optimizers here. The bias of the moments is corrected by the number of all steps.
    """

    as_named = False
    """True: name rows as on a GPU. On a CPU this is slower, so it is for tests."""

    def __init__(self, params: Any, **constants: Any) -> None:
        super().__init__(params, constants)
        self.places: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for table in group["params"]:
                self._update(group, table, *self._named(table))

    def _named(self, table: Tensor) -> tuple[Tensor, Tensor]:
        gradient: Any = table.grad
        if table.device.type == "cpu" and not self.as_named:
            return rows_once(gradient)
        if table not in self.places:
            self.places[table] = torch.empty(len(table), dtype=torch.int32, device=table.device)
        return rows_as_named(gradient, self.places[table])

    def _update(self, group: dict[str, Any], table: Tensor, rows: Tensor, gradients: Tensor) -> None:
        state = self.state[table]
        if not state:
            state.update(mean=torch.zeros_like(table), square=torch.zeros_like(table))
        (beta1, beta2), decay = group["betas"], group["weight_decay"]
        correct1, correct2 = 1 - beta1 ** group["step"], 1 - beta2 ** group["step"]
        weights = table.index_select(0, rows)
        if decay and not group["decoupled"]:
            gradients = gradients.add(weights, alpha=decay)
        means = state["mean"].index_select(0, rows).lerp_(gradients, 1 - beta1)
        squares = state["square"].index_select(0, rows).mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
        state["mean"].index_copy_(0, rows, means)
        state["square"].index_copy_(0, rows, squares)
        if decay and group["decoupled"]:
            weights.mul_(1 - group["lr"] * decay)
        roots = squares.div_(correct2).sqrt_().add_(group["eps"])
        table.index_copy_(0, rows, weights.addcdiv_(means, roots, value=-group["lr"] / correct1))


def rows_once(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that a sparse gradient names, each once and sorted, and the sum of the gradients of each row.

    How many rows there are depends on values, so this waits for a GPU. On a CPU it is nearly three times as fast as
    `coalesce`, which adds vectors one by one.
    """
    ordered, places = gradient._indices()[0].sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = is_first.nonzero()[:, 0]
    return ordered[starts], embedding_bag(places, gradient._values(), starts, mode="sum")


def rows_as_named(gradient: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a sparse gradient as often as it names them, and for each the sum of all its gradients.

    A row that is named twice gets the same update twice, and writing it twice changes nothing. No shape depends on
    values, so nothing waits for the device. `places`, an integer for each row of the table, keeps one of the places in
    `rows` at which the row stands.
    """
    rows, values = gradient._indices()[0], gradient._values()
    places.index_copy_(0, rows, torch.arange(len(rows), dtype=places.dtype, device=rows.device))
    first = places.index_select(0, rows)
    return rows, torch.zeros_like(values).index_add_(0, first, values).index_select(0, first)

"""PyTorch's optimizers by their names in config.yaml, our LAMB, and the three kinds of gradient clipping.

Nothing here waits for the device: there is no `.item()` and no Python branch that depends on a tensor.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from throughline.frameworks.rank import CLIP_AT
from throughline.spec import Optimizer as Settings

Tensors = list[Tensor] | tuple[Tensor, ...]
Norms = Callable[[Tensors, Sequence[Tensor]], Sequence[Tensor]]
"""Map tensors, which have the shapes of the given parameters, to their norms.

If the ranks hold parts of a parameter, this is the norm of the whole tensor.
"""

Maker = Callable[..., torch.optim.Optimizer]


def norms_here(tensors: Tensors, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norms if every rank holds whole parameters."""
    return torch._foreach_norm(tensors)


def build(
    settings: Settings,
    parameters: Sequence[Tensor],
    norms: Norms = norms_here,
    shared_by: Maker | None = None,
    by_rows: Sequence[Tensor] = (),
) -> Any:
    """Return the optimizer. Weight decay applies to matrices only, not to biases and norms.

    shared_by(groups, kind, **constants): makes an optimizer that is divided among the ranks; every rank's part is a
    `kind`. by_rows: tables of which only the rows that a gradient names are updated (Adam and AdamW).
    """
    apart = set(by_rows)
    parameters = [parameter for parameter in parameters if parameter not in apart]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    if settings.name == "sgd":
        constants: dict[str, Any] = {"lr": settings.learning_rate, "momentum": settings.momentum}
    else:
        constants = {"lr": settings.learning_rate, "betas": settings.betas, "eps": settings.epsilon}
    kinds: dict[str, Maker] = {
        "adamw": partial(torch.optim.AdamW, fused=True),
        "adam": partial(torch.optim.Adam, fused=True),
        "lamb": partial(Lamb, norms=norms),
        "sgd": partial(Sgd, fused=True),
    }
    kind = kinds[settings.name]
    update = shared_by(groups, kind, **constants) if shared_by else kind(groups, **constants)
    if not by_rows:
        return update
    decay = settings.weight_decay
    return MostAndTables(update, ByRows(by_rows, **constants, weight_decay=decay, decoupled=settings.name == "adamw"))


class ByRows(torch.optim.Optimizer):
    """Adam or AdamW of only the rows that a sparse gradient names. All other rows and their moments do not change.

    This is the same as TensorFlow's LazyAdam and PyTorch's SparseAdam, except that epsilon is added at the same place
    as in the other optimizers here. The bias of the moments is corrected by the number of all steps.
    """

    def __init__(self, params: Any, **constants: Any) -> None:
        super().__init__(params, constants)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for table in group["params"]:
                self._update(group, table, *named_rows(table.grad))

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


def named_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that a sparse gradient names, each once and sorted, and the sum of the gradients of each row."""
    if gradient.is_cuda:
        whole = gradient.coalesce()
        return whole.indices()[0], whole.values()
    # On a CPU, `coalesce` adds vectors one by one and takes nearly three times as long as this.
    ordered, places = gradient._indices()[0].sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = is_first.nonzero()[:, 0]
    return ordered[starts], embedding_bag(places, gradient._values(), starts, mode="sum")


class MostAndTables:
    """Two optimizers that act as one: one for most tensors, and one for the tables that are updated by rows."""

    def __init__(self, most: torch.optim.Optimizer, tables: torch.optim.Optimizer) -> None:
        self.optimizers = {"most": most, "tables": tables}
        self.param_groups = [*most.param_groups, *tables.param_groups]

    def step(self) -> None:
        for optimizer in self.optimizers.values():
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(states[name])


class Sgd(torch.optim.SGD):
    """PyTorch's SGD with a momentum that is zero before the first step.

    PyTorch creates the momentum in the first step. If a loss scaler skips that step, PyTorch leaves the momentum
    uninitialized.
    """

    def __init__(self, params: Any, **constants: Any) -> None:
        super().__init__(params, **constants)
        for group in self.param_groups:
            if group["momentum"]:
                self.state.update({weight: {"momentum_buffer": torch.zeros_like(weight)} for weight in group["params"]})


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, algorithm 2, with bias correction). It computes on whole lists of tensors at once.

    A loss scaler sets `grad_scale` (its scale) and `found_inf` (whether a gradient overflowed), both on the device. A
    step with an overflow changes nothing, and nothing has to wait for the device to find this out.
    """

    _step_supports_amp_scaling = True
    grad_scale: Tensor | None
    found_inf: Tensor | None

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        norms: Norms = norms_here,
    ) -> None:  # with defaults, because Horovod's DistributedOptimizer makes another one from the groups alone
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.norms = norms

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._update(group, weights, *self._unscaled([p.grad for p in weights]))

    def _unscaled(self, gradients: list[Tensor]) -> tuple[list[Tensor], Tensor | None]:
        """Return the gradients without the loss scale, and whether the step counts, as 1 or 0 on the device.

        After an overflow the gradients are zeros. Without a scaler the second value is None: the step counts.
        """
        overflows = getattr(self, "found_inf", None)
        if overflows is None:
            return gradients, None
        scale = getattr(self, "grad_scale", None)
        inverse = torch.ones_like(overflows) if scale is None else scale.double().reciprocal().to(overflows.dtype)
        counts = 1 - overflows.clamp(max=1)
        zero = torch.zeros_like(overflows)
        return [torch.where(counts > 0, gradient * inverse, zero) for gradient in gradients], counts

    def _update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], counts: Tensor | None
    ) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        beta1, beta2 = group["betas"]
        step: Any = group.get("step", 0) + (1 if counts is None else counts.double())
        group["step"] = step
        correct1, correct2 = 1 - beta1**step, 1 - beta2**step
        if counts is not None:
            # In a step that does not count, the betas become 1. Before the first step that counts, the corrections
            # would be 0; they become 1.
            beta1, beta2 = 1 - (1 - beta1) * counts, 1 - (1 - beta2) * counts
            correct1, correct2 = (
                (correction + (correction == 0)).to(counts.dtype) for correction in (correct1, correct2)
            )
        means = [self.state[weight]["mean"] for weight in weights]
        squares = [self.state[weight]["square"] for weight in weights]
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, gradients, alpha=1 - group["betas"][0])
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - group["betas"][1])

        bottoms = torch._foreach_div(squares, correct2)
        torch._foreach_sqrt_(bottoms)
        torch._foreach_add_(bottoms, group["eps"])
        updates = torch._foreach_div(means, correct1)
        torch._foreach_div_(updates, bottoms)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])

        sizes, lengths = self.norms(weights, weights), self.norms(updates, weights)
        one = torch.ones((), device=weights[0].device)
        ratios = [
            torch.where((size > 0) & (length > 0), size / length, one)
            for size, length in zip(sizes, lengths, strict=True)
        ]
        torch._foreach_mul_(updates, ratios if counts is None else [ratio * counts for ratio in ratios])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])


def clip(kind: str, parameters: Sequence[Tensor], norms: Norms = norms_here) -> None:
    """Clip the gradients in place."""
    clipped = [p for p in parameters if p.grad is not None]
    gradients: list[Any] = [p.grad for p in clipped]
    if kind == "value":
        torch.nn.utils.clip_grad_value_(clipped, CLIP_AT)
    elif kind == "global_norm":
        total = torch.linalg.vector_norm(torch.stack(list(norms(gradients, clipped))))
        torch.nn.utils.clip_grads_with_norm_(clipped, CLIP_AT, total)
    elif kind == "norm":
        scales = [(CLIP_AT / (norm + 1e-6)).clamp(max=1.0) for norm in norms(gradients, clipped)]
        torch._foreach_mul_(gradients, scales)

"""PyTorch's optimizers by their names in config.yaml, as this project sets them up."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from throughline.frameworks.torch.lamb import Lamb
from throughline.frameworks.torch.norms import Norms, norms_here
from throughline.frameworks.torch.rows import ByRows
from throughline.spec import Optimizer as Settings

Maker = Callable[..., torch.optim.Optimizer]


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
    tables = set(by_rows)
    parameters = [parameter for parameter in parameters if parameter not in tables]
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
        "bertadam": partial(BertAdam, fused=True),
        "lamb": partial(Lamb, norms=norms),
        "sgd": partial(Sgd, fused=True),
    }
    kind = kinds[settings.name]
    update = shared_by(groups, kind, **constants) if shared_by else kind(groups, **constants)
    if not by_rows:
        return update
    decay = settings.weight_decay
    return MostAndTables(update, ByRows(by_rows, **constants, weight_decay=decay, decoupled=settings.name == "adamw"))


LATE = 1e15
"""A step so late that beta ** step is 0 for every beta in use, and so large that one more changes nothing in fp32."""


class BertAdam(torch.optim.AdamW):
    """AdamW without correction of the bias, as in BERT's own code and in GluonNLP's BERTAdam.

    It is PyTorch's own kernel, which divides the moments by 1 - beta ** step. Every step counts as a very late one, so
    it divides by 1.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and not self.state[weight]:
                    late = torch.full((), LATE, dtype=torch.float32, device=weight.device)
                    moments = {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
                    self.state[weight] = {"step": late, **moments}
        return super().step(closure)


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

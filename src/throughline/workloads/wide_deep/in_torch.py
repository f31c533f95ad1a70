"""Wide & deep in PyTorch, with tables that are whole on every rank, or split over the ranks (`in_torch_tables.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear, relu

from throughline import workloads
from throughline.topology import Topology
from throughline.workloads import Arrays, Unsupported
from throughline.workloads.in_torch_operations import dropped, versions
from throughline.workloads.in_torch_tensor_parallel import TensorGroup
from throughline.workloads.wide_deep import BINS, CROSSES, FIELDS, NUMBERS, Parameters
from throughline.workloads.wide_deep.in_torch_tables import Table

__all__ = ["CHANGING", "LACKS", "build", "load", "settings", "spread", "sums", "versions", "weights"]

CHANGING: frozenset[str] = frozenset()
LACKS = {
    "amp": "a loss scaler does not know gradients of single rows",
    "accumulation": "rows of a table are updated after every batch",
    "clipping": "the norm of a gradient of single rows is not computed",
}


def build(spec: dict[str, Any], facts: dict[str, Any], at: torch.device | None = None) -> WideDeep:
    """Return the network with random weights. If ranks split its tables, `spread` fills them."""
    given, options, optimizer = workloads.parameters(spec), spec["options"], spec["optimizer"]["name"]
    special = given.update == "lazy" or given.table != "replicated"
    if special and optimizer not in ("adam", "adamw"):
        raise Unsupported(f"only Adam and AdamW can train tables that are split or updated by rows, not {optimizer}")
    if given.table != "replicated" and not options["exchange"]:
        raise Unsupported("ranks that split a table cannot train without exchanging its rows")
    return WideDeep(given, options["dropout"], options["exchange"], Topology.parse(spec["topology"]).world > 1)


def spread(network: WideDeep, ranks: TensorGroup) -> frozenset[str]:
    """Keep this rank's part of the tables. Return the names of the parameters that the network exchanges itself."""
    for table in network.tables:
        table.spread(ranks)
    return frozenset(f"{name}.weight" for name in ("deep", "wide"))


def weights(network: WideDeep) -> Arrays:
    """Return the whole weights. If ranks share tables, all of them have to call this together."""
    arrays = {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}
    return {**arrays, "deep.weight": network.deep.whole(), "wide.weight": network.wide.whole()}


def load(network: WideDeep, weights: Arrays) -> None:
    """Set the weights from whole weights."""
    parameters = dict(network.named_parameters())
    if parameters.keys() != weights.keys():
        raise ValueError(f"weights of another network: {sorted(parameters.keys() ^ weights.keys())}")
    own = {f"{name}.weight": getattr(network, name).part(weights[f"{name}.weight"]) for name in ("deep", "wide")}
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy({**weights, **own}[name]))


def settings(network: WideDeep) -> dict[str, Any]:
    """Return the settings of the network as it was built, by the names of `SETTINGS`."""
    tables = {table.weight for table in network.tables}
    layers = sum(one.numel() for one in network.parameters() if one not in tables)
    return {
        "parameters": layers + sum(table.rows * table.columns for table in network.tables),
        "tables": {name: getattr(network, name).words for name in ("deep", "wide")},
        "rows_updated": "those that a step's samples name" if network.deep.lazy else "all",
        "dropout": [network.dropout] * (len(network.layers) - 1),
        "loss": "mean sigmoid cross entropy, of each rank",
    }


@torch.no_grad()
def sums(network: WideDeep, batch: dict[str, Tensor]) -> dict[str, float]:
    """Return sums over a delivered batch, without dropout: the loss, and counts by predicted probability of clicks and
    other samples."""
    training, labels = network.training, batch["labels"]
    network.eval()
    logits = network.logits(batch["ids"], batch["numbers"]).double()
    network.train(training)
    loss = binary_cross_entropy_with_logits(logits, labels.double(), reduction="sum")
    step = (logits.sigmoid() * BINS).long().clamp(max=BINS - 1)
    clicks, every = (torch.bincount(step[labels > least], minlength=BINS).tolist() for least in (0.5, -1))
    return {
        "loss": float(loss),
        "samples": float(len(labels)),
        **{f"click_{number}": float(count) for number, count in enumerate(clicks)},
        **{f"other_{n}": float(count - click) for n, (count, click) in enumerate(zip(every, clicks, strict=True))},
    }


class WideDeep(nn.Module):
    """Wide & deep with its loss. `forward` takes the tensors of a batch and returns the mean over its samples.

    With `half_type`, the products of the layers have that type; tables and loss are computed in the weights' type.
    """

    half_type: torch.dtype | None = None

    def __init__(self, given: Parameters, dropout: float, exchange: bool, apart: bool) -> None:
        super().__init__()
        how = given.update == "lazy", exchange, apart
        self.deep = Table(given.vocabulary, given.embedding, given.table, *how)
        self.wide = Table(given.vocabulary, 1, "rows" if given.table == "columns" else given.table, *how)
        self.tables = [self.deep, self.wide]
        sizes = [FIELDS * given.embedding + NUMBERS, *[given.width] * given.hidden, 1]
        layers = [nn.Linear(*two) for two in itertools.pairwise(sizes)]
        for one in layers:
            nn.init.xavier_uniform_(one.weight)
            nn.init.zeros_(one.bias)
        self.layers, self.dropout = nn.ModuleList(layers), dropout
        self.through: Callable[..., Tensor] = through
        self.by_rows = [table.weight for table in self.tables if table.lazy]

    def compile_parts(self, dynamic: bool) -> None:
        """Compile the layers. Looking up rows is already one kernel."""
        self.through = torch.compile(through, dynamic=None if dynamic else False)

    def forward(self, ids: Tensor, numbers: Tensor, labels: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits(ids, numbers), labels)

    def logits(self, ids: Tensor, numbers: Tensor) -> Tensor:
        rows = self.deep(ids.long())
        wide = self.wide(crossed(ids.long(), self.wide.rows))
        p = self.dropout if self.training else 0.0
        kind = self.half_type or rows.dtype
        return self.through(rows, numbers, wide, list(self.layers.parameters()), p, kind)


def crossed(ids: Tensor, rows: int) -> Tensor:
    """Return rows of the wide table [B, crosses]: each is a hash of two ids."""
    return torch.stack([(ids[:, one] * 0x7FEB352D + ids[:, other]) % rows for one, other in CROSSES], 1)


def through(rows: Tensor, numbers: Tensor, wide: Tensor, own: list[Tensor], p: float, kind: torch.dtype) -> Tensor:
    """Return the logits [B] of rows [B, 26, E], numbers [B, 13] and wide [B, crosses, 1].

    `own` are the parameters of the layers, in order.
    """
    hidden = torch.cat([rows.flatten(1), numbers], 1).to(kind)
    for weight, bias in zip(own[:-2:2], own[1:-2:2], strict=True):
        hidden = dropped(relu(linear(hidden, weight.to(kind), bias.to(kind))), p)
    deep = linear(hidden, own[-2].to(kind), own[-1].to(kind))
    return deep[:, 0].to(wide.dtype) + wide.sum((1, 2))

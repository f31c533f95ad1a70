"""Wide & deep in PyTorch, with tables that are whole on every rank, or split over the ranks (`in_torch_tables.py`)."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Unsupported, Values
from throughline.workloads.in_torch_form import Network, TorchForm
from throughline.workloads.in_torch_operations import dropped
from throughline.workloads.in_torch_tensor_parallel import TensorGroup
from throughline.workloads.wide_deep import BINS, CROSSES, FIELDS, NUMBERS, Parameters
from throughline.workloads.wide_deep.in_torch_tables import Table


class WideDeep(Network):
    """Wide & deep with its loss. `forward` takes the tensors of a batch and returns the mean over its samples.

    With `half_type`, the products of the layers have that type; tables and loss are computed in the weights' type.
    """

    def __init__(self, given: Parameters, dropout: float, gradient_sync: bool, apart: bool) -> None:
        super().__init__()
        lazy = given.update == "lazy"
        split = "rows" if given.table == "columns" else given.table
        self.deep = Table(given.vocabulary, given.embedding, given.table, lazy, gradient_sync, apart)
        self.wide = Table(given.vocabulary, 1, split, lazy, gradient_sync, apart)
        self.tables = [self.deep, self.wide]
        sizes = [FIELDS * given.embedding + NUMBERS, *[given.width] * given.hidden, 1]
        layers = [nn.Linear(*two) for two in itertools.pairwise(sizes)]
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.layers, self.dropout = nn.ModuleList(layers), dropout

    def parts(self) -> list[tuple[nn.Module, str]]:
        return [(self, "added")]  # looking up rows is already one kernel

    def forward(self, ids: Tensor, numbers: Tensor, labels: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits(ids, numbers), labels)

    def logits(self, ids: Tensor, numbers: Tensor) -> Tensor:
        rows = self.deep(ids.long())
        return self.added(rows, numbers, self.wide(crossed(ids.long(), self.wide.rows)))

    def added(self, rows: Tensor, numbers: Tensor, wide: Tensor) -> Tensor:
        """Return the logits [B] of rows [B, 26, E], numbers [B, 13] and wide [B, crosses, 1]."""
        p, hidden = self.dropout if self.training else 0.0, torch.cat([rows.flatten(1), numbers], 1)
        hidden = hidden.to(self.half_type or rows.dtype)
        *layers, last = self.layers
        with self.autocast():
            for layer in layers:
                hidden = dropped(relu(layer(hidden)), p)
            deep: Tensor = last(hidden)
        return deep[:, 0].to(wide.dtype) + wide.sum((1, 2))


def crossed(ids: Tensor, rows: int) -> Tensor:
    """Return rows of the wide table [B, crosses]: each is a hash of two ids."""
    return torch.stack([(ids[:, first] * 0x7FEB352D + ids[:, second]) % rows for first, second in CROSSES], 1)


class WideDeepInTorch(TorchForm[Parameters, WideDeep]):
    lacks = {
        "amp": "a loss scaler does not know gradients of single rows",
        "gradient_accumulation": "rows of a table are updated after every batch",
        "clipping": "the norm of a gradient of single rows is not computed",
        "cuda_graph": "updates by rows count their steps on the host, and a CUDA graph would keep the first count",
    }

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> WideDeep:
        """Return the network with random weights. If ranks split its tables, `spread` fills them."""
        given, options, optimizer = spec.parameters, spec.options, spec.optimizer.name
        special = given.update == "lazy" or given.table != "replicated"
        if special and optimizer not in ("adam", "adamw"):
            raise Unsupported(
                f"only Adam and AdamW can train tables that are split or updated by rows, not {optimizer}"
            )
        if given.table != "replicated" and not options.gradient_sync:
            raise Unsupported("ranks that split a table cannot train without exchanging its rows")
        return WideDeep(given, options.dropout, options.gradient_sync, spec.topology.world > 1)

    def spread(self, network: WideDeep, ranks: TensorGroup) -> frozenset[str]:
        for table in network.tables:
            table.spread(ranks)
        return frozenset(f"{name}.weight" for name in ("deep", "wide"))

    def by_rows(self, network: WideDeep) -> list[Tensor]:
        return [table.weight for table in network.tables if table.lazy]

    def weights(self, network: WideDeep) -> Arrays:
        """If ranks share tables, all of them have to call this together."""
        return {**super().weights(network), "deep.weight": network.deep.whole(), "wide.weight": network.wide.whole()}

    def load(self, network: WideDeep, weights: Arrays) -> None:
        tables = {"deep.weight": network.deep, "wide.weight": network.wide}
        parts = {name: table.part(weights[name]) for name, table in tables.items() if name in weights}
        super().load(network, {**weights, **parts})

    def settings(self, network: WideDeep) -> dict[str, Any]:
        tables = {table.weight for table in network.tables}
        layers = sum(parameter.numel() for parameter in network.parameters() if parameter not in tables)
        return {
            "parameters": layers + sum(table.rows * table.columns for table in network.tables),
            "tables": {name: getattr(network, name).words for name in ("deep", "wide")},
            "rows_updated": "those that a step's samples name" if network.deep.lazy else "all",
            "dropout": [network.dropout] * (len(network.layers) - 1),
            "loss": "mean sigmoid cross entropy, of each rank",
        }

    @torch.no_grad()
    def sums(self, network: WideDeep, batch: dict[str, Tensor]) -> dict[str, float]:
        """Return the loss, and counts by predicted probability of clicks and other samples, over a batch."""
        training, labels = network.training, batch["labels"]
        network.eval()
        logits = network.logits(batch["ids"], batch["numbers"]).double()
        network.train(training)
        loss = binary_cross_entropy_with_logits(logits, labels.double(), reduction="sum")
        step = (logits.sigmoid() * BINS).long().clamp(max=BINS - 1)
        groups = {"click": step[labels > 0.5], "other": step[labels <= 0.5]}
        counts = {kind: torch.bincount(steps, minlength=BINS).tolist() for kind, steps in groups.items()}
        by_step = {f"{kind}_{n}": float(count) for kind, each in counts.items() for n, count in enumerate(each)}
        return {"loss": float(loss), "samples": float(len(labels)), **by_step}


FORM = WideDeepInTorch()

"""Helper process: steps of decoders that lie split on their ranks, in double precision. Argument: a folder.

It forks the ranks of every case, so PyTorch is imported only once. Each rank writes its losses, and how far its weights
are from those of one process with the whole model.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.fsdp
import torch.distributed.optim
import torch.distributed.tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import rank_helpers
import training_fixtures
from throughline import handover, workloads
from throughline.checks import reference
from throughline.checks.reference_process import Asked
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec
from throughline.workloads.hugging_face import configuration

STEPS, BATCH, SEQUENCE = 2, 2, 12
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "max_position_embeddings": 64, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
GEMMA = {"query_pre_attn_scalar": 8, "sliding_window": 5, "head_dim": 8, "tie_word_embeddings": True, "pad_token_id": 3}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": 5},
    "qwen2": {},
    "qwen2_moe": {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
    | {"shared_expert_intermediate_size": 20, "mlp_only_layers": [0]},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
    | {"head_dim": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma2": {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3_text": GEMMA,
    "olmo2": {},
    "phi3": {"pad_token_id": 3},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "pad_token_id": None},
}
GLOBAL, EACH, TWICE = {"clip": "global_norm"}, {"clip": "norm"}, {"gradient_accumulation": 2}
ALL, SELECTIVE = {"activation_checkpointing": True}, {"activation_checkpointing": "selective"}
STATES, ONCE, FULL = ({"sharding": name} for name in ("zero1", "shard_grad_op", "full_shard"))
GROUPS, TENSOR, EXPERTS = {"hybrid_shard_groups": 2}, {"tensor_parallel": 2}, {"expert_parallel": 2}
DOCUMENTS = {"attention": "document"}
"""A parameter of the workload: documents do not see each other."""
CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "layers": (2, "llama", TENSOR | TWICE | GLOBAL),
    "layers over four": (4, "gemma2", {"tensor_parallel": 4} | EACH | ALL),
    "layers, biases": (2, "qwen2", TENSOR | SELECTIVE),
    "layers, windows": (2, "gemma3_text", TENSOR),
    "layers, packed": (4, "phi3", TENSOR | STATES | GLOBAL),
    "layers, norms of heads": (8, "qwen3", TENSOR | STATES | GROUPS | TWICE),
    "layers, norms of all heads": (4, "olmo2", TENSOR | ONCE | GLOBAL),
    "layers, sinks": (4, "gpt_oss", TENSOR | FULL | GLOBAL | ALL),
    "layers, shared experts": (2, "qwen2_moe", TENSOR | GLOBAL | SELECTIVE),
    "layers, experts": (8, "mixtral", TENSOR | FULL | GROUPS | GLOBAL),
    "layers, weights gathered once": (8, "llama", TENSOR | ONCE | GROUPS | TWICE),
    "states": (2, "qwen3", STATES),
    "states in groups": (4, "mistral", STATES | GROUPS | TWICE),
    "weights gathered once": (2, "llama", ONCE | TWICE),
    "weights gathered once in groups": (4, "phi3", ONCE | GROUPS | EACH),
    "weights": (2, "gpt_oss", FULL | SELECTIVE),
    "weights in groups": (4, "qwen3_moe", FULL | GROUPS | GLOBAL),
    "experts": (2, "qwen2_moe", EXPERTS | TWICE | GLOBAL),
    "experts, two ranks hold the same": (4, "gpt_oss", EXPERTS | EACH | SELECTIVE),
    "experts and weights": (2, "qwen3_moe", EXPERTS | FULL | ALL),
    "experts and weights gathered once": (4, "mixtral", EXPERTS | ONCE | TWICE),
    "experts and weights gathered once in groups": (4, "qwen3_moe", EXPERTS | ONCE | GROUPS | GLOBAL),
    "experts and weights in groups": (8, "mixtral", EXPERTS | FULL | GROUPS | GLOBAL),
    "documents, layers and states": (4, "gemma3_text", DOCUMENTS | TENSOR | STATES),
    "documents, experts and weights": (2, "qwen3_moe", DOCUMENTS | EXPERTS | FULL | TWICE),
}
"""Map each case to its ranks, its architecture and its options."""


def described(folder: Path) -> dict[str, str]:
    """Write the configurations of KINDS. Return the variables of the environment that tell where they are."""
    files = {}
    for kind, more in KINDS.items():
        content = folder / f"{kind}.json"
        content.write_text(json.dumps({"model_type": kind, **SIZES, **more}))
        files[configuration.of_map({"transformers": str(content), "task": "clm"}).sha256] = str(content)
    return {"FOLDER": str(folder), handover.VARIABLE: handover.packed(models=files)}


def spec(kind: str, world: int, options: dict[str, Any]) -> RunSpec:
    model = configuration.of_map({"transformers": os.environ["FOLDER"] + f"/{kind}.json", "task": "clm"})
    return training_fixtures.spec(
        framework="torch", topology=f"1n{world}g", precision="fp32", model=str(model), task="clm",
        config_sha256=model.sha256, sequence_length=SEQUENCE, batch=BATCH, steps={"warmup": 0, "timed": STEPS},
        optimizer={"learning_rate": 1e-3}, **{name: options[name] for name in DOCUMENTS if name in options},
        options={"data": "synthetic", "dropout": 0.0} | {k: v for k, v in options.items() if k not in DOCUMENTS},
    )  # fmt: skip


def batches(asked: RunSpec, replica: int) -> list[dict[str, Any]]:
    """Return the micro-batches of a replica in all steps."""
    seeds = (1000 * replica + number for number in range(STEPS * asked.options.gradient_accumulation))
    return [workloads.of(asked.model).synthetic(BATCH, asked, seed) for seed in seeds]


class Sent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the numbers of every collective operation: how many its larger tensor has."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, list[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            tensors = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
            self.found.setdefault(func._opname, []).append(max((one.numel() for one in tensors), default=0))
        return func(*args, **(kwargs or {}))


def trained(asked: RunSpec, case: str, folder: Path, losses: list[float], number: int) -> None:
    torch.set_default_dtype(torch.float64)
    rank = TorchDDP(asked, number, number, asked.topology.world, "cpu")
    rank.join()
    rank.device()
    rank.model({"vocabulary": None})
    with np.load(folder / "weights.npz") as file:
        initial = {name: array.astype(np.float64) for name, array in file.items()}
    with np.load(folder / "updates.npz") as file:
        right = {name: array + initial[name] for name, array in file.items()}
    rank.load(initial)
    rank.optimizer()
    own, count = batches(asked, rank.replica), asked.options.gradient_accumulation
    delivered = [rank.deliver(rank.data(batch)) for batch in own]
    steps = [delivered[step * count : (step + 1) * count] for step in range(STEPS)]
    with Sent() as sent:
        found = [rank.step(steps[0])]
    found += map(rank.step, steps[1:])
    ends = {name: array.copy() for name, array in rank.snapshot().items()}
    rank.load(right)  # so each rank keeps the parts that it holds of the right weights
    off = {name: float(np.abs(ends[name] - array).max(initial=0.0)) for name, array in rank.snapshot().items()}
    told = {"losses": rank.losses(found), "right": losses, "off": off, "sent": sent.found}
    rank_helpers.tell(folder, case, number, told)
    rank.close()


def only_the_first(path: Path) -> None:
    """Let no token choose the last experts of gpt_oss, so that a rank gets no row at all."""
    with np.load(path) as file:
        weights = dict(file)
    for name in weights:
        if name.endswith("router.bias"):
            weights[name][2:] = -100.0
    np.savez(path, **weights)


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ.update(described(folder))
    for case, (world, kind, options) in CASES.items():
        asked, weights = spec(kind, world, options), folder / "weights.npz"
        reference.initial(asked, None, weights)
        if asked.options.expert_parallel > 1:
            only_the_first(weights)
        sources = [iter(batches(asked, replica)) for replica in range(asked.size.replicas)]
        updates = Asked({str(STEPS): str(folder / "updates.npz")})
        expected = reference.train(asked, None, weights, sources, updates)
        rank_helpers.fork(world, partial(trained, asked, case, folder, expected.losses))


if __name__ == "__main__":
    main()

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

import rank_helpers
import training_fixtures
from throughline import workloads
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
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True},
    "qwen2_moe": {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
    | {"shared_expert_intermediate_size": 20, "mlp_only_layers": [0]},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
}
CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "weights in two groups": (4, "llama", {"replicate": 2, "sharding": "full", "clip": "global_norm"}),
    "states in two groups": (4, "llama", {"replicate": 2, "sharding": "optimizer", "accumulate": 2}),
    "layers and weights in two groups": (8, "llama", {"replicate": 2, "sharding": "full", "tensor": 2}),
    "experts": (2, "qwen2_moe", {"experts": 2, "accumulate": 2, "clip": "global_norm"}),
    "experts of gpt_oss": (4, "gpt_oss", {"experts": 2, "clip": "norm", "checkpointing": "selective"}),
    "experts and weights": (2, "qwen3_moe", {"experts": 2, "sharding": "full", "checkpointing": True}),
    "experts and weights of four": (4, "qwen3_moe", {"experts": 2, "sharding": "optimizer_gradients", "accumulate": 2}),
    "experts and weights in two groups": (
        8,
        "qwen3_moe",
        {"experts": 2, "replicate": 2, "sharding": "full", "clip": "global_norm"},
    ),
}
"""Map each case to its ranks, its architecture and its options."""


def spec(case: str) -> RunSpec:
    world, kind, options = CASES[case]
    model = configuration.of_map({"transformers": os.environ["FOLDER"] + f"/{kind}.json", "task": "clm"})
    return training_fixtures.spec(
        framework="torch", topology=f"1n{world}g", precision="fp32", model=str(model), task="clm",
        config_sha256=model.sha256, sequence=SEQUENCE, batch=BATCH, steps={"warmup": 0, "timed": STEPS},
        optimizer={"learning_rate": 1e-3}, options={"data": "synthetic", "dropout": 0.0, **options},
    )  # fmt: skip


def batches(asked: RunSpec, replica: int) -> list[dict[str, Any]]:
    """Return the micro-batches of a replica in all steps."""
    seeds = (1000 * replica + number for number in range(STEPS * asked.options.accumulate))
    return [workloads.of(asked.model).synthetic(BATCH, asked, seed) for seed in seeds]


def trained(case: str, folder: Path, losses: list[float], number: int) -> None:
    asked = spec(case)
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
    own, count = batches(asked, rank.replica), asked.options.accumulate
    every = [own[step * count : (step + 1) * count] for step in range(STEPS)]
    found = [rank.step([rank.deliver(rank.data(batch)) for batch in step]) for step in every]
    held = sum(getattr(p, "_local_tensor", p).numel() for p in rank.parameters)
    ends = {name: array.copy() for name, array in rank.snapshot().items()}
    rank.load(right)  # so each rank keeps the parts that it holds of the right weights
    off = {name: float(np.abs(ends[name] - array).max(initial=0.0)) for name, array in rank.snapshot().items()}
    told = {"losses": rank.losses(found), "right": losses, "off": off, "held": held, "settings": rank.settings()}
    rank_helpers.tell(folder, case, number, told)
    rank.close()


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["FOLDER"], files = str(folder), {}
    for kind, more in KINDS.items():
        content = folder / f"{kind}.json"
        content.write_text(json.dumps({"model_type": kind, **SIZES, **more}))
        model = configuration.of_map({"transformers": str(content), "task": "clm"})
        files[model.sha256] = str(content)
    os.environ[configuration.FILES] = json.dumps(files)
    for case, (world, _, _) in CASES.items():
        if len(sys.argv) > 2 and sys.argv[2] not in case:
            continue
        asked, weights = spec(case), folder / "weights.npz"
        reference.initial(asked, None, weights)
        sources = [iter(batches(asked, replica)) for replica in range(asked.size.replicas)]
        updates = Asked({str(STEPS): str(folder / "updates.npz")})
        expected = reference.train(asked, None, weights, sources, updates)
        rank_helpers.fork(world, partial(trained, case, folder, expected.losses))


if __name__ == "__main__":
    main()

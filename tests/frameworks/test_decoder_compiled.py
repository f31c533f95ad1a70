"""A compiled decoder is one graph for all equal layers: nothing breaks it, and nothing is compiled after step 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import training_fixtures
from throughline import workloads
from throughline.frameworks.torch.ddp import TorchDDP

SIZES = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
LLAMA = {"model_type": "llama", **SIZES}
MIXTURE = {
    "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, **SIZES,
}  # fmt: skip
WINDOWS = {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 2, **SIZES}


@pytest.mark.parametrize(
    ("content", "precision", "activation_checkpointing", "attention", "kinds"),
    [
        (LLAMA, "bf16", "selective", "sample", 1),
        (LLAMA, "bf16", True, "sample", 1),
        (MIXTURE, "fp32", False, "sample", 1),
        (WINDOWS, "bf16", False, "document", 2),
    ],
    ids=["llama", "llama recomputed", "mixture", "windows and documents"],
)
def test_one_graph_for_all_equal_layers(
    content: Any, precision: str, activation_checkpointing: Any, attention: str, kinds: int
) -> None:
    import torch._dynamo
    from torch._dynamo.testing import CompileCounterWithBackend
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    spec = training_fixtures.spec(
        model="llama-3.1-8b", task="clm", config_sha256="ab" * 32, sequence_length=64, precision=precision,
        attention=attention,
        options={"data": "synthetic", "activation_checkpointing": activation_checkpointing},
    )  # fmt: skip
    spec = replace(spec, content=content)
    rank = TorchDDP(spec, 0, 0, 1, "cpu")
    rank.device()
    rank.model({})
    counter = CompileCounterWithBackend("aot_eager")
    rank.network.compile_parts(dynamic=False, backend=counter)
    rank.optimizer()
    graphs = []
    for seed in range(4):
        rank.step([rank.deliver(rank.data(workloads.of(spec.model).synthetic(2, spec, seed)))])
        graphs.append(counter.frame_count)
    assert graphs == [kinds + 2] * 4, "the layers, and what lies before and after them"
    assert not counters["graph_break"]

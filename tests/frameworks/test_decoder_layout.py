"""A decoder that lies split on its ranks computes what it computes whole: the house's own equivalence check, on CPU
ranks.

test_decoder_layouts.py tries every layout, in double precision.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import handover
from throughline.checks import equivalence
from throughline.workloads.hugging_face import configuration

SIZES = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True, "head_dim": 16,
}  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "a mixture of experts": ("1n2g", "qwen3_moe", EXPERTS, {"sharding": "shard_grad_op", "gradient_accumulation": 2}),
    "every layer and its weights": (
        "1n4g",
        "llama",
        {},
        {"tensor_parallel": 2, "sharding": "full_shard", "clip": "global_norm"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_split_it_computes_what_it_computes_whole(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, kind, more, options = CASES[case]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **SIZES, **more}))
    made = configuration.of_map({"transformers": str(tmp_path / "config.json"), "task": "clm"})
    monkeypatch.setattr(equivalence, "STEPS", 10)
    monkeypatch.setenv(handover.VARIABLE, handover.packed(models={made.sha256: str(made.file)}))
    spec = training_fixtures.spec(
        framework="torch", topology=topology, precision="fp32", model=str(made), task="clm", config_sha256=made.sha256,
        sequence_length=64, batch=4, options={"data": "synthetic", "dropout": 0.0, **options},
    )  # fmt: skip
    proof = equivalence.prove([spec], None, {}, tmp_path / "proof")
    found = proof["frameworks"]["torch"][topology]
    assert (found["verdict"], found["updates"]["verdict"]) == ("equal", "equal"), found

"""Our own step of a decoder is transformers' own model: loss and every gradient in double precision, for every
architecture, with random small configurations."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import training_fixtures
from framework_lab import helped
from throughline.workloads.hugging_face import architecture

SEQUENCE = 13
RANDOM = 3
"""So many random configurations of each architecture are compared."""
ROTARY: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | {"original_max_position_embeddings": 40},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "truncate": False}
    | {"beta_fast": 8, "beta_slow": 2, "mscale": 0.7, "mscale_all_dim": 0.4},
]
MIXTURES = {"qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss"}


def configuration(kind: str, draw: random.Random) -> dict[str, Any]:
    """Return a random small configuration of an architecture."""
    groups, times, width = draw.choice([1, 2, 3]), draw.choice([1, 2, 4]), draw.choice([4, 8, 12])
    heads, layers = groups * times, draw.choice([2, 3])
    content: dict[str, Any] = {
        "model_type": kind, "vocab_size": draw.choice([61, 96]), "hidden_size": heads * draw.choice([4, 8]),
        "intermediate_size": draw.choice([20, 24]), "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": groups, "max_position_embeddings": 64, "rms_norm_eps": draw.choice([1e-6, 1e-5, 1e-3]),
        "pad_token_id": draw.choice([None, 5]), "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": draw.random() < 0.5, "rope_theta": draw.choice([100.0, 10000.0]),
    }  # fmt: skip
    if kind not in ("phi3", "gemma3_text"):
        content["rope_scaling"] = dict(draw.choice(ROTARY))
    if kind == "phi3":
        content["partial_rotary_factor"] = draw.choice([1.0, 0.5])
    if kind not in ("olmo2", "phi3", "qwen2", "qwen2_moe"):
        content["head_dim"] = width
    if kind in ("llama", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "olmo2", "gpt_oss"):
        content["attention_bias"] = draw.random() < 0.5
    if kind == "llama":
        content["mlp_bias"] = draw.random() < 0.5
    content |= _windows(kind, layers, draw)
    if kind.startswith("gemma"):
        content["query_pre_attn_scalar"] = draw.choice([5, 16])
        content["hidden_activation"] = draw.choice(["gelu_pytorch_tanh", "gelu"])
        content["final_logit_softcapping"] = draw.choice([None, 3.0])
    elif kind != "gpt_oss":
        content["hidden_act"] = draw.choice(["silu", "gelu", "relu"])
    if kind == "gemma2":
        content["attn_logit_softcapping"] = draw.choice([None, 2.0])
    return content | (_experts(kind, layers, draw) if kind in MIXTURES else {})


def _windows(kind: str, layers: int, draw: random.Random) -> dict[str, Any]:
    if kind in ("llama", "olmo2"):
        return {}
    window: dict[str, Any] = {"sliding_window": draw.choice([4, 64])}
    if kind in ("mistral", "mixtral", "phi3"):
        return draw.choice([window, {"sliding_window": None}, {}])
    if kind.startswith("qwen"):
        window |= {"use_sliding_window": draw.random() < 0.7, "max_window_layers": 1}
    if kind == "gemma3_text":
        window["sliding_window_pattern"] = 2
    if kind != "qwen3_moe" and draw.random() < 0.4:
        window["use_sliding_window"] = True
        window["layer_types"] = [draw.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
    return window


def _experts(kind: str, layers: int, draw: random.Random) -> dict[str, Any]:
    count = draw.choice([4, 6])
    content: dict[str, Any] = {"num_experts_per_tok": draw.choice([1, 2, 3])}
    if kind in ("mixtral", "gpt_oss"):
        return content | {"num_local_experts": count}
    content |= {"num_experts": count, "moe_intermediate_size": 12, "norm_topk_prob": draw.random() < 0.5}
    content |= {"decoder_sparse_step": draw.choice([1, 2]), "mlp_only_layers": draw.choice([[], [0]])}
    return content | ({"shared_expert_intermediate_size": 20} if kind == "qwen2_moe" else {})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """Compare all configurations in one process, because loading the library takes seconds."""
    folder, draw = tmp_path_factory.mktemp("decoders"), random.Random(41)
    for kind in architecture.KINDS:
        for number in range(RANDOM):
            (folder / f"{kind}-{number}.json").write_text(json.dumps(configuration(kind, draw)))
    for number, scaling in enumerate(ROTARY):
        content = configuration("llama", draw) | {"rope_scaling": scaling}
        (folder / f"rotary-{number}.json").write_text(json.dumps(content))
    named = {"model": "llama-3.1-8b", "task": "clm", "config_sha256": "ab" * 32, "sequence_length": SEQUENCE}
    spec = training_fixtures.spec(**named, options={"data": "synthetic", "dropout": 0.0})
    lines = helped("hf-loop", "decoders_in_transformers.py", folder, SEQUENCE, SPEC=json.dumps(spec.values()))
    return {(line["model"], line["attention"]): line for line in lines}


@pytest.mark.parametrize("attention", ["sample", "document"])
@pytest.mark.parametrize("kind", [*architecture.KINDS, "rotary"])
def test_loss_and_every_gradient_are_those_of_transformers(
    kind: str, attention: str, found: dict[tuple[str, str], dict[str, Any]]
) -> None:
    of_kind = [line for (model, seen), line in found.items() if (model.rpartition("-")[0], seen) == (kind, attention)]
    assert len(of_kind) == (len(ROTARY) if kind == "rotary" else RANDOM)
    for line in of_kind:
        assert line["losses"][0] == pytest.approx(line["losses"][1], rel=1e-12), line
        assert line["off"] < 1e-10, line
        assert line["tensors"] > 10
        assert (line["losses"][0] == line["whole"]) == (attention == "sample")
        # A softmax does not see what is added to all keys, and the weight of a single chosen expert is 1.
        assert not [name for name in line["zero"] if not name.endswith(("k_proj.bias", "mlp.gate.weight"))], line

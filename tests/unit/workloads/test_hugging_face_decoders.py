"""Our own step of a model by its config.json: which models it trains, and what it says about the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import frameworks, workloads
from throughline.spec import RunSpec
from throughline.workloads import Unsupported
from throughline.workloads.hugging_face import WORKLOAD, architecture, configuration

NO_DECODER = {"gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b", "modernbert-base", "deberta-v3-base"}
CONTENT = {
    "model_type": "llama", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip


def spec(content: Mapping[str, Any] | None = None, model: str = "llama-3.1-8b", **changes: Any) -> RunSpec[Any]:
    task = configuration.SHAPES[model].task
    named = {"model": model, "task": task, "config_sha256": "ab" * 32, "sequence": 16, "framework": "torch"}
    made = training_fixtures.spec(**{**named, "options": {"data": "synthetic"}, **changes})
    return replace(made, content=content or configuration.read(configuration.of_shape(model).file))


@pytest.mark.parametrize("model", sorted(set(WORKLOAD.models) - NO_DECODER))
def test_a_shape_that_is_a_decoder_has_the_parameters_that_are_published(model: str) -> None:
    made = WORKLOAD.architecture(spec(model=model))
    assert made.parameters == configuration.SHAPES[model].parameters
    assert len({id(layer) for layer in made.layers}) == len(set(made.layers)), "equal layers are one object"


@pytest.mark.parametrize(("model", "has"), [("gpt2-124m", "'gpt2'"), ("modernbert-base", "masked words")])
def test_other_models_name_what_trains_them(model: str, has: str) -> None:
    with pytest.raises(Unsupported, match=rf"our own step does not have .*{has}.*; hf-loop and hf-trainer train"):
        frameworks.refuse(spec(model=model))
    frameworks.refuse(spec(model=model, framework="hf-loop"))
    assert (WORKLOAD.unproven(spec(model=model)) or "").startswith("there is no second implementation")
    assert WORKLOAD.unproven(spec()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "quick_gelu"}, "the activation 'quick_gelu'"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rotary positions of the type 'longrope'"),
        ({"partial_rotary_factor": 0.5}, "rotary positions for a part of each head"),
        ({"attention_dropout": 0.1}, "dropout (attention_dropout) without `options.dropout: 0`"),
        ({"model_type": "mixtral", "router_jitter_noise": 0.1}, "noise in its router"),
        ({"model_type": "mixtral", "output_router_logits": True}, "a loss that balances experts"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "attention in both directions"),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"] * 2}, "layers with a sliding window"),
        ({"model_type": "qwen3", "layer_types": ["chunked_attention"] * 2}, "layers of another type"),
    ],
)
def test_what_our_step_does_not_compute_is_said(changes: dict[str, Any], reason: str) -> None:
    assert reason in (WORKLOAD.lacks_form(spec(CONTENT | changes), "torch") or "")
    assert WORKLOAD.lacks_form(spec(CONTENT), "torch") is None


def test_a_file_without_a_number_says_which() -> None:
    content = {name: value for name, value in CONTENT.items() if name != "hidden_size"}
    assert WORKLOAD.lacks_form(spec(content), "torch") == "its config.json does not state hidden_size"


def test_without_dropout_its_rates_do_not_matter() -> None:
    asked = spec(CONTENT | {"attention_dropout": 0.1}, options={"data": "synthetic", "dropout": 0.0})
    assert WORKLOAD.lacks_form(asked, "torch") is None


def test_a_window_that_is_as_long_as_the_sample_is_none() -> None:
    content = CONTENT | {"model_type": "gemma2", "sliding_window": 16}
    assert {layer.window for layer in architecture.of(content, 16).layers} == {None}
    assert [layer.window for layer in architecture.of(content, 17).layers] == [16, None]


def test_names_of_parameters_are_those_of_transformers(tmp_path: Path) -> None:
    form: Any = workloads.form("llama-3.1-8b", "torch")
    network = form.build(spec(CONTENT), {})
    names = {name for name, _ in network.named_parameters()}
    assert {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "lm_head.weight"} < names
    assert names == set(network.made.shapes())
    assert form.settings(network)["parameters"] == sum(one.numel() for one in network.parameters())
    assert json.dumps(form.settings(network))

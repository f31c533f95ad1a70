"""Our own step of a model by its config.json: which models it trains, and what it says about the others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import training_fixtures
from throughline import frameworks, workloads
from throughline.spec import RunSpec
from throughline.workloads import Unsupported, in_torch_attention
from throughline.workloads.hugging_face import WORKLOAD, architecture, configuration, in_torch_flex, work

NO_DECODER = {"gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b", "modernbert-base", "deberta-v3-base"}
CONTENT = {
    "model_type": "llama", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip


def spec(content: Mapping[str, Any] | None = None, model: str = "llama-3.1-8b", **changes: Any) -> RunSpec[Any]:
    task = configuration.SHAPES[model].task
    content = content or configuration.read(configuration.of_shape(model).file)
    return training_fixtures.decoder_spec(content, model=model, task=task, sequence_length=16, **changes)


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
    assert (WORKLOAD.lacks_reference(spec(model=model)) or "").startswith("there is no second implementation")
    assert WORKLOAD.lacks_reference(spec()) is None


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


def test_what_our_step_computes() -> None:
    without_dropout = spec(CONTENT | {"attention_dropout": 0.1}, options={"data": "synthetic", "dropout": 0.0})
    assert WORKLOAD.lacks_form(spec(CONTENT), "torch") is WORKLOAD.lacks_form(without_dropout, "torch") is None


def test_a_window_that_is_as_long_as_the_sample_is_none() -> None:
    content = CONTENT | {"model_type": "gemma2", "sliding_window": 16}
    assert {layer.window for layer in architecture.from_config(content, 16).layers} == {None}
    assert [layer.window for layer in architecture.from_config(content, 17).layers] == [16, None]


def test_documents_of_a_window_are_told_apart_by_their_ends() -> None:
    tokens = np.array([[9, 1, 2, 9, 9, 3, 4], [1, 2, 3, 4, 5, 9, 6]], np.uint16)
    rows = {"tokens": tokens, "end_of_text": np.full(2, 9, np.uint16)}
    batch = WORKLOAD.batch(rows, spec().options)
    assert batch["position_ids"].tolist() == [[0, 0, 1, 2, 0, 0], [0, 1, 2, 3, 4, 5]]
    assert batch["bounds"].tolist() == [0, 1, 4, 5, 6, 12]
    assert WORKLOAD.counts(rows) == (1 + 6 + 1 + 1 + 21,), "each token sees itself and those before it"
    assert WORKLOAD.counts({"tokens": tokens}) == ()


def test_flops_within_documents_are_those_of_the_pairs_that_see_each_other() -> None:
    synthetic = spec(CONTENT, attention="document")
    parts = work.of_parts(WORKLOAD.architecture(synthetic), 16)
    pairs = 4 * (4 * 5 / 2)
    expected = 3 * (parts.layers + parts.head + 2 * 4 * 32 * pairs)
    assert WORKLOAD.flops_per_sample(synthetic, {}, {}) == expected
    assert [len(part) for part in np.split(WORKLOAD.synthetic(1, synthetic, 1)["input_ids"][0], 4)] == [4] * 4
    real = replace(synthetic, options=replace(synthetic.options, data="real"))
    assert WORKLOAD.flops_per_sample(real, {}, WORKLOAD.counted((240,), 6, real)) == expected
    assert "did not count" in str(WORKLOAD.flops_per_sample(real, {}, {}))
    windowed = replace(real, content=CONTENT | {"model_type": "mistral", "sliding_window": 4})
    assert "sliding window" in str(WORKLOAD.flops_per_sample(windowed, {}, {"seen_pairs": 40.0}))
    assert isinstance(WORKLOAD.causal_flops_per_sample(real), str) and WORKLOAD.decoder(real) is None


def test_where_documents_are_not_kept_apart_is_said() -> None:
    assert "documents apart" in str(WORKLOAD.lacks_form(spec(model="gpt2-124m", attention="document"), "transformers"))
    assert WORKLOAD.lacks_form(spec(attention="document"), "transformers") is None
    given = {"model": "modernbert-base", "sequence_length": 16, "attention": "document"}
    with pytest.raises(ValueError, match="attention = document: a sample for masked words"):
        WORKLOAD.complete(given, None)


@pytest.mark.parametrize("window", [None, 3])
def test_documents_in_a_row_see_what_a_mask_lets_them_see(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashAttention is on GPUs only, so here its documented result is computed document by document."""
    from throughline.workloads.hugging_face import in_torch_layer

    shape = replace(architecture.from_config(CONTENT | {"num_key_value_heads": 2}, 12).layers[0], window=window)

    def by_document(query: Any, key: Any, value: Any, begins: Any, ends: Any, *longest: int, **given: Any) -> Any:
        before = -1 if window is None else window - 1
        assert longest == (12, 12) and given == {"scale": shape.scale, "window_size": (before, 0), "enable_gqa": True}
        parts = []
        for begin, end in itertools.pairwise(begins.tolist()):
            three = (part[None, begin:end].transpose(1, 2) for part in (query, key, value))
            parts.append(in_torch_layer.attended(*three, None, shape, True)[0].transpose(0, 1))
        return torch.cat(parts)

    monkeypatch.setattr(in_torch_layer, "varlen_attn", by_document)
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, heads, 12, 8, dtype=torch.float64) for heads in (4, 2, 2))
    position_ids = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 4], [*range(10), 0, 1]])
    bounds = torch.tensor([0, 5, 7, 12, 22, 24])
    by_mask = in_torch_layer.attended(query, key, value, None, shape, True, (position_ids == 0).cumsum(1))
    in_a_row = in_torch_layer.attended(query, key, value, None, shape, True, bounds)
    torch.testing.assert_close(in_a_row, by_mask)


@pytest.mark.parametrize(("capability", "in_a_row"), [((9, 0), True), ((8, 0), True), ((7, 5), False)])
def test_on_a_gpu_documents_lie_in_a_row_where_flashattention_can(
    capability: tuple[int, int], in_a_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda at: capability)
    monkeypatch.setattr(in_torch_attention, "cudnn_takes", lambda asked, at: True)
    form: Any = workloads.form("llama-3.1-8b", "torch")
    network = form.build(spec(CONTENT), {})
    for precision, attention in (("bf16", "document"), ("fp32", "document"), ("bf16", "sample")):
        form.pin(network, spec(CONTENT, precision=precision, attention=attention), torch.device("cuda"))
        assert network.several_lengths is (in_a_row and (precision, attention) == ("bf16", "document"))


FLEX: dict[str, dict[str, Any]] = {
    "soft cap, windows": {"model_type": "gemma2", "head_dim": 8, "sliding_window": 5, "attn_logit_softcapping": 2.0,
                          "num_key_value_heads": 2},
    "sinks, windows": {"model_type": "gpt_oss", "head_dim": 8, "sliding_window": 5, "num_local_experts": 4,
                       "num_experts_per_tok": 2, "num_key_value_heads": 2, "pad_token_id": None},
    "heads of their own": {},
}  # fmt: skip
"""Parts of a config.json."""


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("name", FLEX)
def test_flex_attention_is_the_same_attention(name: str, documents: bool) -> None:
    """The forward pass in double precision. A CPU has no backward pass of FlexAttention."""
    asked = spec({**CONTENT, **FLEX[name]})
    network = workloads.form(asked.model, "torch").build(asked, {}).double()
    positions = np.array([[*range(16)], [*range(7), *range(9)]]) if documents else None
    batch = {"input_ids": torch.randint(97, (2, 16), generator=torch.manual_seed(3))}
    if positions is not None:
        batch["position_ids"] = torch.from_numpy(positions)
    with torch.no_grad():
        for parameter_name, parameter in network.named_parameters():  # so that scores differ, and sinks count
            parameter.add_(1.5) if parameter_name.endswith("sinks") else parameter.mul_(4)
        right = network(**batch)
        network.attention = in_torch_flex.KERNEL
        assert float(network(**batch)) == pytest.approx(float(right), rel=1e-12)
        layers = {layer.window for layer in network.made.layers}
    assert name == "heads of their own" or 5 in layers


def test_flex_attention_trains_compiled_on_a_gpu_alone() -> None:
    with pytest.raises(Unsupported, match="no backward pass on a CPU"):
        in_torch_flex.refuse(torch.device("cpu"), True)
    with pytest.raises(Unsupported, match=r"set options\.compile"):
        in_torch_flex.refuse(torch.device("cuda"), False)
    in_torch_flex.refuse(torch.device("cuda"), True)
    asked = spec(CONTENT, attention_kernel="flex")
    with pytest.raises(Unsupported, match="FlexAttention"):
        workloads.form(asked.model, "torch").build(asked, {}, torch.device("cpu"))

"""FLOPs from a config.json against PyTorch's counter, and the pairs that causal masks let through against the scores
of transformers' own models; and the library's defaults that planning knows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from throughline.checks import transformers_defaults
from throughline.workloads.hugging_face import architecture, work

LENGTH, BATCH = 32, 2
SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SIZES | {"num_key_value_heads": 2}
SIX = GROUPED | {"num_hidden_layers": 6}
SLIDING = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHARED = EXPERTS | {"shared_expert_intermediate_size": 24}
DEBERTA = SIZES | {"relative_attention": True, "position_buckets": 16, "share_att_key": True, "type_vocab_size": 0}
DEBERTA |= {"pos_att_type": "p2c|c2p", "position_biased_input": False, "norm_rel_ebd": "layer_norm"}
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
LOCAL = SIZES | {"num_hidden_layers": 6, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
VARIANTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama", GROUPED, {}),
    ("llama", SIZES, {"head_dim": 16, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", GROUPED, {"sliding_window": 8}),
    ("mistral", GROUPED, {"sliding_window": None}),
    ("mistral", SIZES, {"num_attention_heads": 8}),
    ("mixtral", GROUPED, {"num_local_experts": 4}),
    ("mixtral", SIZES, {"num_attention_heads": 8, "sliding_window": 8}),
    ("qwen2", GROUPED, {}),
    ("qwen2", SIX, SLIDING),
    ("qwen2", SIX, {"use_sliding_window": True, "sliding_window": 8}),
    ("qwen2_moe", GROUPED, SHARED | {"decoder_sparse_step": 2}),
    ("qwen2_moe", SIX, SHARED | SLIDING),
    ("qwen3", GROUPED, {}),
    ("qwen3", SIX, SLIDING | {"head_dim": 16}),
    ("qwen3_moe", GROUPED, EXPERTS | {"head_dim": 16, "decoder_sparse_step": 2}),
    ("qwen3_moe", GROUPED, EXPERTS | SLIDING | {"mlp_only_layers": [0]}),
    ("qwen3_moe", GROUPED, EXPERTS | {"sliding_window": 8}),
    ("gemma", GROUPED, {"head_dim": 16}),
    ("gemma", SIZES, {"num_attention_heads": 16}),
    ("gemma2", SIX, {"head_dim": 16, "sliding_window": 8}),
    ("gemma2", SIZES, {}),
    ("gemma3_text", SIX, {"head_dim": 16, "sliding_window": 8}),
    ("gemma3_text", SIX, {"head_dim": 16, "sliding_window": 8, "sliding_window_pattern": 2}),
    ("phi3", GROUPED, {}),
    ("phi3", SIZES, {"sliding_window": 8}),
    ("olmo2", GROUPED, {}),
    ("gpt_oss", SIX, {"head_dim": 16, "num_local_experts": 4, "sliding_window": 8}),
    ("smollm3", SIZES, {}),
    ("smollm3", SIX, {"use_sliding_window": True, "sliding_window": 8}),
    ("gpt2", GPT2, {}),
    ("gpt2", GPT2, {"n_inner": 100}),
    ("bert", SIZES, {}),
    ("bert", SIZES, {"is_decoder": True}),
    ("roberta", SIZES, {}),
    ("roberta", SIZES, {"is_decoder": True}),
    ("modernbert", LOCAL, {}),
    ("deberta-v2", DEBERTA, {}),
    ("deberta-v2", DEBERTA, {"pos_att_type": ["p2c", "c2p"], "share_att_key": False}),
    ("deberta-v2", DEBERTA, {"pos_att_type": ["c2p"]}),
    ("deberta-v2", DEBERTA, {"pos_att_type": "p2c", "share_att_key": False}),
    ("deberta-v2", DEBERTA, {"pos_att_type": None}),
    ("deberta-v2", DEBERTA, {"position_buckets": -1}),
    ("deberta-v2", DEBERTA, {"position_buckets": -1, "max_relative_positions": 20}),
    ("deberta-v2", DEBERTA, {"position_buckets": 64, "max_position_embeddings": 128}),
    ("deberta-v2", DEBERTA, {"relative_attention": False}),
    ("deberta-v2", DEBERTA, {"conv_kernel_size": 3, "conv_act": "gelu"}),
    ("deberta-v2", DEBERTA, {"embedding_size": 16}),
]
"""Architecture, sizes, and what differs. Each architecture that we count is here at least once, in fp32."""


def built(content: dict[str, Any], task: str) -> Any:
    config = CONFIG_MAPPING[content["model_type"]].from_dict({**content, "use_cache": False})
    kinds = {"clm": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, "mlm": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING}
    model = kinds[task][type(config)](config).float().eval()
    # The counter knows neither fused kernels of attention nor grouped products.
    model.config._attn_implementation = model.config._experts_implementation = "eager"
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sizes", "changes"), VARIANTS)
def test_flops_are_what_torch_counts(
    kind: str, sizes: dict[str, Any], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"model_type": kind, **sizes, **changes}
    encoder = kind in work.TRANSFORMED and not changes.get("is_decoder")
    task = "mlm" if encoder else "clm"
    model, ids = built(content, task), torch.randint(3, 97, (BATCH, LENGTH), generator=torch.manual_seed(1))
    seen: list[int] = []
    plain = torch.nn.functional.softmax

    def counted(scores: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        shares = plain(scores, *given, **named)
        if shares.ndim == 4:
            seen.append(int((shares[0, 0, :, :LENGTH] > 0).sum()))
        return shares

    monkeypatch.setattr(torch.nn.functional, "softmax", counted)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    flops = work.trained(content, task, LENGTH, BATCH)
    assert flops == pytest.approx(counter.get_total_flops() / BATCH, rel=1e-12)
    if not encoder:
        assert len(seen) == (content.get("num_hidden_layers") or content["n_layer"])
        parts = work.forward(content, task, LENGTH, BATCH)
        expected = 3 * (parts.layers + parts.attention * sum(seen) / (len(seen) * LENGTH**2) + parts.head)
        assert work.trained(content, task, LENGTH, BATCH, causal=True) == pytest.approx(expected, rel=1e-12)


def test_every_architecture_that_is_counted_is_held_against_the_counter() -> None:
    assert {kind for kind, _, _ in VARIANTS} == work.GATED | work.PLAIN | set(architecture.KINDS)


@pytest.mark.slow
def test_the_librarys_defaults_are_up_to_date() -> None:
    assert transformers_defaults.FILE.read_text(encoding="utf-8") == transformers_defaults.content()

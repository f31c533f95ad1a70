"""Models of transformers by their config.json: shapes that come with us, the user's own files, batches, FLOPs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import report_fixture
from throughline import handover, workloads
from throughline.files import UserError
from throughline.launch.request import RunRequest
from throughline.observe import work as observed
from throughline.records.run import Work
from throughline.report.analysis import cells, summary
from throughline.report.topic import Scope
from throughline.report.topics import write_tables
from throughline.spec import Options, RunSpec, canonical
from throughline.study import runs
from throughline.study.config import Config, ConfigError, load
from throughline.workloads.hugging_face import WORKLOAD, architecture, configuration

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SIZES | {"num_key_value_heads": 2}
TINY: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "gpt2": {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "bert": SIZES,
    "deberta-v2": SIZES
    | {"relative_attention": True, "position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
    | {"pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0},
}
ENCODERS = {"bert", "deberta-v2"}
SYNTHETIC = {"data": "synthetic", "dropout": 0.0}


def written(folder: Path, content: Any, name: str = "tiny") -> Path:
    path = folder / f"{name}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def asked(model: Any, **block: Any) -> tuple[RunSpec[Any], Config]:
    block = {"model": model, "sequence_length": 32, "batch": {"fp32": [2]}, **block}
    block["options"] = {**SYNTHETIC, **block.get("options", {})}
    config = load([], {"benchmarks": {"b": block}})
    return runs.expand(config)[0], config


def in_a_rank(model: Any, monkeypatch: pytest.MonkeyPatch, **block: Any) -> RunSpec[Any]:
    """Return the specification that a rank of such a run gets."""
    spec, config = asked(model, **block)
    monkeypatch.setenv(handover.VARIABLE, handover.packed(models=config.model_files()))
    return replace(spec, content=WORKLOAD.content(spec))


def tiny(kind: str, folder: Path) -> dict[str, str]:
    path = written(folder, {"model_type": kind, **TINY[kind]})
    return {"transformers": str(path), "task": "mlm" if kind in ENCODERS else "clm"}


def form() -> Any:
    """Return the implementation, which imports the library only now."""
    return workloads.form("llama-3.1-8b", "transformers")


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize("model", WORKLOAD.models)
def test_a_shape_has_the_parameters_that_are_published(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = form().build(in_a_rank(model, monkeypatch), {}, torch.device("meta"))
    assert form().settings(network)["parameters"] == configuration.SHAPES[model].parameters
    assert len(form().blocks(network)) == network.model.config.num_hidden_layers
    assert (configuration.RESOURCES / f"{model}.json").is_file()


def test_the_causal_count_is_of_what_the_mask_lets_through() -> None:
    for sequence_length, width in [(7, None), (7, 3), (3, 7), (8, 8), (5, 1)]:
        places = np.arange(sequence_length)
        back = places[:, None] - places[None]
        seen = (back >= 0) & (back < (width or sequence_length))
        assert architecture.causal_pairs(sequence_length, width) == seen.sum()


def test_llama_8b_counts_what_both_conventions_publish() -> None:
    """57.9 GFLOP a token with full attention (PaLM, torchtitan), 51.5 with causal attention (NeMo)."""
    spec, _ = asked("llama-3.1-8b", sequence_length=8192)
    full, causal = WORKLOAD.flops_per_sample(spec, {}, {}), WORKLOAD.causal_flops_per_sample(spec)
    assert isinstance(full, float) and isinstance(causal, float)
    assert (round(full / 8192e9, 1), round(causal / 8192e9, 1)) == (57.9, 51.5)
    encoder, card = asked("modernbert-base")[0], {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"}
    assert "mfu_causal" not in Work(**observed.of(encoder, 1.0, 1, card, {})).model_dump()


def test_tables_show_tokens_and_both_shares_of_the_peak(tmp_path: Path) -> None:
    """torchtitan's 6,667 tokens/s per H100, compiled, are 343 TFLOPS: 35 % of the peak with causal attention, and 39 %
    with full attention."""
    block = {"sequence_length": 8192, "batch": {"bf16": [1]}, "topologies": ["1n8g"], "frameworks": ["hf-loop"]}
    run, _ = asked("llama-3.1-8b", **block)
    card, speed = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "count": 8, "fp16_native": True}, 8 * 6667 / 8192
    record = report_fixture.record(run.values(), speed, device=card)
    record["work"] = observed.of(run, speed, 8, card, {"matmul_flops_per_s": 700e12})
    path = report_fixture.write_record(tmp_path, record)
    made = summary.summarize([path], repeats=1)
    groups = cells.groups({path: made}.values())
    write_tables(Scope(groups, groups), tmp_path / "tables")
    (row,) = report_fixture.read_csv(tmp_path / "tables/flops.csv")
    assert (round(float(row["mfu"]), 2), round(float(row["mfu_causal"]), 2)) == (0.39, 0.35)
    assert "| MFU causal attention |" in (tmp_path / "tables/flops.md").read_text()
    assert made.frameworks["hf-loop"]["1n8g"].other_units == {"tokens/s": pytest.approx(8 * 6667)}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"model_type": "falcon"}, "the architecture falcon"),
        ({"model_type": "mixtral", "output_router_logits": True}, "a loss that balances experts"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "attention in both directions"),
    ],
)
def test_flops_of_an_unknown_architecture_are_null_with_a_reason(
    content: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"transformers": str(written(tmp_path, content | {"vocab_size": 97})), "task": "clm"}
    made = observed.of(in_a_rank(model, monkeypatch), 1.0, 1, None, {})
    assert made["flops_per_sample"] is None and why in made["reasons"]["flops_per_sample"]


def test_a_file_stands_in_the_specification_by_name_and_digest(tmp_path: Path) -> None:
    (tmp_path / "My Model").mkdir()
    path = written(tmp_path / "My Model", {"model_type": "llama", **TINY["llama"]}, "config")
    spec, config = asked({"transformers": str(path), "task": "clm"})
    plain = json.loads(spec.canonical)
    assert (plain["model"], plain["task"], len(plain["config_sha256"])) == ("transformers:My-Model", "clm", 64)
    assert str(tmp_path) not in spec.canonical + runs.packed(config) + canonical(spec.values())
    assert config.model_files() == {plain["config_sha256"]: str(path)}
    assert runs.read_spec(spec.canonical) == spec
    assert spec.parameters.sequence_length == 32


def test_the_launcher_checks_the_file_and_hands_its_content_to_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama", tmp_path)
    spec, config = asked(model)
    request = RunRequest(spec=spec, record=tmp_path / "run1.json", log=tmp_path / "run1.log")
    with pytest.raises(UserError, match="start the run through snakemake"):
        _ = request.with_content
    monkeypatch.setenv(handover.VARIABLE, handover.packed(models=config.model_files()))
    assert request.with_content.content == json.loads(Path(model["transformers"]).read_text())
    assert request.with_content.values() == request.spec.values() and request.spec.content is None
    written(tmp_path, {"model_type": "llama", **TINY["llama"], "vocab_size": 98})
    with pytest.raises(UserError, match="is not the file with which the run was planned"):
        _ = request.with_content


GOOD = {"model_type": "llama", **TINY["llama"]}


@pytest.mark.parametrize(
    ("content", "block", "message"),
    [
        (None, {}, "No such file or directory; give the path of a model's config.json"),
        ("{", {}, "tiny.json is no JSON"),
        ([], {}, "names no model_type"),
        ({"hidden_size": 3}, {}, "names no model_type"),
        ({"model_type": "vit"}, {}, "has no vocab_size"),
        ({"model_type": "mine", "auto_map": {"AutoModel": "mine.Model"}}, {}, "has no architecture 'mine'"),
        ({"model_type": "mine", "text_config": {"vocab_size": 9, "auto_map": {}}}, {}, "such code is never run"),
        (GOOD | {"_attn_implementation": "someone/kernel"}, {}, "has _attn_implementation, which names code"),
        (GOOD | {"num_hidden_layers": "4"}, {}, "num_hidden_layers = '4', and a whole number above 0 is needed"),
        (GOOD | {"num_hidden_layers": 0}, {}, "num_hidden_layers = 0, and a whole number above 0 is needed"),
        (GOOD | {"intermediate_size": [48, 48]}, {}, "intermediate_size = [48, 48], and a whole number is needed"),
        (GOOD | {"rms_norm_eps": "wide"}, {}, "rms_norm_eps = 'wide', and a number is needed"),
        (GOOD | {"attention_bias": None}, {}, "attention_bias = None, and true or false is needed"),
        (GOOD | {"layer_types": ["full_attention"]}, {}, "layer_types has 1 entries, and num_hidden_layers = 2"),
        (GOOD | {"layer_types": 2}, {}, "layer_types = 2, and a list with the type of each layer is needed"),
        ({"model_type": "gemma3", "text_config": {"num_hidden_layers": "4"}}, {}, "num_hidden_layers = '4', and a"),
        ({"model_type": "mistral", **SIZES}, {}, "no multiple of num_key_value_heads = 8 (the library's default)"),
        (GOOD | {"num_attention_heads": 5}, {}, "is no multiple of num_attention_heads = 5"),
        (GOOD | {"num_key_value_heads": 3}, {}, "is no multiple of num_key_value_heads = 3"),
        (GOOD, {"sequence_length": 65}, "sequence_length = 65: transformers:tiny is made for 64 tokens at most"),
        (GOOD, {"model": {"transformers": "tiny.json"}}, "{transformers: FILE, task: mlm | clm}"),
        (GOOD, {"model": {"transformers": "tiny.json", "task": "nsp"}}, "{transformers: FILE, task: mlm | clm}"),
        (GOOD, {"model": {"file": "tiny.json"}}, "a map with the key transformers"),
        (GOOD, {"model": "transformers:tiny"}, "b.model = 'transformers:tiny': did you mean "),
        (GOOD, {"model": "modernbert-base", "sequence_length": 77}, "sequence_length = 77: allowed: [32, 128]"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake_of_the_configuration(
    content: Any, block: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        written(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        asked(**{"model": {"transformers": "tiny.json", "task": "clm"}, **block})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "task", "message"),
    [
        ({"model_type": "llamma", "vocab_size": 9}, "clm", "has no architecture 'llamma'"),
        ({"model_type": "gpt2", **TINY["gpt2"]}, "mlm", "cannot be trained with task mlm.*set task: clm"),
        ({"model_type": "bert", **SIZES}, "clm", "cannot be trained with task clm.*set task: mlm"),
        ({"model_type": "vit", "vocab_size": 9}, "clm", "no task of a language model"),
        (GOOD | {"rope_parameters": {"rope_type": "linear"}}, "clm", "transformers cannot read its config.json"),
    ],
)
def test_what_only_the_library_knows_is_said_before_anything_is_built(
    content: dict[str, Any], task: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"transformers": str(written(tmp_path, content)), "task": task}
    with pytest.raises(UserError, match=f"(?s){message}"):
        form().build(in_a_rank(model, monkeypatch), {}, torch.device("cpu"))


TEXT = {key: value for key, value in GROUPED.items() if key != "num_attention_heads"} | {"sliding_window": 8}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ({"model_type": "gemma3", "text_config": {**TEXT, "head_dim": 16}, "vision_config": VISION},
         "Gemma3ForCausalLM", "the text part (gemma3_text) of gemma3"),
        ({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", **GROUPED}},
         "Qwen3VLTextModel with a head", "the text part (qwen3_vl_text) of qwen3_vl"),
        ({"model_type": "qwen2_vl", **GROUPED, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
         "Qwen2VLTextModel with a head", "the text part (qwen2_vl_text) of qwen2_vl"),
        (GOOD | {"auto_map": {"AutoModel": "mine.Model"}, "quantization_config": {"quant_method": "fp8"}},
         "LlamaForCausalLM", "without auto_map, quantization_config"),
        (GOOD | {"rms_norm_eps": 1, "initializer_range": 1}, "LlamaForCausalLM", None),
    ],
)  # fmt: skip
def test_the_record_says_which_part_of_a_file_trains(
    content: dict[str, Any], name: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of Gemma 3 leaves out the number of heads, as published ones do: the library's default is 8."""
    spec = in_a_rank({"transformers": str(written(tmp_path, content)), "task": "clm"}, monkeypatch)
    network = form().build(spec, {}, torch.device("cpu"))
    network(**tensors(WORKLOAD.synthetic(2, spec, 1))).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    settings = form().settings(network)
    assert (settings["architecture"], settings.get("config_json")) == (name, said)
    if name in ("Gemma3ForCausalLM", "LlamaForCausalLM"):
        own = workloads.form("llama-3.1-8b", "torch")
        ours = own.settings(own.build(spec, {}, torch.device("meta")))
        assert (ours["parameters"], ours.get("config_json")) == (settings["parameters"], said)


def test_masked_words_are_those_of_berts_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = in_a_rank(tiny("bert", tmp_path), monkeypatch)
    rows = {
        "input_ids": np.array([[1, 5, 103, 7], [1, 9, 2, 0]], np.int32),
        "input_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int8),
        "segment_ids": np.array([[0, 0, 1, 1], [0, 0, 0, 0]], np.int8),
        "masked_lm_positions": np.array([[2, 3], [1, 0]], np.int32),
        "masked_lm_ids": np.array([[96, 7], [98, 0]], np.int32),
        "next_sentence_labels": np.array([0, 1], np.int8),
    }
    batch = WORKLOAD.batch(rows, Options())
    assert batch["labels"].tolist() == [[-100, -100, 96, 7], [-100, 98, -100, -100]]
    network = form().build(spec, {"vocabulary": 30522}, torch.device("cpu")).eval()
    given = network.inputs(**tensors(batch))
    assert given["input_ids"].tolist() == [[1, 5, 103 - 97, 7], [1, 9, 2, 0]]
    assert given["labels"].tolist() == [[-100, -100, 96, 7], [-100, 1, -100, -100]]
    scores = network.model(**{name: given[name] for name in given if name != "labels"}).logits
    by_hand = cross_entropy(scores[[0, 0, 1], [2, 3, 1]], torch.tensor([96, 7, 1]))
    assert network(**tensors(batch)).item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert WORKLOAD.counts(rows) == (7, 4**2 + 3**2)


def test_the_next_word_is_predicted_from_windows_with_ids_below_the_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = in_a_rank(tiny("llama", tmp_path), monkeypatch)
    tokens = np.array([[96, 97, 50256, 3, 4, 5, 6, 7, 8]], np.uint16)
    batch = tensors(WORKLOAD.batch({"tokens": tokens}, Options()))
    network = form().build(spec, {"vocabulary": 50257}, torch.device("cpu"))
    ids = network.inputs(**batch)["input_ids"]
    assert ids.tolist() == [[96, 0, 50256 % 97, 3, 4, 5, 6, 7]]
    by_hand = cross_entropy(network.model(input_ids=ids).logits[0, :-1], ids[0, 1:])
    assert network(**batch).item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert form().build(spec, {"vocabulary": None}, torch.device("cpu")).inputs(**batch)["input_ids"].max() == 50256
    assert WORKLOAD.folder(asked("llama-3.2-1b")[0].parameters) == "bpe"


def test_synthetic_batches_keep_to_the_vocabulary_and_are_the_same_for_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = in_a_rank(tiny("deberta-v2", tmp_path), monkeypatch)
    spec = replace(spec, parameters=replace(spec.parameters, predictions=5))
    one, same, other = (WORKLOAD.synthetic(3, spec, seed) for seed in (1, 1, 2))
    assert one["input_ids"].max() < 97 and (one["labels"] != -100).sum(1).tolist() == [5, 5, 5]
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["input_ids"], other["input_ids"])


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_dropout_is_that_of_the_file_or_off(dropout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = in_a_rank(tiny("bert", tmp_path), monkeypatch, options={"dropout": dropout})
    network = form().build(spec, {}, torch.device("cpu"))
    rates = {module.p for module in network.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {dropout}
    assert set(form().settings(network)["dropout"]) == {dropout}


@pytest.mark.slow
def test_nothing_is_downloaded() -> None:
    """Checked in a new process, because the library reads the variable when it is imported first."""
    module = type(form()).__module__
    code = f"import {module}, huggingface_hub.constants as hub; assert hub.HF_HUB_OFFLINE"
    variables = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=300)

"""Real runs of models by their config.json: the preset of Llama-3.1-8B with two narrow layers, and a model of masked
words."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import training_fixtures
from framework_lab import ROOT, RUN_TRAINING, arguments, python
from throughline import files, handover, records
from throughline.study import runs
from throughline.study.config import Config, load
from throughline.workloads.hugging_face import configuration

NARROW = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 224, "num_attention_heads": 8}
NARROW |= {"num_key_value_heads": 2, "vocab_size": 1000}
CPU = {"device": "cpu", "repeats": 1, "steps": {"warmup": 2, "timed": 4}}


def tokens(folder: Path) -> Path:
    """Make a manifest of GPT-2's tokens, with ids up to the end of the vocabulary."""
    file = folder / "training_0000.bin"
    np.random.default_rng(1).integers(0, 50257, 4096).astype(np.uint16).tofile(file)
    shard = {"file": file.name, "split": "training", "type": "uint16", "offset": 0, "tokens": 4096}
    content = {"kind": "tokens", "tokens": 4096, "vocabulary": {"size": 50257}, "content_digest": "ab" * 32}
    shards = [{**shard, "sha256": files.sha256(file)}]
    (folder / "manifest.json").write_text(json.dumps({**content, "schema": 1, "shards": shards}))
    return folder / "manifest.json"


def measured(folder: Path, config: Config, manifest: Path) -> records.RunRecord:
    """Start the configuration's first run as the workflow does; return its record."""
    spec = runs.expand(config)[0]
    command = [*RUN_TRAINING, *arguments(spec, folder, manifest), "--python", python(spec.framework)]
    environment = os.environ | {handover.VARIABLE: handover.packed(models=config.model_files())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    log = folder / spec.log
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
    return records.read_run(folder / spec.record)


def described(folder: Path, shape: str, **changes: Any) -> dict[str, str]:
    """Write a changed copy of a shape's config.json; return its path."""
    content = json.loads((configuration.RESOURCES / f"{shape}.json").read_text()) | changes
    (folder / f"{shape}-narrow.json").write_text(json.dumps(content))
    return {"transformers": str(folder / f"{shape}-narrow.json"), "task": configuration.SHAPES[shape].task}


@pytest.mark.parametrize(
    ("framework", "architecture"), [("hf-loop", "LlamaForCausalLM"), ("torch", "llama, our own step")]
)
def test_the_preset_of_llama_with_two_narrow_layers(framework: str, architecture: str, tmp_path: Path) -> None:
    """As in the preset, but not compiled: bf16, everything split over the ranks, recomputed layers, clipping."""
    narrow = {"model": described(tmp_path, "llama-3.1-8b", **NARROW), "sequence_length": 64, "topologies": ["1n2g"]}
    block = {**narrow, "frameworks": [framework], "batch": {"bf16": [2]}, "options": {"compile": False}}
    config = load([ROOT / "presets/llama-8b.yaml"], {"runs": CPU, "benchmarks": {"llama_8b": block}})
    record = measured(tmp_path, config, tokens(tmp_path))
    assert (record.status, record.reason) == ("ok", None)
    assert record.spec.model == "transformers:llama-3.1-8b-narrow"
    assert "a part of each" in record.settings["sharding"]
    assert record.settings["architecture"] == architecture
    assert record.settings["vocabulary_rows"] == 1000
    assert all(loss is not None and 6 < loss < 8 for loss in record.loss), "the logarithm of 1,000 is 6.9"
    assert record.work.real_tokens_per_s == pytest.approx(64 * (record.samples_per_s or 0))
    assert "narrow.json" not in record.model_dump_json(), "the file's place is nobody's business"


def test_masked_words_of_an_encoder(tmp_path: Path) -> None:
    changes = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
    model = described(tmp_path, "deberta-v3-base", **changes, vocab_size=1200)
    block = {"model": model, "sequence_length": 32, "frameworks": ["hf-loop"], "batch": {"fp32": [4]}}
    config = load([], {"runs": CPU, "benchmarks": {"encoder": block}})
    record = measured(tmp_path, config, training_fixtures.corpus(tmp_path / "data"))
    assert (record.status, record.reason) == ("ok", None)
    assert record.settings is not None and record.settings["attention"].endswith("eager")
    assert record.work is not None and record.work.real_token_share is not None and record.work.real_token_share < 1

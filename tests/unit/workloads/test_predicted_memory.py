"""The memory that is predicted for a decoder is what PyTorch's own tracker counts, with tensors that have no values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import workloads
from throughline.checks import max_batch
from throughline.console import plan
from throughline.observe import telemetry_record
from throughline.spec import RunSpec, Topology
from throughline.workloads.hugging_face import WORKLOAD, configuration, memory
from throughline.workloads.workload import Memory

torch = pytest.importorskip("torch")

CONTENT = {
    "model_type": "llama", "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 1024,
}  # fmt: skip
MIXTURE = CONTENT | {
    "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192, "head_dim": 32,
}  # fmt: skip


def asked(content: Any, precision: str = "fp32", **options: Any) -> RunSpec[Any]:
    return training_fixtures.decoder_spec(content, options, sequence_length=256, precision=precision)


def tracked(spec: RunSpec[Any]) -> int:
    """Return the peak of a step on a CPU, with the optimizer's states, as PyTorch's tracker counts it."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    network: Any = workloads.form(spec.model, "torch").build(spec, {}, torch.device("meta"))
    with FakeTensorMode(allow_non_fake_inputs=True):
        network.to_empty(device="cpu")
        network.half_type = {"bf16": torch.bfloat16}.get(spec.precision)
        update = torch.optim.AdamW(network.parameters(), foreach=False)
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        update.step()
        update.zero_grad()
        tracker: Any = MemTracker()
        tracker.track_external(network, update)
        ids = torch.zeros(spec.batch, spec.parameters.sequence_length, dtype=torch.int64)
        with tracker:
            for _ in range(spec.options.gradient_accumulation):
                tracker.reset_mod_stats()
                network(ids).backward()
            update.step()
        (of_device,) = tracker.get_tracker_snapshot("peak").values()
        return int(of_device["Total"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "precision", "options"),
    [
        (CONTENT, "fp32", {}),
        (CONTENT, "bf16", {}),
        (CONTENT, "fp32", {"gradient_accumulation": 2}),
        (CONTENT, "bf16", {"activation_checkpointing": True}),
        (CONTENT, "bf16", {"activation_checkpointing": "selective"}),
        (MIXTURE, "bf16", {}),
    ],
)
def test_the_prediction_is_what_the_tracker_counts(content: Any, precision: str, options: dict[str, Any]) -> None:
    spec = asked(content, precision, **options)
    predicted = memory.predicted(WORKLOAD.architecture(spec), spec, gpu=False).peak_bytes
    assert predicted == pytest.approx(tracked(spec), rel=0.1)


def test_splitting_divides_what_each_rank_keeps() -> None:
    def of(topology: str, **options: Any) -> Memory:
        spec = replace(asked(CONTENT, "bf16", **options), topology=Topology.parse(topology))
        return memory.predicted(WORKLOAD.architecture(spec), spec, gpu=True)

    one = of("1n1g")
    parameters = WORKLOAD.architecture(asked(CONTENT)).parameters
    assert (one.weights, one.gradients, one.states, one.gathered) == (4 * parameters, 4 * parameters, 8 * parameters, 0)
    assert of("1n8g") == one
    assert of("1n8g", sharding="zero1").states == one.states / 8
    split, once = of("1n8g", sharding="full_shard"), of("1n8g", sharding="shard_grad_op")
    assert (split.weights, split.gradients, split.states) == (one.weights / 8, one.gradients / 8, one.states / 8)
    assert 0 < split.gathered < once.gathered
    assert of("2n4g", sharding="full_shard", hybrid_shard_groups="nodes").weights == one.weights / 4
    cut = of("1n2g", tensor_parallel=2)
    assert cut.weights == one.weights / 2
    assert one.activations / 2 < cut.activations < one.activations


def test_what_is_not_predicted_has_no_number() -> None:
    assert WORKLOAD.memory(asked(CONTENT), gpu=True) is not None
    assert WORKLOAD.memory(replace(asked(CONTENT), framework="hf-loop"), gpu=True) is None
    assert WORKLOAD.memory(asked(CONTENT | {"hidden_act": "quick_gelu"}), gpu=True) is None


def test_the_plan_says_what_cannot_fit(tmp_path: Path) -> None:
    (tmp_path / "0000:18:00.0").mkdir()
    (tmp_path / "0000:18:00.0" / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 12\n")
    content = configuration.read(configuration.of_shape("llama-3.1-8b").file)
    one, eight = (
        replace(asked(content, "bf16", sharding=sharding), device="auto", topology=Topology.parse(topology))
        for topology, sharding in (("1n1g", "none"), ("1n8g", "full_shard"))
    )
    sha256 = configuration.of_shape(one.model).sha256
    every = [replace(spec, parameters=replace(spec.parameters, config_sha256=sha256)) for spec in (one, eight)]
    (line,) = plan.memory_lines(every, models=tmp_path)
    assert line.startswith("predicted memory of a rank, torch: 1n1g 1") and " has 80.0 GiB" in line
    assert line.endswith(". WARNING: it cannot fit: 1n1g")
    (unknown,) = plan.memory_lines(every, models=tmp_path / "none")
    assert "WARNING" not in unknown and " has " not in unknown
    (on_cpu,) = plan.memory_lines([replace(spec, device="cpu") for spec in every])
    assert "; this machine, for all its ranks, has " in on_cpu
    (elsewhere,) = plan.memory_lines(every, cluster=True, models=tmp_path)
    assert elsewhere == unknown, "the plan does not know the nodes of a cluster"


def test_the_search_for_the_largest_batch_begins_where_nine_tenths_are_filled(tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        spec = asked(CONTENT, precision, memory_limit_mb=4000)
        begun = max_batch._Search(spec, None, "python", tmp_path, (), max_batch.BATCH)
        filled = [WORKLOAD.memory(begun.at(size), False) for size in (begun.start, begun.start + begun.start // 32)]
        assert begun.start > 4 * spec.batch and filled[0] and filled[1]
        assert filled[0].peak_bytes <= max_batch.FILLED * (4000 << 20) < filled[1].peak_bytes
    other = training_fixtures.spec(batch=8, options={"memory_limit_mb": 4000})
    assert max_batch._Search(other, None, "python", tmp_path, (), max_batch.BATCH).start == 8


def test_a_record_has_what_was_predicted() -> None:
    spec = asked(CONTENT)
    predicted = WORKLOAD.memory(spec, False)
    record = {"utilization": {"cpu": None, "gpu": None}, "warnings": []}
    plan = training_fixtures.plan()
    found = telemetry_record.parts(spec, plan, {}, [], record)["memory"]
    assert predicted and found["predicted_bytes"] == round(predicted.peak_bytes)
    assert "predicted_bytes" not in telemetry_record.parts(training_fixtures.spec(), plan, {}, [], record)["memory"]

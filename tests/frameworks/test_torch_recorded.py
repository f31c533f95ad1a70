"""A whole step that is recorded once (`cuda_graph: step`) trains as one that is not. A CPU replays by calling it
again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import training_fixtures
from throughline import frameworks, workloads
from throughline.frameworks.torch import recorded
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.workloads import Unsupported

SCHEDULE = {"name": "linear", "warmup_steps": 2, "total_steps": 6}
RATE = 2.0**-13
"""With this schedule every rate is a number of fp32. So a learning rate in a tensor rounds nothing."""
STEPS = 4
CASES: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": {"schedule": SCHEDULE}, "options": {"clip": "global_norm", "gradient_accumulation": 2}},
    "adam": {"optimizer": {"name": "adam"}, "precision": "bf16", "options": {"dropout": 0.1}},
    "lamb": {"optimizer": {"name": "lamb", "schedule": SCHEDULE}, "options": {"clip": "norm"}},
    "scaler": {"precision": "fp16", "options": {"clip": "value"}},
    "sgd": {
        "model": "resnet-tiny", "image": 32, "classes": 10, "optimizer": {"name": "sgd", "schedule": SCHEDULE},
    },
}  # fmt: skip


class Again:
    """Stands in for a CUDA graph: a replay calls the recorded function again, with the batches in its memory. As with
    a real graph, nothing is computed while it is recorded."""

    peak_bytes = 0
    result: Any

    def __init__(self, work: Callable[[], Any], aside: Any = None) -> None:
        self.work = work

    def replay(self) -> None:
        self.result = self.work()


def whole_step(rank: TorchDDP, first: int = recorded.FIRST) -> recorded.ReplayedStep:
    """Let the rank record its whole steps, and return what does so."""
    given = rank.whole, rank.update, first, rank.passes, rank.parameters, list(rank.changing.values())
    rank.recorded = recorded.ReplayedStep(*given, record=Again)
    return rank.recorded


def rank_of(changes: dict[str, Any], world: int = 1) -> TorchDDP:
    given = {"dropout": 0.0, **changes.get("options", {})}
    optimizer = {"learning_rate": RATE, **changes.get("optimizer", {})}
    spec = training_fixtures.spec(**{**changes, "options": given, "optimizer": optimizer})
    rank = TorchDDP(spec, 0, 0, world, "cpu")
    rank.device()
    rank.model(workloads.of(rank.spec.model).facts(None))
    rank.optimizer()
    rank.update.fused = True  # LAMB as on a GPU
    return rank


def train(rank: TorchDDP, steps: range = range(1, STEPS + 1)) -> list[float]:
    """Make these steps, each with its learning rate and batches, and return their losses."""
    rates, losses = rank.spec.optimizer.rates(), []
    workload, each = workloads.of(rank.spec.model), rank.options.gradient_accumulation
    for step in steps:
        if rates:
            rank.set_rate(rates(step))
        made = [workload.synthetic(2, rank.spec, each * step + turn) for turn in range(each)]
        losses.append(rank.step([rank.deliver(rank.data(arrays)) for arrays in made]))
    return rank.losses(losses)


def state(rank: TorchDDP) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in rank.network.state_dict().items()}


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_step_trains_as_one_that_is_not(case: str) -> None:
    """To the last bit: the learning rate in a tensor changes nothing, and dropout draws the same numbers."""
    plain, replayed = rank_of(CASES[case]), rank_of(CASES[case])
    whole_step(replayed)
    found = []
    for rank in (plain, replayed):
        torch.manual_seed(5)
        found.append(train(rank))
    assert found[1] == found[0]
    assert replayed.skipped() == plain.skipped()
    for name, tensor in state(plain).items():
        torch.testing.assert_close(state(replayed)[name], tensor, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation": 2}, {"sharding": "zero1"}, {"reduce_dtype": "bf16"}])
def test_replicas_are_recorded_after_the_passes_that_pytorch_asks_for(options: dict[str, Any]) -> None:
    with training_fixtures.group_of_one():
        changes = {"topology": "1n2g", "options": options}
        plain, replayed = rank_of(changes, world=2), rank_of(changes, world=2)
        made, calls = whole_step(replayed, recorded.FIRST_OF_SEVERAL), []
        passes = made.passes
        made.passes = lambda batches: calls.append(1) or passes(batches)  # type: ignore[func-returns-value]
        assert train(replayed) == train(plain)
        assert len(calls) == 11


def test_a_recorded_training_resumes_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    """Also in a rank that has recorded already: its graph would change tensors that are no longer used."""
    changes = {"optimizer": {"schedule": SCHEDULE}, "options": {"dropout": 0.3}}
    whole = rank_of(changes)
    whole_step(whole)
    train(whole, range(1, 3))
    with (tmp_path / "checkpoint").open("wb") as stream:
        whole.save(stream)
    whole.seed(3)
    expected = train(whole, range(3, 5))
    for used in (False, True):
        other = rank_of(changes)
        whole_step(other)
        if used:
            train(other, range(1, 3))
        with (tmp_path / "checkpoint").open("rb") as stream:
            other.restore(stream)
        other.seed(3)
        assert train(other, range(3, 5)) == expected


def test_the_rate_that_a_record_states_is_the_one_that_was_asked_for() -> None:
    rank = rank_of({"optimizer": {"learning_rate": 3e-5}})
    whole_step(rank)
    train(rank)
    held = {id(group["lr"]) for group in rank.update.param_groups}
    assert len(held) == 1
    assert isinstance(rank.update.param_groups[0]["lr"], torch.Tensor)
    assert rank.settings()["learning_rate"] == 3e-5


def test_a_batch_of_another_shape_is_an_error() -> None:
    kept = [{"ids": torch.zeros(4, 3)}]
    recorded.copy_into(kept, [{"ids": torch.ones(4, 3)}])
    assert kept[0]["ids"].sum() == 12
    with pytest.raises(ValueError, match=r"recorded for .*\(4, 3\).* this batch has .*\(1, 3\)"):
        recorded.copy_into(kept, [{"ids": torch.ones(1, 3)}])


@pytest.mark.parametrize(
    ("kind", "world", "options", "why"),
    [
        ("cpu", 1, {}, "exists on GPUs only"),
        ("cuda", 1, {"activation_checkpointing": True}, "a recomputation reads"),
        ("cuda", 1, {"remove_padding": True}, "every batch has another shape"),
        ("cuda", 2, {"sharding": "full_shard"}, "and not one with FSDP2"),
        ("cuda", 2, {"sharding": "shard_grad_op"}, "and not one with FSDP2"),
        ("cuda", 2, {"tensor_parallel": 2}, "whole replicas"),
    ],
)
def test_a_whole_step_that_cannot_be_recorded_is_unsupported(
    kind: str, world: int, options: dict[str, Any], why: str
) -> None:
    spec = training_fixtures.spec(options={"cuda_graph": "step", **options})
    with pytest.raises(Unsupported, match=why):
        TorchDDP(spec, 0, 0, world, kind).device()


def test_the_memory_of_a_recording_counts_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay allocates nothing, so the allocator's peak in the window lacks the memory that it uses."""
    rank = rank_of({})
    made = whole_step(rank)
    rank.kind, peaks = "cuda", {"allocated": 900, "reserved": 950}  # as if the passes before the recording needed most
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda at: peaks.update(allocated=100, reserved=700))
    for name in peaks:
        monkeypatch.setattr(torch.cuda, f"max_memory_{name}", lambda at, name=name: peaks[name])
    made.peaks_before, made.graph = (900, 950), type("Graph", (), {"peak_bytes": 600})
    peaks.update(allocated=650, reserved=800)
    rank.window_opens()
    told = rank.memory()
    assert (told["needed_bytes"], told["reserved_bytes"], told["window_needed_bytes"]) == (900, 950, 600)


def test_tables_that_are_updated_by_rows_say_why_they_cannot_be_recorded() -> None:
    spec = replace(training_fixtures.spec(options={"cuda_graph": "step"}), model="wide-deep")
    with pytest.raises(Unsupported, match="count their steps on the host"):
        frameworks.refuse(spec)

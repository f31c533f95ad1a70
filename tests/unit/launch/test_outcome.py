"""From the ranks' reports to a status: what is a result, what is a failure, and what must not count in a median."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from throughline.files import UserError
from throughline.launch import launcher, outcome
from throughline.messages import Checkpointed, RankReport, Window
from throughline.study.runs import read_spec
from training_fixtures import measured, report, spec


def assembled(topology: str = "1n1g", every_loss: bool = False, **changes: Any) -> outcome.Outcome:
    """Return the outcome of a run whose first rank reports these changes."""
    asked = spec(topology=topology)
    reports = {rank: report(rank) for rank in range(1, asked.topology.world)}
    return outcome.assemble(asked, {0: report(**changes), **reports}, asked.topology.devices, every_loss)


def test_throughput_is_over_the_longest_common_window() -> None:
    record = assembled("1n2g", matmul_flops_per_s=3e12)
    assert record.window_s == pytest.approx(5.0)
    assert record.samples_per_s == pytest.approx(2 * 4 * 4 / 5.0)
    assert record.peak_memory_bytes == 101
    assert record.loader_stall_share == pytest.approx(0.4 / 4.9)
    assert record.utilization["cpu"] == pytest.approx((2 / 4 + 2 / 4.9) / 2)
    assert record.ranks[1].window_start_s == pytest.approx(0.1)
    first, second = record.as_record()["ranks"]
    assert first["matmul_flops_per_s"] == 3e12 and "matmul_flops_per_s" not in second


def test_out_of_memory_on_any_rank_is_the_outcome_however_the_others_ended() -> None:
    reports = {0: RankReport(0, 5.0, "failed", "connection closed")}
    reports[1] = RankReport(1, 6.0, "oom", "MemoryError: too much\nmore")
    assert outcome.failure(reports, {0: 1, 1: 0}, range(2)) is None
    record = outcome.assemble(spec(topology="1n2g"), reports, 2)
    assert (record.status, record.reason) == ("oom", "rank 1: MemoryError: too much")


FAILED = {rank: RankReport(rank, 5.0 - rank, "failed", f"r{rank}") for rank in (0, 1)}
LOST = (1, "no word from it any more: its node, or the agent on it, is gone")


def test_a_rank_that_was_killed_on_purpose_has_not_failed() -> None:
    told = {rank: report(rank, checkpoints=Checkpointed(equal=True)) for rank in (0, 1)}
    assert outcome.failure(told, {0: -9, 1: -9}, range(2)) is None
    assert outcome.failure(told | {1: report(1)}, {0: -9, 1: -9}, range(2)), "it left no checkpoint"
    assert outcome.failure({0: told[0]}, {0: -9, 1: -9}, range(2)), "it was killed before its report"


@pytest.mark.parametrize(
    ("reports", "ended", "lost", "first"),
    [
        (FAILED, {0: 1, 1: 1}, [], (1, "r1")),
        (FAILED, {0: 1, 1: -15}, [], (1, "r1")),
        ({0: FAILED[0]}, {0: 1, 1: -9}, [], (1, "killed by signal 9 (often by the system")),
        ({0: FAILED[0]}, {0: 1}, [], (0, "r0")),
        ({0: FAILED[0]}, {0: 1}, [1], LOST),
        ({}, {}, [1], LOST),
        ({0: report()}, {0: 0, 1: None}, [], (1, "ended without a report")),
        ({0: report(), 1: report(1)}, {0: 0, 1: -11}, [], (1, "killed by signal 11")),
        ({0: report(), 1: report(1)}, {0: 0, 1: 0}, [], None),
    ],
)
def test_the_first_to_fail_is_named(
    reports: dict[int, RankReport], ended: dict[int, int | None], lost: list[int], first: tuple[int, str] | None
) -> None:
    failure = outcome.failure(reports, ended, range(2), lost)
    assert failure == first or (failure and first and failure[0] == first[0] and failure[1].startswith(first[1]))


BAD_ALLOC = ["terminate called after throwing an instance of 'std::bad_alloc'", "  what():  std::bad_alloc"]
HARMLESS = [
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.5GiB with freed_by_count=0. The caller indicates "
    "that this is not a failure, but this may mean that there could be performance gains if more memory were available."
]


@pytest.mark.parametrize(
    ("words", "ended", "status"),
    [
        (BAD_ALLOC, {1: -6, 0: 1}, "oom"),
        (BAD_ALLOC, {0: 1, 1: None}, "oom"),
        (["Segmentation fault"], {1: -11}, "failed"),
        (HARMLESS, {1: -11, 0: 1}, "failed"),
        (BAD_ALLOC, {0: 1}, "failed"),
        (BAD_ALLOC, {0: 1, 1: -15}, "failed"),
    ],
    ids=["abort", "unknown status", "crash", "harmless words", "ended by the agent", "ended by the starter"],
)
def test_last_words_count_for_a_rank_that_ended_by_itself(
    words: list[str], ended: dict[int, int | None], status: str
) -> None:
    reports = {0: RankReport(0, 5.0, "failed", "connection closed")}
    complete = outcome.with_out_of_memory(reports, ended, [[], words])
    assert outcome.failure(complete, ended, range(2)) is None if status == "oom" else 1 not in complete


def test_the_exception_of_a_program_in_c_says_more_than_its_stack() -> None:
    exception = "terminate called after throwing an instance of 'gloo::TimeoutException'"
    assert outcome.last_word(["step 3", exception, "  what():  TIMEOUT", "C++ Traceback", ""]) == exception
    assert outcome.last_word(["step 3", "Segmentation fault"]) == "Segmentation fault"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss": [9.0, float("nan"), 8.0, 8.0]}, "not finite from step 4 on"),
        ({"warmup_loss": [float("inf"), 9.0]}, "not finite from step 1 on"),
        ({"scaler_skipped_steps": 1}, "skipped 1 of 4"),
        ({"steps_timed": 3}, "3 steps timed of 4 asked"),
    ],
)
def test_numbers_that_must_not_enter_a_median(changes: dict[str, Any], reason: str) -> None:
    record = assembled(**changes)
    assert record.status == "invalid" and record.samples_per_s is None and reason in (record.reason or "")
    hundred = spec(steps={"timed": 100})
    for skipped, valid in ((1, True), (2, False)):
        fault = outcome.fault(hundred, [measured(steps_timed=100, scaler_skipped_steps=skipped)])
        assert (fault is None) == valid, "one skipped step in a hundred is allowed"


@pytest.mark.parametrize("status", ["ok", "oom", "unsupported"])
def test_nothing_on_a_fake_cuda_driver_is_a_result(status: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also how much memory was too much there, and what it did not support, says nothing about a GPU."""
    fake = replace(report(), status=status, reason="why", double_of_cuda="a fake CUDA driver that computes nothing")
    record = outcome.assemble(spec(), {0: fake}, 1)
    assert (record.status, record.samples_per_s, record.window_s, record.loss) == ("invalid", None, None, [])
    assert record.reason == "rank 0 ran on a fake CUDA driver that computes nothing, so nothing of this run is a result"
    monkeypatch.setattr(launcher, "_turn", lambda request: nullcontext(SimpleNamespace(conclude=lambda told: None)))
    monkeypatch.setattr(launcher, "_attempt", lambda request, turn: SimpleNamespace(reports={0: fake}))
    with pytest.raises(UserError, match="rank 0 ran on a fake CUDA driver"):
        launcher.train(SimpleNamespace(target="curve.json"))  # type: ignore[arg-type]


def test_what_diverges_from_given_weights_is_an_invalid_record_without_a_nan() -> None:
    """JSON has no NaN, so the losses of all ranks and the figures of a workload must not bring one into the record."""
    broken: dict[str, Any] = {"loss": [9.0, math.nan, math.inf, -math.inf]}
    broken["figures"] = [{"name": "auc", "unit": "", "better": "more", "at": None, "value": math.nan}]
    record = assembled("1n2g", every_loss=True, **broken)
    assert (record.status, record.reason) == ("invalid", "the loss is not finite from step 4 on (rank 0)")
    assert record.ranks[0].loss == [9.0, None, None, None] and record.figures[0]["value"] is None
    json.dumps(record.as_record(), allow_nan=False)


def test_the_loss_has_to_fall_in_long_windows_on_real_data() -> None:
    flat = measured(steps_timed=100, loss=[9.0 + step % 2 for step in range(100)], warmup_loss=[9.0, 10.0])
    assert "does not fall" in (outcome.fault(spec(steps={"timed": 100}), [flat]) or "")
    synthetic = spec(steps={"timed": 100}, options={"data": "synthetic"})
    assert outcome.fault(synthetic, [flat]) is None
    assert outcome.fault(spec(steps={"timed": 99}), [measured(steps_timed=99, loss=[9.0, 10.0, 9.0] * 33)]) is None
    plateau = [10.0] * 10 + [7.0 + step % 3 / 10 for step in range(100)]
    assert outcome.falls(plateau)
    assert not outcome.falls([7.0 + step / 100 for step in range(100)])


@pytest.mark.parametrize(
    ("asked", "changes", "settles", "warning"),
    [
        ({"steps": {"warmup": 20, "timed": 100, "max_total_seconds": 5.0}}, {}, False, "max_total_seconds 5: 2 of 20 "),
        ({}, {"window": Window(0.0, 0.4)}, False, "below 1 s"),
        ({}, {"window": Window(0.0, 1.0)}, False, None),
        ({"options": {"gradient_accumulation": 2}}, {"batches_ahead": 8}, False, "ready before it began"),
        ({"options": {"gradient_accumulation": 2}}, {"batches_ahead": 5}, False, "ready before it began"),
        ({"options": {"gradient_accumulation": 2}}, {"batches_ahead": 4}, False, None),
        ({}, {"window": Window(0.0, 29.9)}, True, "below 30 s on a GPU"),
        ({}, {"window": Window(0.0, 30.0)}, True, None),
        ({}, {"window": Window(0.0, 4.0)}, False, None),
    ],
)
def test_a_window_that_may_mislead_has_a_warning(
    asked: dict[str, Any], changes: dict[str, Any], settles: bool, warning: str | None
) -> None:
    """A step of two micro-batches takes two of the batches that were ready."""
    record = outcome.assemble(spec(**asked), {0: report(**changes)}, 1, settles=settles)
    assert record.status == "ok"
    assert record.warnings == [] if warning is None else any(warning in text for text in record.warnings)


def test_windows_of_checks_and_of_microbenchmarks_have_no_warning() -> None:
    assert assembled(every_loss=True, window=Window(0.0, 0.4)).warnings == []
    values = spec().values() | {"model": "matmul", "batch": 1}
    del values["sequence_length"], values["predictions"]
    product = read_spec(json.dumps(values))
    short = {0: report(window=Window(0.0, 4.0))}
    assert not any("30 s on a GPU" in text for text in outcome.assemble(product, short, 1, settles=True).warnings)


def test_a_record_says_what_window_was_planned() -> None:
    assert assembled(min_window_seconds=30.0).as_record()["min_window_seconds"] == 30.0
    assert "min_window_seconds" not in assembled().as_record()

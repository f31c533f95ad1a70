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
from throughline.messages import RankReport, Window
from throughline.observe import work
from throughline.study.runs import read_spec
from training_fixtures import measured, report, spec


def test_throughput_is_over_the_longest_common_window() -> None:
    record = outcome.assemble(spec(topology="1n2g"), {0: report(), 1: report(1)}, 2)
    assert record.window_s == pytest.approx(5.0)
    assert record.samples_per_s == pytest.approx(2 * 4 * 4 / 5.0)
    assert record.peak_memory_bytes == 101
    assert record.loader_stall_share == pytest.approx(0.4 / 4.9)
    assert record.utilization["cpu"] == pytest.approx((2 / 4 + 2 / 4.9) / 2)
    assert record.ranks[1].window_start_s == pytest.approx(0.1)


def test_a_record_has_the_matrix_product_of_each_rank() -> None:
    reports = {rank: report(rank, matmul_flops_per_s=rate) for rank, rate in enumerate((3e12, 2e12))}
    found = outcome.assemble(spec(topology="1n2g"), reports, 2).as_record()["ranks"]
    assert [rank["matmul_flops_per_s"] for rank in found] == [3e12, 2e12] and work.measured(reports)[
        "matmul_flops_per_s"
    ] == 2e12
    assert "matmul_flops_per_s" not in outcome.assemble(spec(), {0: report()}, 1).as_record()["ranks"][0]


def test_out_of_memory_on_any_rank_is_the_outcome_however_the_others_ended() -> None:
    reports = {0: RankReport(0, 5.0, "failed", "connection closed")}
    reports[1] = RankReport(1, 6.0, "oom", "MemoryError: too much\nmore")
    assert outcome.failure(reports, {0: 1, 1: 0}, 2) is None
    record = outcome.assemble(spec(topology="1n2g"), reports, 2)
    assert (record.status, record.reason) == ("oom", "rank 1: MemoryError: too much")


def test_the_first_to_fail_is_named() -> None:
    reports = {rank: RankReport(rank, 5.0 - rank, "failed", f"r{rank}") for rank in (0, 1)}
    assert outcome.failure(reports, {0: 1, 1: 1}, 2) == (1, "r1")
    killed = outcome.failure({0: reports[0]}, {0: 1, 1: -9}, 2)
    assert killed is not None and killed[0] == 1 and "signal 9" in killed[1]
    assert outcome.failure({0: report()}, {0: 0, 1: None}, 2) == (1, "ended without a report")
    lost = outcome.failure({0: reports[0]}, {0: 1}, 2, [1])
    assert lost is not None and lost[0] == 1 and "its node" in lost[1]
    assert outcome.failure({}, {}, 2, [1]) == lost, "the others wait for it"
    assert outcome.failure({0: reports[0]}, {0: 1}, 2) == (0, "r0")
    assert outcome.failure(reports, {0: 1, 1: -15}, 2) == (1, "r1")
    assert outcome.failure({0: report(), 1: report(1)}, {0: 0, 1: -11}, 2) == (1, "killed by signal 11")
    assert outcome.failure({0: report(), 1: report(1)}, {0: 0, 1: 0}, 2) is None


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
    assert outcome.failure(complete, ended, 2) is None if status == "oom" else 1 not in complete


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
    record = outcome.assemble(spec(), {0: report(**changes)}, 1)
    assert record.status == "invalid" and record.samples_per_s is None
    assert reason in (record.reason or "")


@pytest.mark.parametrize("status", ["ok", "oom", "unsupported"])
def test_nothing_on_a_double_of_cuda_is_a_result(status: Any) -> None:
    """Also how much memory was too much there, and what it did not support, says nothing about a GPU."""
    said = replace(report(), status=status, reason="why", double_of_cuda="a fake CUDA driver that computes nothing")
    record = outcome.assemble(spec(), {0: said}, 1)
    assert (record.status, record.samples_per_s, record.window_s, record.loss) == ("invalid", None, None, [])
    assert record.reason == "rank 0 ran on a fake CUDA driver that computes nothing, so nothing of this run is a result"


def test_what_diverges_from_given_weights_is_an_invalid_record_without_a_nan() -> None:
    """JSON has no NaN, so the losses of all ranks and the figures of a workload must not bring one into the record."""
    broken: dict[str, Any] = {"loss": [9.0, math.nan, math.inf, -math.inf]}
    broken["figures"] = [{"name": "auc", "unit": "", "better": "more", "at": None, "value": math.nan}]
    outcome_of_run = outcome.assemble(spec(topology="1n2g"), {0: report(), 1: report(1, **broken)}, 2, every_loss=True)
    assert (outcome_of_run.status, outcome_of_run.reason) == (
        "invalid",
        "the loss is not finite from step 4 on (rank 1)",
    )
    assert outcome_of_run.ranks[1].loss == [9.0, None, None, None]
    first = outcome.assemble(spec(), {0: report(**broken)}, 1, every_loss=True)
    assert first.figures[0]["value"] is None
    json.dumps([outcome_of_run.as_record(), first.as_record()], allow_nan=False)


def test_one_skipped_step_in_a_hundred_is_allowed() -> None:
    hundred = spec(steps={"timed": 100})
    assert outcome.fault(hundred, [measured(steps_timed=100, scaler_skipped_steps=1)]) is None
    assert "skipped 2" in (outcome.fault(hundred, [measured(steps_timed=100, scaler_skipped_steps=2)]) or "")


def test_the_loss_has_to_fall_in_long_windows_on_real_data() -> None:
    flat = measured(steps_timed=100, loss=[9.0 + step % 2 for step in range(100)], warmup_loss=[9.0, 10.0])
    assert "does not fall" in (outcome.fault(spec(steps={"timed": 100}), [flat]) or "")
    synthetic = spec(steps={"timed": 100}, options={"data": "synthetic"})
    assert outcome.fault(synthetic, [flat]) is None
    assert outcome.fault(spec(steps={"timed": 99}), [measured(steps_timed=99, loss=[9.0, 10.0, 9.0] * 33)]) is None
    plateau = [10.0] * 10 + [7.0 + step % 3 / 10 for step in range(100)]
    assert outcome.falls(plateau)
    assert not outcome.falls([7.0 + step / 100 for step in range(100)])


def test_a_cap_is_a_warning() -> None:
    capped = spec(steps={"warmup": 20, "timed": 100, "max_total_seconds": 5.0})
    record = outcome.assemble(capped, {0: report()}, 1)
    assert record.status == "ok"
    assert record.warnings == ["max_total_seconds 5: 2 of 20 warm-up and 4 of 100 timed steps"]


def test_a_window_below_a_second_is_a_warning() -> None:
    for window_s, warns in ((0.4, True), (1.0, False)):
        found = outcome.assemble(spec(), {0: report(window=Window(0.0, window_s))}, 1)
        assert any("below 1 s" in text for text in found.warnings) == warns
    assert outcome.assemble(spec(), {0: report(window=Window(0.0, 0.4))}, 1, every_loss=True).warnings == []


def test_a_window_that_the_read_ahead_could_feed_is_a_warning() -> None:
    """Four timed steps of two micro-batches take eight batches."""
    twice = spec(options={"gradient_accumulation": 2})
    for ahead, warns in ((8, True), (5, True), (4, False), (0, False)):
        found = outcome.assemble(twice, {0: report(batches_ahead=ahead)}, 1)
        assert any("ready before it began" in text for text in found.warnings) == warns


@pytest.mark.parametrize(
    ("window_s", "settles", "changes", "warns"),
    [
        (29.9, True, {}, True),
        (30.0, True, {}, False),
        (4.0, False, {}, False),
        (4.0, True, {"model": "matmul", "sequence_length": None, "predictions": None}, False),
    ],
)
def test_a_short_window_on_a_gpu_is_a_warning(
    window_s: float, settles: bool, changes: dict[str, Any], warns: bool
) -> None:
    asked = read_spec(json.dumps({key: value for key, value in (spec().values() | changes).items() if value is not None}
                                 | ({"batch": 1} if changes else {})))  # fmt: skip
    found = outcome.assemble(asked, {0: report(window=Window(0.0, window_s))}, 1, settles=settles)
    assert found.status == "ok"
    assert any("below 30 s on a GPU" in text for text in found.warnings) == warns


def test_a_record_says_what_window_was_planned() -> None:
    planned = outcome.assemble(spec(), {0: report(min_window_seconds=30.0)}, 1).as_record()
    assert planned["min_window_seconds"] == 30.0
    assert "min_window_seconds" not in outcome.assemble(spec(), {0: report()}, 1).as_record()


def test_a_check_that_trains_on_a_double_of_cuda_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    said = replace(report(), double_of_cuda="a fake CUDA driver that computes nothing")
    monkeypatch.setattr(launcher, "_turn", lambda request: nullcontext(SimpleNamespace(conclude=lambda told: None)))
    monkeypatch.setattr(launcher, "_attempt", lambda request, turn: SimpleNamespace(reports={0: said}))
    with pytest.raises(UserError, match="rank 0 ran on a fake CUDA driver"):
        launcher.train(SimpleNamespace(target="curve.json"))  # type: ignore[arg-type]

"""From what the ranks report to the measured part of a record: its status, its reason, its numbers."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from throughline import memory, records, workloads
from throughline.messages import Measured, RankReport, Window
from throughline.topology import StepSize

SKIPPED_AT_MOST = 0.01
"""Share of timed steps that the loss scaler may skip."""

Spec = Mapping[str, Any]
"""The run specification with its defaults, as JSON values."""


def out_of_memory(rank: int, last_words: Iterable[str]) -> RankReport | None:
    """The report that a rank could not write any more, when its last words say why it ended."""
    for line in last_words:
        if memory.is_refusal(line):
            return RankReport(rank, 0.0, "oom", line.strip())
    return None


def failure(
    reports: Mapping[int, RankReport], ended: Mapping[int, int | None], world: int, lost: Iterable[int] = ()
) -> tuple[int, str] | None:
    """(rank, what happened) when this is an infrastructure failure: no record. None when there is an outcome.

    ended: rank -> exit status, None where only its end is known, in the order in which they ended; lost: ranks whose
    node has fallen silent. One rank out of memory makes the run out of memory, however the others ended.
    """
    if any(report.status == "oom" for report in reports.values()):
        return None
    silent = {rank: status for rank, status in ended.items() if rank not in reports}
    for rank, status in silent.items():
        if status and status != -signal.SIGTERM:  # killed: the others only lost their connection
            return rank, _ending(status)
    for rank in lost:
        if ended and rank not in reports and rank not in ended:  # the others know only that they cannot reach it
            return rank, "no word from it any more: its node, or the agent on it, is gone"
    if failed := [report for report in reports.values() if report.status == "failed"]:
        first = min(failed, key=lambda report: report.at)
        return first.rank, str(first.reason)
    for rank in [*silent, *range(world)]:  # a starter ends the others with SIGTERM
        if ended.get(rank) or rank not in reports:
            return rank, _ending(ended.get(rank))
    return None


def _ending(status: int | None) -> str:
    if status is None:
        return "ended without a report"
    if status == -signal.SIGKILL:
        return "killed by signal 9 (often the system's own: see `dmesg` for out of memory)"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status} without a report"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The measured part of a record, by its keys; the launcher adds where and when."""

    status: str
    reason: str | None
    warnings: list[str] = field(default_factory=list)
    samples_per_s: float | None = None
    figures: list[dict[str, Any]] = field(default_factory=list)
    window_s: float | None = None
    steps_asked: int
    steps_timed: int = 0
    warmup_steps: int = 0
    step_seconds: list[float] = field(default_factory=list)
    loss: list[float | None] = field(default_factory=list)
    scaler_skipped_steps: int = 0
    ranks: list[records.Rank] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    loader_stall_share: float | None = None
    utilization: dict[str, float | None] = field(default_factory=lambda: {"cpu": None, "gpu": None})

    def as_record(self) -> dict[str, Any]:
        return {**vars(self), "ranks": [rank.model_dump() for rank in self.ranks]}


def assemble(spec: Spec, reports: Mapping[int, RankReport], per_node: int, every_loss: bool = False) -> Outcome:
    """What a run came to whose ranks ended as they should, or were refused."""
    for status in ("oom", "unsupported"):
        those = [report for _, report in sorted(reports.items()) if report.status == status]
        if those:
            reason = str(those[0].reason).splitlines()[0]
            where = f"rank {those[0].rank}: " if status == "oom" else ""
            return Outcome(status=status, reason=where + reason, steps_asked=spec["steps"]["timed"])
    ranks = [report.measured for _, report in sorted(reports.items()) if report.measured]
    outcome = _measured(spec, ranks, per_node, every_loss)
    invalid = fault(spec, ranks)
    if invalid:
        return replace(outcome, status="invalid", reason=invalid)
    return replace(outcome, samples_per_s=_rate(spec, outcome), warnings=_cut_short(spec, outcome))


def _measured(spec: Spec, ranks: Sequence[Measured], per_node: int, every_loss: bool) -> Outcome:
    """The figures of all ranks; whether they may be used is not asked yet."""
    first, windows = ranks[0], aligned([rank.window for rank in ranks], per_node)
    stalls = [rank.loader_stall_s / rank.window.seconds for rank in ranks if rank.loader_stall_s is not None]
    held = [rank.memory.reserved_bytes for rank in ranks]
    busy = [rank.cpu_seconds / (rank.window.seconds * spec["threads"]) for rank in ranks]
    return Outcome(
        status="ok",
        reason=None,
        steps_asked=spec["steps"]["timed"],
        window_s=max(window.end for window in windows),
        steps_timed=first.steps_timed,
        warmup_steps=first.warmup_steps,
        step_seconds=first.step_seconds,
        figures=first.figures,
        loss=_finite(first.loss),
        scaler_skipped_steps=max(rank.scaler_skipped_steps for rank in ranks),
        peak_memory_bytes=max((peak for peak in held if peak is not None), default=None),
        loader_stall_share=max(stalls, default=None),
        utilization={"cpu": sum(busy) / len(busy), "gpu": None},
        ranks=[
            records.Rank(
                rank=number,
                node=number // per_node,
                window_start_s=window.start,
                window_end_s=window.end,
                peak_memory_bytes=one.memory.reserved_bytes,
                cpu_seconds=one.cpu_seconds,
                loader_stall_s=one.loader_stall_s,
                loss=_finite(one.loss) if every_loss else None,
            )
            for number, (one, window) in enumerate(zip(ranks, windows, strict=True))
        ],
    )


def _finite(losses: Iterable[float]) -> list[float | None]:
    return [loss if math.isfinite(loss) else None for loss in losses]


def aligned(windows: Sequence[Window], per_node: int) -> list[Window]:
    """The ranks' windows, counted from the first start on their node.

    Each node has a clock of its own: windows are compared within a node, and the longest one counts.
    """
    origins = [
        min(window.start for window in windows[node : node + per_node]) for node in range(0, len(windows), per_node)
    ]
    pairs = [(window, origins[rank // per_node]) for rank, window in enumerate(windows)]
    return [Window(window.start - origin, window.end - origin) for window, origin in pairs]


def _rate(spec: Spec, outcome: Outcome) -> float | None:
    samples = StepSize.of_spec(spec).samples_per_step * outcome.steps_timed
    return samples / outcome.window_s if outcome.window_s else None


def _cut_short(spec: Spec, outcome: Outcome) -> list[str]:
    steps = spec["steps"]
    if outcome.steps_timed >= steps["timed"] and outcome.warmup_steps >= steps["warmup"]:
        return []
    return [
        f"at_most_s {steps['at_most_s']:g}: {outcome.warmup_steps} of {steps['warmup']} warm-up "
        f"and {outcome.steps_timed} of {steps['timed']} timed steps"
    ]


def fault(spec: Spec, ranks: Sequence[Measured]) -> str | None:
    """Why the numbers of a finished run must not enter a median; None where they may."""
    first, requested = ranks[0], spec["steps"]["timed"]
    timed = first.steps_timed
    for number, rank in enumerate(ranks):
        losses = rank.warmup_loss + rank.loss
        bad = next((step for step, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
        if bad is not None:
            return f"the loss is not finite from step {bad} on (rank {number})"
        if rank.steps_timed != timed or len(rank.loss) != timed:
            return f"rank {number} timed {len(rank.loss)} steps, rank 0 {timed}"
        skipped = rank.scaler_skipped_steps
        if skipped > SKIPPED_AT_MOST * timed:
            return f"the loss scaler skipped {skipped} of {timed} timed steps: no update, no exchange to measure"
    if timed < requested and spec["steps"]["at_most_s"] is None:
        return f"{timed} steps timed of {requested} asked"
    learns_from = workloads.of(spec["model"]).LEARNS_FROM
    learns = learns_from is None or timed < learns_from or falls(first.warmup_loss + first.loss)
    if spec["options"]["data"] == "real" and not learns:
        return f"the loss does not fall over {len(first.loss)} timed steps on real data: nothing is learned"
    return None


def falls(losses: list[float]) -> bool:
    """Whether the last fifth lies below the first tenth by more than twice the error of that difference.

    Counted from the first warm-up step: a long warm-up may already have reached a plateau.
    """
    head, tail = losses[: max(5, len(losses) // 10)], losses[-max(5, len(losses) // 5) :]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    def error2(values: list[float]) -> float:
        centre = mean(values)
        return sum((value - centre) ** 2 for value in values) / (len(values) - 1) / len(values)

    return mean(head) - mean(tail) > 2 * math.sqrt(error2(head) + error2(tail))

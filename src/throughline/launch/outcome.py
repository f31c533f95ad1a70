"""Compute the measured part of a record from the ranks' reports: its status, its reason and its figures."""

import math
import signal
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from throughline import memory, records, workloads
from throughline.grouping import grouped
from throughline.launch import rounding
from throughline.messages import EquivalenceReport, Measured, RankReport, Update
from throughline.spec import RunSpec, Steps
from throughline.spec.options import SETTLED_S

SOME_HAVE = frozenset({"min_window_seconds", "rounding", "equivalence"})
"""The keys that a record without a value does not have."""
SKIPPED_AT_MOST = 0.01
"""The share of timed steps that the loss scaler may skip."""
LEAST_WINDOW_S = 1.0
"""A run with a shorter window gets a warning."""


def with_out_of_memory(
    reports: Mapping[int, RankReport], ended: Mapping[int, int | None], last_words: Sequence[Iterable[str]]
) -> dict[int, RankReport]:
    """Return the reports, and an oom report for each rank without one whose last output says that memory ran out.

    A rank that is out of memory may be unable to write its report. The rank must have ended by itself, with an error
    (`ended`: see `failure`). The agents end the other ranks, whose last output says nothing about the failure.
    """
    complete = dict(reports)
    for rank, status in ended.items():
        line = next((line for line in last_words[rank] if memory.is_refusal(line)), None)
        if rank not in reports and status not in (0, -signal.SIGTERM) and line:
            complete[rank] = RankReport(rank, 0.0, "oom", line.strip())
    return complete


def last_word(output: Sequence[str]) -> str:
    """Return the line of output that says most about why a process ended.

    It is the line of a C++ exception, which comes before its stack trace, or else the last line.
    """
    return next((line for line in output if line.startswith("terminate called")), output[-1])


def failure(
    reports: Mapping[int, RankReport], ended: Mapping[int, int | None], ranks: Iterable[int], lost: Iterable[int] = ()
) -> tuple[int, str] | None:
    """Return (rank, what happened) for an infrastructure failure, which gives no record; None if there is an outcome.

    ranks: all that are processes; ended: map each rank that has ended to its exit status (None: unknown), in the order
    in which they ended; lost: ranks whose node no longer reports. If one rank is out of memory, the outcome of the run
    is oom, however the other ranks ended.
    """
    if any(report.status == "oom" for report in reports.values()):
        return None
    silent = {rank: status for rank, status in ended.items() if rank not in reports}
    for rank, status in silent.items():
        if status and status != -signal.SIGTERM:  # this rank was killed; the others only lost their connection to it
            return rank, _ending(status)
    for rank in lost:
        # The others only report that they cannot reach it, or they still wait for it.
        if (ended or not reports) and rank not in reports and rank not in ended:
            return rank, "no word from it any more: its node, or the agent on it, is gone"
    if failed := [report for report in reports.values() if report.status == "failed"]:
        first = min(failed, key=lambda report: report.at)
        return first.rank, str(first.reason)
    for rank in [*silent, *ranks]:  # a starter ends the others with SIGTERM
        if rank not in reports or (ended.get(rank) and not reports[rank].is_killed):
            return rank, _ending(ended.get(rank))
    return None


def _ending(status: int | None) -> str:
    if status is None:
        return "ended without a report"
    if status == -signal.SIGKILL:
        return "killed by signal 9 (often by the system, because memory ran out: see `dmesg`)"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status} without a report"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The measured part of a record, with the record's keys. The launcher adds where and when the run took place."""

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
    loss: list[float | None] | None = field(default_factory=list)
    scaler_skipped_steps: int = 0
    ranks: list[records.Rank] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    loader_stall_share: float | None = None
    network: dict[str, Any] | None = None
    utilization: dict[str, float | None] = field(default_factory=lambda: {"cpu": None, "gpu": None})
    min_window_seconds: float | None = None
    rounding: dict[str, Any] | None = None
    equivalence: dict[str, Any] | None = None

    def as_record(self) -> dict[str, Any]:
        given = {**vars(self), "ranks": [rank.model_dump() for rank in self.ranks]}
        return {name: value for name, value in given.items() if name not in SOME_HAVE or value is not None}


def assemble(
    spec: RunSpec, reports: Mapping[int, RankReport], per_node: int, every_loss: bool = False, settles: bool = False
) -> Outcome:
    """Return the outcome of a run whose ranks ended normally, ran out of memory, or do not support the run.

    every_loss: the run is one of an equivalence check; settles: its speed counts, and its device is a GPU, whose clocks
    settle.
    """
    steps = spec.timed
    if invalid := fake_cuda(reports):
        return Outcome(status="invalid", reason=invalid, steps_asked=steps.timed)
    for status in ("oom", "unsupported"):
        if refused := [report for _, report in sorted(reports.items()) if report.status == status]:
            where = f"rank {refused[0].rank}: " if status == "oom" else ""
            reason = where + str(refused[0].reason).splitlines()[0]
            return Outcome(status=status, reason=reason, steps_asked=steps.timed)
    ranks = [report.measured for _, report in sorted(reports.items()) if report.measured]
    outcome = _measured(spec, ranks, per_node, every_loss)
    if invalid := fault(spec, ranks) or rounding.fault(outcome.rounding):
        return replace(outcome, status="invalid", reason=invalid)
    warnings = rounding.warnings(outcome.rounding)
    if outcome.steps_timed < steps.timed or outcome.warmup_steps < steps.warmup:
        warnings.append(shortened(steps, outcome.warmup_steps, outcome.steps_timed))
    if workloads.of(spec.model).trains and not every_loss and not spec.job and spec.options.data != "reading":
        warnings += window_warnings(spec, ranks[0], outcome.window_s or 0.0, settles)
    samples = spec.size.global_batch * outcome.steps_timed
    return replace(outcome, samples_per_s=samples / outcome.window_s if outcome.window_s else None, warnings=warnings)


def shortened(steps: Steps, warmup: int, timed: int) -> str:
    """Return the warning about a run that `max_total_seconds` has shortened to so many steps."""
    return (
        f"max_total_seconds {steps.max_total_seconds:g}: {warmup} of {steps.warmup} warm-up "
        f"and {timed} of {steps.timed} timed steps"
    )


def window_warnings(spec: RunSpec, rank: Measured, window_s: float, settles: bool) -> Iterator[str]:
    """Yield a warning about a window that is too short for its figures to mean what they say."""
    if window_s < LEAST_WINDOW_S:
        yield (
            f"the window of {window_s:.2g} s is below {LEAST_WINDOW_S:g} s: a single delay of the system moves the "
            "figure; ask for more timed steps"
        )
    taken = rank.steps_timed * spec.options.gradient_accumulation
    if rank.batches_ahead and taken < 2 * rank.batches_ahead:
        yield (
            f"the window took {taken} batches, and up to {rank.batches_ahead} were ready before it began: reading "
            f"hardly counts in it; {math.ceil(2 * rank.batches_ahead / spec.options.gradient_accumulation)} timed "
            "steps would do"
        )
    if settles and window_s < SETTLED_S:
        yield (
            f"the window of {window_s:.1f} s is below {SETTLED_S:.0f} s on a GPU: its clocks and power had hardly "
            "settled, so the figure can be too high; leave `steps` out, or set runs.steps.min_window_seconds: 30"
        )


def _measured(spec: RunSpec, ranks: Sequence[Measured], per_node: int, every_loss: bool) -> Outcome:
    """Return the figures of all ranks.

    Each node has its own clock, so the windows of a node are relative to the first start of a window on this node. The
    run's window lasts from there to the latest end on any node.
    """
    first = ranks[0]
    each_has_figures = workloads.of(spec.model).ranks_have_figures
    starts = [rank.window.start for rank in ranks]
    origins = [min(starts[node : node + per_node]) for node in range(0, len(ranks), per_node)]
    entries = [
        records.Rank(
            rank=number,
            node=number // per_node,
            window_start_s=rank.window.start - origins[number // per_node],
            window_end_s=rank.window.end - origins[number // per_node],
            peak_memory_bytes=rank.memory.reserved_bytes,
            cpu_seconds=rank.cpu_seconds,
            loader_stall_s=rank.loader_stall_s,
            loss=finite(rank.loss) if every_loss and rank.loss is not None else None,
            matmul_flops_per_s=rank.matmul_flops_per_s,
            figures=finite(figure["value"] for figure in rank.figures) if each_has_figures else None,
        )
        for number, rank in enumerate(ranks)
    ]
    stalls = [rank.loader_stall_s / rank.window.seconds for rank in ranks if rank.loader_stall_s is not None]
    peaks = [entry.peak_memory_bytes for entry in entries if entry.peak_memory_bytes is not None]
    busy = [rank.cpu_seconds / (rank.window.seconds * spec.threads) for rank in ranks]
    return Outcome(
        status="ok",
        reason=None,
        steps_asked=spec.timed.timed,
        window_s=max(entry.window_end_s for entry in entries),
        steps_timed=first.steps_timed,
        warmup_steps=first.warmup_steps,
        step_seconds=first.step_seconds if spec.job else _slowest(ranks),  # a job's own figures are those of rank 0
        figures=[figure | {"value": finite([figure["value"]])[0]} for figure in first.figures]
        + (_read_alone(spec, ranks) or step_percentiles(spec, ranks) + _counted_figures(spec, ranks)),
        loss=finite(first.loss) if first.loss is not None else None,
        scaler_skipped_steps=max(rank.scaler_skipped_steps for rank in ranks),
        ranks=entries,
        peak_memory_bytes=max(peaks, default=None),
        loader_stall_share=max(stalls, default=None),
        network=asdict(first.network) if first.network else None,
        utilization={"cpu": sum(busy) / len(busy), "gpu": None},
        min_window_seconds=first.min_window_seconds or None,
        rounding=rounding.summary(spec, ranks),
        equivalence=_equivalence([rank.equivalence for rank in ranks if rank.equivalence]),
    )


def _equivalence(ranks: Sequence[EquivalenceReport]) -> dict[str, Any] | None:
    """Return what the ranks of an equivalence check report: of every tensor the update that is furthest off on any
    rank."""
    if not ranks:
        return None
    by_tensor = grouped((update for rank in ranks for update in rank.updates), lambda update: update.name)
    worst = {name: max(updates, key=_distance) for name, updates in by_tensor.items()}
    return {
        "skipped_steps": sorted({step for rank in ranks for step in rank.skipped}),
        "updates": {
            name: {"update": update.update, "difference": update.difference, "weights": update.weights}
            for name, update in worst.items()
        },
        "reason": next((rank.reason for rank in ranks if rank.reason), None),
    }


def _distance(update: Update) -> float:
    """Return a tensor's difference relative to its update."""
    if update.difference is None:
        return math.inf
    return update.difference / update.update if update.update else math.copysign(math.inf, update.difference or -1)


def step_percentiles(spec: RunSpec, ranks: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return the percentiles of step times that the workload declares, in milliseconds. A whole job has none."""
    steps = [] if spec.job else sorted(_slowest(ranks))
    return [
        _entry(figure, _percentile(steps, share), "median" if share == 50 else f"{share} %")
        for figure in workloads.of(spec.model).figures
        for share in figure.of_steps
        if steps
    ]


def _percentile(steps: Sequence[float], share: int) -> float | None:
    """Return a percentile of sorted step times in milliseconds.

    It is the smallest step time that `share` % of the steps do not exceed. Only the median of an even number of steps
    is the mean of two step times. None if no step would lie above it but by chance: of fewer than 100 steps, the 99th
    percentile is a maximum.
    """
    if share == 50:
        return 1000 * statistics.median(steps)
    if len(steps) * (100 - share) < 100:
        return None
    return 1000 * steps[math.ceil(share * len(steps) / 100) - 1]


def _slowest(ranks: Sequence[Measured]) -> list[float]:
    """Return the seconds of each step on the rank that took longest for it."""
    return [max(seconds) for seconds in zip(*(rank.step_seconds for rank in ranks), strict=False)]


def _counted_figures(spec: RunSpec, ranks: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return the figures that the ranks counted in their batches, as means over the ranks."""
    return [
        _entry(figure, sum(rank.counted[figure.name] for rank in ranks) / len(ranks))
        for figure in workloads.of(spec.model).figures
        if figure.of_counts and all(figure.name in rank.counted for rank in ranks)
    ]


def _read_alone(spec: RunSpec, ranks: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return the throughput of all replicas in each pass of a run that reads alone, by the workers of a rank."""
    passes = zip(*(rank.reading for rank in ranks), strict=True)
    share = spec.size.replicas / len(ranks)  # ranks that share a replica read the same rows
    figures = []
    for each in passes:
        state = next((one.state for one in each if one.state == "not cold"), each[0].state)
        speed = share * sum(one.samples / one.seconds for one in each)
        name, unit = f"reading_{state.replace(' ', '_')}", f"{workloads.unit(spec)}/s"
        figures.append({"name": name, "unit": unit, "better": "more", "at": each[0].workers, "value": speed})
    return figures


def _entry(figure: workloads.Figure, value: float | None, at: str | None = None) -> dict[str, Any]:
    return {"name": figure.name, "unit": figure.unit, "better": figure.better, "at": at, "value": value}


def finite(values: Iterable[float | None]) -> list[float | None]:
    """Return the values, with None for those that JSON cannot express."""
    return [value if value is not None and math.isfinite(value) else None for value in values]


def fake_cuda(reports: Mapping[int, RankReport]) -> str | None:
    """Return why nothing of this run is a result, if a rank ran on a fake CUDA driver; else None."""
    for rank, report in sorted(reports.items()):
        if report.double_of_cuda:
            return f"rank {rank} ran on {report.double_of_cuda}, so nothing of this run is a result"
    return None


def fault(spec: RunSpec, ranks: Sequence[Measured]) -> str | None:
    """Return why the figures of a finished run must not be used in a median; None if they may be."""
    first, requested = ranks[0], spec.timed.timed
    timed = first.steps_timed
    for number, rank in enumerate(ranks):
        done = len(rank.step_seconds if rank.loss is None else rank.loss)
        losses = (rank.warmup_loss or []) + (rank.loss or [])
        broken = next((step for step, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
        if broken is not None:
            return f"the loss is not finite from step {broken} on (rank {number})"
        if rank.steps_timed != timed or done != timed:
            return f"rank {number} timed {done} steps, rank 0 {timed}"
        skipped = rank.scaler_skipped_steps
        if skipped > SKIPPED_AT_MOST * timed:
            return f"the loss scaler skipped {skipped} of {timed} timed steps: no update, no exchange to measure"
    if timed < requested and spec.timed.max_total_seconds is None:
        return f"{timed} steps timed of {requested} asked"
    learns_from = workloads.of(spec.model).learns_from
    judged = spec.options.data == "real" and learns_from is not None and timed >= learns_from
    if judged and not falls((first.warmup_loss or []) + (first.loss or [])):
        return f"the loss does not fall over {timed} timed steps on real data: nothing is learned"
    return None


def falls(losses: list[float]) -> bool:
    """True if the mean loss of the last fifth is below that of the first tenth by more than twice the standard error.

    `losses` begins with the first warm-up step, because the loss may have reached a plateau at the end of the warm-up.
    """
    head, tail = losses[: max(5, len(losses) // 10)], losses[-max(5, len(losses) // 5) :]
    error2 = sum(statistics.variance(part) / len(part) for part in (head, tail))
    return statistics.fmean(head) - statistics.fmean(tail) > 2 * math.sqrt(error2)

"""Compute the measured part of a record from the report of a program's runner."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from throughline import records
from throughline.launch import outcome
from throughline.launch.outcome import Outcome
from throughline.messages import RankReport
from throughline.messages import Window as Timed
from throughline.programs import timing
from throughline.spec import RunSpec


def with_windows(reports: Mapping[int, RankReport]) -> dict[int, RankReport]:
    """Return the reports with the window of rank 0 on the clock of every node, for the telemetry of the other nodes.

    The nodes' times of day connect their clocks.
    """
    first = reports.get(0)
    if first is None or first.measured is None or first.program is None:
        return dict(reports)
    window, complete = first.measured.window, dict(reports)
    for rank, report in reports.items():
        if report.program and rank:
            ahead = first.program.clock_s - report.program.clock_s
            there = replace(first.measured, window=Timed(window.start + ahead, window.end + ahead))
            complete[rank] = replace(report, measured=there)
    return complete


def assemble(spec: RunSpec, reports: Mapping[int, RankReport], settles: bool) -> Outcome:
    """Return the outcome of a run of a program. settles: its device is a GPU, whose clocks settle."""
    assert spec.program
    steps = spec.steps
    if refused := [report for report in reports.values() if report.status == "oom"]:
        reason = str(refused[0].reason).splitlines()[0]
        return Outcome(status="oom", reason=f"rank {refused[0].rank}: {reason}", steps_asked=steps.timed)
    measured, run = reports[0].measured, reports[0].program
    assert measured and run
    points = timing.points_of(run.points)
    warmup, timed = measured.warmup_steps, measured.steps_timed
    found = timing.recorded_window(spec.program, points, warmup, timed, spec.topology.world)
    done = Outcome(
        status="ok",
        reason=None,
        steps_asked=steps.timed,
        window_s=found.seconds,
        steps_timed=timed,
        warmup_steps=warmup,
        step_seconds=found.step_seconds,
        figures=outcome.step_percentiles(spec, [measured]),
        loss=outcome.finite(measured.loss or ()) or None,
        ranks=[
            records.Rank(
                rank=0, node=0, window_start_s=0.0, window_end_s=found.seconds,
                peak_memory_bytes=None, cpu_seconds=None, loader_stall_s=None,
            )
        ],
        min_window_seconds=measured.min_window_seconds or None,
    )  # fmt: skip
    broken = next((step for step, loss in enumerate(measured.loss or (), 1) if not math.isfinite(loss)), None)
    lost = None if broken is None else f"the loss is not finite from timed step {broken} on"
    if invalid := lost or next(iter(timing.faults(spec.program, points, found)), None):
        return replace(done, status="invalid", reason=invalid)
    warnings = [
        *timing.warnings(spec.program, points, found),
        *outcome.window_warnings(spec, measured, found.seconds, settles),
    ]
    if timed < steps.timed:
        warnings.append(outcome.shortened(steps, warmup, timed))
    return replace(done, samples_per_s=spec.size.global_batch * timed / found.seconds, warnings=warnings)


def part(reports: Mapping[int, RankReport]) -> dict[str, Any] | None:
    """Return the record's `program`: what was started, and the marks or lines behind the figure."""
    run = reports[0].program if 0 in reports else None
    if run is None:
        return None
    return {"command": run.command, "points": {**run.points, "loss": outcome.finite(run.points["loss"])}}

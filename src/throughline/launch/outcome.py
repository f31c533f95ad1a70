"""From what the ranks report to a run record: its status, its reason, its numbers."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable
from typing import Any

from throughline import memory, size

SKIPPED_AT_MOST = 0.01
"""Share of timed steps that the loss scaler may skip."""
LEARNS_FROM = 100
"""Timed steps from which on the loss on real data has to fall."""


def out_of_memory(rank: int, last_words: Iterable[str]) -> dict[str, Any] | None:
    """The report that a rank could not write any more, when its last words say why it ended."""
    for line in last_words:
        if memory.is_refusal(line):
            return {"rank": rank, "status": "oom", "reason": line.strip(), "at": 0.0}
    return None


def failure(
    reports: dict[int, dict[str, Any]], ended: dict[int, int | None], world: int, lost: Iterable[int] = ()
) -> tuple[int, str] | None:
    """(rank, what happened) when this is an infrastructure failure: no record. None when there is an outcome.

    reports: rank -> what it wrote; ended: rank -> exit status, None where only its end is known, in the order in which
    they ended; lost: ranks whose node has fallen silent. One rank out of memory makes the run out of memory, however
    the others ended.
    """
    if any(report["status"] == "oom" for report in reports.values()):
        return None
    silent = {rank: status for rank, status in ended.items() if rank not in reports}
    for rank, status in silent.items():
        if status and status != -signal.SIGTERM:  # killed: the others only lost their connection
            return rank, _ending(status)
    for rank in lost:
        if ended and rank not in reports and rank not in ended:  # the others know only that they cannot reach it
            return rank, "no word from it any more: its node, or the agent on it, is gone"
    if failed := [report for report in reports.values() if report["status"] == "failed"]:
        first = min(failed, key=lambda report: report["at"])
        return first["rank"], first["reason"]
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


def assemble(spec: dict[str, Any], reports: dict[int, dict[str, Any]], per_node: int, world: int) -> dict[str, Any]:
    """The measured part of the record; the launcher adds where and when."""
    asked = spec["steps"]["timed"]
    record: dict[str, Any] = {
        "status": "ok",
        "reason": None,
        "warnings": [],
        "samples_per_s": None,
        "figures": reports.get(0, {}).get("figures", []),
        "window_s": None,
        "steps_asked": asked,
        "steps_timed": 0,
        "warmup_steps": 0,
        "step_seconds": [],
        "loss": [],
        "scaler_skipped_steps": 0,
        "ranks": [],
        "peak_memory_bytes": None,
        "loader_stall_share": None,
        "utilization": {"cpu": None, "gpu": None},
    }
    for status in ("oom", "unsupported"):
        those = [rank for rank, report in sorted(reports.items()) if report["status"] == status]
        if those:
            reason = reports[those[0]]["reason"].splitlines()[0]
            record.update(status=status, reason=f"rank {those[0]}: {reason}" if status == "oom" else reason)
            return record
    ranks = [reports[rank] for rank in range(world)]
    first = ranks[0]
    # Each node has a clock of its own: windows are compared within a node, and the longest one counts.
    origins = [
        min(report["window"][0] for report in ranks[node : node + per_node]) for node in range(0, world, per_node)
    ]
    window = max(report["window"][1] - origins[rank // per_node] for rank, report in enumerate(ranks))
    timed = first["steps_timed"]
    stalls = [r["loader_stall_s"] / _length(r) for r in ranks if r["loader_stall_s"] is not None]
    held = [report["memory"]["reserved_bytes"] for report in ranks]
    busy = [report["cpu_seconds"] / (_length(report) * spec["threads"]) for report in ranks]
    record.update(
        window_s=window,
        steps_timed=timed,
        warmup_steps=first["warmup_steps"],
        step_seconds=first["step_seconds"],
        loss=[loss if math.isfinite(loss) else None for loss in first["loss"]],
        scaler_skipped_steps=max(report["scaler_skipped_steps"] for report in ranks),
        peak_memory_bytes=max((peak for peak in held if peak is not None), default=None),
        loader_stall_share=max(stalls, default=None),
        utilization={"cpu": sum(busy) / len(busy), "gpu": None},
        ranks=[
            {
                "rank": report["rank"],
                "node": report["rank"] // per_node,
                "window_start_s": report["window"][0] - origins[report["rank"] // per_node],
                "window_end_s": report["window"][1] - origins[report["rank"] // per_node],
                "peak_memory_bytes": report["memory"]["reserved_bytes"],
                "cpu_seconds": report["cpu_seconds"],
                "loader_stall_s": report["loader_stall_s"],
            }
            for report in ranks
        ],
    )
    reason = fault(spec, ranks)
    if reason:
        record.update(status="invalid", reason=reason)
        return record
    record["samples_per_s"] = size.of_spec(spec).samples_per_step * timed / window
    if timed < asked or first["warmup_steps"] < spec["steps"]["warmup"]:
        record["warnings"].append(
            f"at_most_s {spec['steps']['at_most_s']:g}: {first['warmup_steps']} of {spec['steps']['warmup']} warm-up "
            f"and {timed} of {asked} timed steps"
        )
    return record


def _length(report: dict[str, Any]) -> float:
    return float(report["window"][1] - report["window"][0])


def fault(spec: dict[str, Any], ranks: list[dict[str, Any]]) -> str | None:
    """Why the numbers of a finished run must not enter a median; None where they may."""
    first, asked = ranks[0], spec["steps"]["timed"]
    timed = first["steps_timed"]
    for report in ranks:
        losses = report["warmup_loss"] + report["loss"]
        bad = next((number for number, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
        if bad is not None:
            return f"the loss is not finite from step {bad} on (rank {report['rank']})"
        if report["steps_timed"] != timed or len(report["loss"]) != timed:
            return f"rank {report['rank']} timed {len(report['loss'])} steps, rank 0 {timed}"
        skipped = report["scaler_skipped_steps"]
        if skipped > SKIPPED_AT_MOST * timed:
            return f"the loss scaler skipped {skipped} of {timed} timed steps: no update, no exchange to measure"
    if timed < asked and spec["steps"]["at_most_s"] is None:
        return f"{timed} steps timed of {asked} asked"
    if timed >= LEARNS_FROM and spec["options"]["data"] == "real" and not falls(first["warmup_loss"] + first["loss"]):
        return f"the loss does not fall over {len(first['loss'])} timed steps on real data: nothing is learned"
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

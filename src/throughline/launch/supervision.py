"""A run's ranks from their start to their end, and nothing of them beyond it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from throughline.launch import outcome, preflight
from throughline.launch.agents import Agents
from throughline.launch.interruption import Interrupted
from throughline.launch.job import Job
from throughline.launch.progress import Progress
from throughline.launch.watchdog import Watchdog, place
from throughline.messages import Beat, RankReport
from throughline.processes import Parent, wait_until

GRACE_S = 10.0
"""How long other ranks may take to end once one has: to find their connection broken, or to report the same."""


@dataclass(frozen=True)
class Seen:
    """Where every rank stood, which had ended and how, and which fell silent with their node."""

    beats: list[Beat]
    ended: dict[int, int | None]
    lost: list[int]


def supervise(job: Job, agents: Agents, progress: Progress, parent: Parent) -> dict[int, RankReport]:
    """Run the ranks to their end; rank -> report. UserError when the run failed."""
    try:
        hang = _watch(job, agents, progress, parent)
        over, seen = agents.are_over(), _seen(agents)
        if hang:
            agents.write_stacks()
    finally:
        agents.end()
    if agents.refusal:
        raise preflight.gpu_error(agents.refusal)
    if hang:
        raise job.failed(hang, "the stacks of all threads are in the log")
    if over:  # what they told last
        seen = _seen(agents)
    return _judged(job, agents, seen)


def _seen(agents: Agents) -> Seen:
    return Seen(list(agents.beats), agents.ended.copy(), agents.lost())


def _judged(job: Job, agents: Agents, seen: Seen) -> dict[int, RankReport]:
    """The reports of all ranks, with those that a rank out of memory could not write; UserError when the run failed."""
    world = agents.order.world
    reports = agents.reports(range(world))
    for rank, words in enumerate(agents.last_words):
        if rank not in reports and (refused := outcome.out_of_memory(rank, words)):
            reports[rank] = refused
    failure = outcome.failure(reports, seen.ended, world, seen.lost)
    if failure:
        rank, what = failure
        last = agents.last_words[rank] if rank not in reports else None
        why = f"it said last: {last[-1]}" if last else None
        raise job.failed(f"{place(rank, seen.beats[rank])}: {what}", why)
    return reports


def _watch(job: Job, agents: Agents, progress: Progress, parent: Parent) -> str | None:
    """Wait until all agents have ended, or a rank has ended early; the watchdog's words when they hang."""
    dog = Watchdog(job.limit_s, time.monotonic())
    while not agents.are_over():
        if agents.has_failed():
            wait_until(agents.are_over, GRACE_S)
            return None
        if parent.is_gone():
            raise Interrupted
        beats = list(agents.beats)
        progress.show(beats)
        if hang := dog.look(beats, time.monotonic()):
            return hang
        time.sleep(0.1)
    return None

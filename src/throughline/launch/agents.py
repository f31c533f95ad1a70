"""A run's agents: start one on every node, hear what they tell of its ranks, and end them."""

from __future__ import annotations

import collections
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from throughline import files, messages
from throughline.launch import launchers
from throughline.messages import Alive, Beat, Ended, Order, RankReport, Refusal, Standing
from throughline.processes import Child

SILENT_S = 5.0
"""An agent that has said nothing for so long, which it does every second, is gone, or its node is."""
STACKS_S = 2.0
"""How long the ranks may take to write their stacks."""


class Agents:
    """The agents of a run, and what they have told: where every rank stands, and which have ended, the first first."""

    def __init__(self, order: Order, work: Path, log: Callable[[str], None], names: Sequence[str]) -> None:
        path = work / "job.json"
        messages.write(order, path)
        self.order, self.log, self.work = order, log, work
        self.beats = [Beat("start", 0, 0)] * order.world
        self.ended: dict[int, int | None] = {}
        self.heard_at = {node: time.monotonic() for node in range(order.agents)}
        self.over: set[int] = set()
        self.refusal: Refusal | None = None
        self.last_words = [collections.deque[str](maxlen=20) for _ in range(order.world)]
        self.patience_s = 10.0 if order.shared else 5.0
        variables = dict(os.environ) | order.variables
        self.processes: list[Child] = []
        try:
            for command in launchers.commands(order, path, names):
                self.processes.append(Child(command, variables, self._hear))
        except BaseException:
            self.end()
            raise

    def _hear(self, line: str) -> None:
        if not line.startswith(messages.MARK):
            if spoken := re.match(r"\[rank (\d+)\] ", line):
                self.last_words[int(spoken[1])].append(line[spoken.end() :])
            self.log(line)
            return
        match messages.heard(line):
            case Refusal() as refusal:
                self.refusal = self.refusal or refusal
            case Alive(node, over):
                self.heard_at[node] = time.monotonic()
                if over:
                    self.over.add(node)
            case Standing(rank, beat):
                self.beats[rank] = beat
            case Ended(rank, status):
                self.ended[rank] = status

    def are_over(self) -> bool:
        """Whether all agents have ended."""
        return all(status is not None for status in self.statuses())

    def statuses(self) -> list[int | None]:
        """Of every agent: None while it runs."""
        return [child.exit_status() for child in self.processes]

    def lost(self) -> list[int]:
        """Ranks whose node has fallen silent."""
        over, now = self.are_over(), time.monotonic()
        silent = {node for node, last in self.heard_at.items() if over or now - last > SILENT_S} - self.over
        return [rank for node in sorted(silent) for rank in self.order.ranks_of(node)]

    def has_failed(self) -> bool:
        """Whether an agent or a rank has ended otherwise than it should."""
        if any(self.statuses()) or any(self.ended.copy().values()):
            return True
        return any(report.status != "ok" for report in self.reports(self.ended.copy()).values())

    def reports(self, ranks: Iterable[int]) -> dict[int, RankReport]:
        """rank -> what it has written at its end."""
        paths = {rank: self.work / f"rank_{rank}.json" for rank in ranks}
        return {rank: _scrubbed(messages.read(RankReport, path)) for rank, path in paths.items() if path.is_file()}

    def write_stacks(self) -> None:
        """Have every rank write the stacks of its threads into the log."""
        for child in self.processes:
            child.tell("stacks")
        time.sleep(STACKS_S)

    def end(self) -> None:
        """End whatever still runs."""
        for child in self.processes:
            child.let_go()
        for child in self.processes:
            child.end(self.patience_s)


def _scrubbed(report: RankReport) -> RankReport:
    return replace(report, reason=files.scrub(report.reason)) if report.reason else report

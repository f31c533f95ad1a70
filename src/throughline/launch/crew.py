"""A run's agents: start one on every node, hear what they tell of its ranks, and end them."""

from __future__ import annotations

import collections
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.files import UserError
from throughline.launch import agent, launchers, preflight
from throughline.processes import Child
from throughline.rank import heartbeat

SILENT_S = 5.0
"""An agent that has said nothing for so long, which it does every second, is gone, or its node is."""
STACKS_S = 2.0
"""How long the ranks may take to write their stacks."""


class Crew:
    """The agents of a run, and what they have told: where every rank stands, and which have ended, the first first."""

    def __init__(self, order: dict[str, Any], work: Path, log: Callable[[str], None], names: Sequence[str]) -> None:
        world, path = order["world"], work / "job.json"
        path.write_text(json.dumps(order))
        self.order, self.log, self.work = order, log, work
        self.beats = [heartbeat.Beat("start", 0, 0)] * world
        self.ended: dict[int, int | None] = {}
        self.heard = {node: time.monotonic() for node in range(launchers.agents(order))}
        self.done: set[int] = set()
        self.refusal: UserError | None = None
        self.last_words = [collections.deque[str](maxlen=20) for _ in range(world)]
        self.patience_s = 10.0 if order["shared"] else 5.0
        variables = dict(os.environ) | order["variables"]
        self.agents: list[Child] = []
        try:
            for command in launchers.commands(order, path, names):
                self.agents.append(Child(command, variables, self._hear))
        except BaseException:
            self.end()
            raise

    def _hear(self, line: str) -> None:
        if not line.startswith(agent.MARK):
            if spoken := re.match(r"\[rank (\d+)\] ", line):
                self.last_words[int(spoken[1])].append(line[spoken.end() :])
            self.log(line)
            return
        told = json.loads(line[1:])
        if "refusing" in told:
            self.refusal = self.refusal or preflight.gpu_error(told["refusing"], told["faults"])
        elif "node" in told:
            self.heard[told["node"]] = time.monotonic()
            if told["over"]:
                self.done.add(told["node"])
        elif "beat" in told:
            self.beats[told["rank"]] = heartbeat.Beat(*told["beat"])
        else:
            self.ended[told["rank"]] = told["ended"]

    def statuses(self) -> list[int | None]:
        """Of every agent: None while it runs."""
        return [child.exit_status() for child in self.agents]

    def lost(self) -> list[int]:
        """Ranks whose node has fallen silent."""
        over, now = all(status is not None for status in self.statuses()), time.monotonic()
        silent = {node for node, last in self.heard.items() if over or now - last > SILENT_S} - self.done
        return [rank for node in sorted(silent) for rank in launchers.ranks_of(self.order, node)]

    def has_failed(self) -> bool:
        """Whether an agent or a rank has ended otherwise than it should."""
        if any(self.statuses()) or any(self.ended.copy().values()):
            return True
        return any(report["status"] != "ok" for report in self.reports(self.ended.copy()).values())

    def reports(self, ranks: Iterable[int]) -> dict[int, dict[str, Any]]:
        """rank -> what it has written at its end."""
        paths = {rank: self.work / f"rank_{rank}.json" for rank in ranks}
        found = {rank: json.loads(path.read_text()) for rank, path in paths.items() if path.is_file()}
        for report in found.values():
            if "reason" in report:
                report["reason"] = files.scrub(report["reason"])
        return found

    def write_stacks(self) -> None:
        """Have every rank write the stacks of its threads into the log."""
        for child in self.agents:
            child.tell("stacks")
        time.sleep(STACKS_S)

    def end(self) -> None:
        """End whatever still runs."""
        for child in self.agents:
            child.let_go()
        for child in self.agents:
            child.end(self.patience_s)

"""The logs of runs and the records beside them: their addresses on the page, and the time of every step as a plot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from throughline import statistics
from throughline.numbers import milliseconds
from throughline.records import RunRecord, Summary, stored_run
from throughline.report.analysis.cells import Cell, Group
from throughline.spec import Batch

STEPS = 0.05  # a trace shows at least the median plus and minus this share
STRETCHES = 60  # a run with more than twice as many steps is cut into so many stretches
WIDTH, HEIGHT = 240, 56  # size of a trace, in its own units


@dataclass(frozen=True)
class RunLogs:
    """The logs of all runs on a page.

    folders: the folder of the logs of each benchmark, batch and precision. runs: the record beside each log, if it can
    be read. page: the file whose links lead to the logs.
    """

    folders: Mapping[tuple[str, Batch, str], Path]
    runs: Mapping[Path, RunRecord]
    page: Path

    @classmethod
    def of(cls, summaries: Mapping[Path, Summary], page: Path) -> RunLogs:
        """Find the logs of all runs behind these summaries, and read the records beside them."""
        folders: dict[tuple[str, Batch, str], Path] = {
            (summary.benchmark, summary.batch, summary.precision): path.with_suffix("")
            for path, summary in summaries.items()
        }
        runs = {log: stored_run(log.with_suffix(".json")) for log in _logs(summaries)}
        return cls(folders, {log: run for log, run in runs.items() if run}, page)

    def behind(self, summaries: Mapping[Path, Summary]) -> list[RunRecord]:
        """Return the records that are behind these summaries."""
        return [self.runs[log] for log in _logs(summaries) if log in self.runs]

    def _path(self, group: Group, log: str) -> Path | None:
        folder = self.folders.get((group.benchmark, group.batch, group.precision))
        return folder and folder / log

    def address(self, group: Group, name: str) -> str | None:
        """Return the address of a log of a group; None if the log is not there."""
        path = self._path(group, name)
        return quote(os.path.relpath(path, self.page.parent)) if path and path.exists() else None

    def step_times(self, group: Group) -> list[tuple[Cell, list[list[float]]]]:
        """Return the cells whose records exist, with the seconds of every step of the runs behind their medians."""
        series = []
        for cell in group.measured:
            left_out = {f"run{repeat}.log" for part in cell.record.left_out for repeat in part.repeats}
            logs = (self._path(group, log) for log in cell.record.logs if log.rpartition("/")[2] not in left_out)
            runs = [self.runs[log] for log in logs if log and log in self.runs]
            seconds = [run.step_seconds for run in runs if run.status == "ok" and run.step_seconds]
            if seconds:
                series.append((cell, seconds))
        return series


def _logs(summaries: Mapping[Path, Summary]) -> list[Path]:
    series = [(path, cells) for path, summary in summaries.items() for cells in summary.frameworks.values()]
    return [path.with_suffix("") / log for path, cells in series for cell in cells.values() for log in cell.logs]


def trace(runs: Sequence[Sequence[float]]) -> Markup:
    """Return a small plot with a line for each run over its steps. A dashed line is the median of all steps."""
    every = [seconds for run in runs for seconds in run]
    middle = statistics.median(every) or 1.0
    low, high = min(min(every), (1 - STEPS) * middle), max(max(every), (1 + STEPS) * middle)

    def height(seconds: float) -> str:
        return f"{HEIGHT * (high - seconds) / (high - low):.3g}"

    lines = []
    for run in runs:
        points = _thinned(run)
        last = max(len(points) - 1, 1)
        places = (f"{WIDTH * at / last:.4g},{height(seconds)}" for at, seconds in enumerate(points))
        lines.append(f'<polyline points="{" ".join(places)}"/>')
    return Markup(
        f'<svg class="trace" viewBox="0 -2 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{span_of(runs)}">'
        f'<path d="M0 {height(middle)}H{WIDTH}"/>{"".join(lines)}</svg>'
    )


def span_of(runs: Sequence[Sequence[float]]) -> str:
    """Return the shortest and the longest step, and the median of all steps, as text."""
    every = [seconds for run in runs for seconds in run]
    ends = " to ".join(dict.fromkeys(map(milliseconds, (min(every), max(every)))))
    return f"{ends} ms, median {milliseconds(statistics.median(every) or 0.0)}"


def _thinned(steps: Sequence[float]) -> list[float]:
    """Return all steps; of a long run the shortest and the longest step of each stretch, so that no outlier is lost."""
    if len(steps) <= 2 * STRETCHES:
        return list(steps)
    edges = [len(steps) * index // STRETCHES for index in range(STRETCHES + 1)]
    stretches = [steps[start:end] for start, end in pairwise(edges)]
    return [seconds for stretch in stretches for seconds in (min(stretch), max(stretch))]

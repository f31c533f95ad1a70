"""The logs of runs and the records beside them: their addresses on the page, and the time of every step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from throughline.records import CellRecord, RunRecord, Summary, stored_run
from throughline.report.analysis.cells import Cell, Group
from throughline.spec import Batch


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

    def _folder(self, group: Group) -> Path | None:
        return self.folders.get((group.benchmark, group.batch, group.precision))

    def address(self, group: Group, name: str) -> str | None:
        """Return the address of a log of a group; None if the log is not there."""
        folder = self._folder(group)
        path = folder and folder / name
        return quote(os.path.relpath(path, self.page.parent)) if path and path.exists() else None

    def step_times(self, group: Group) -> list[tuple[Cell, list[list[float]]]]:
        """Return the cells whose records exist, with the seconds of every step of the runs behind their medians."""
        folder, series = self._folder(group), []
        for cell in group.measured:
            logs = [folder / log for log in _kept(cell.record)] if folder else []
            runs = [self.runs[log] for log in logs if log in self.runs]
            seconds = [run.step_seconds for run in runs if run.status == "ok" and run.step_seconds]
            if seconds:
                series.append((cell, seconds))
        return series


def _kept(cell: CellRecord) -> Iterator[str]:
    """Yield the logs of the repeats that are not left out of a cell's median."""
    left_out = {f"run{repeat}.log" for part in cell.left_out for repeat in part.repeats}
    yield from (log for log in cell.logs if log.rpartition("/")[2] not in left_out)


def _logs(summaries: Mapping[Path, Summary]) -> list[Path]:
    series = [(path, cells) for path, summary in summaries.items() for cells in summary.frameworks.values()]
    return [path.with_suffix("") / log for path, cells in series for cell in cells.values() for log in cell.logs]

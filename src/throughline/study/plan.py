"""What is about to be made and how long it will take; what came out of it, and what to do next."""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from statistics import median

from throughline import files
from throughline.files import UserError
from throughline.study.runs import RunSpec

START_S = 8.0
"""Seconds a run takes before its first step where nothing was measured yet: starting processes, loading a model."""
NAMED_AT_MOST = 20
"""How many failures or medians are named at the end; the files of all are there."""
REPORT, SO_FAR = "results/report.html", "results/report-incomplete.html"


@dataclass
class Plan:
    """What one call of Snakemake makes.

    specs: all runs of the configuration; jobs: the outputs of every job that is to run, at least one each; targets: the
    files that were asked for by name; cluster: jobs run side by side, elsewhere.
    """

    specs: Sequence[RunSpec]
    jobs: Sequence[Sequence[str]]
    targets: Collection[str] = ()
    cluster: bool = False
    root: Path = Path()
    measured_s: dict[str, float] = field(default_factory=dict)
    """record -> seconds that its run took, of those that finish in this call."""

    def __post_init__(self) -> None:
        self.pending = {output for outputs in self.jobs for output in outputs}
        self.runs = {spec.record: spec for spec in self.specs if spec.record in self.pending}
        self.data = {outputs[0] for outputs in self.jobs if outputs[0].startswith("data/")}

    def __str__(self) -> str:
        """What will be made, how long the runs take, and where the result will be."""
        lines = ["The plan:"]
        if self.data:
            lines.append(f"  data: {_counted(len(self.data), 'step')} to make")
        by_summary: dict[str, list[RunSpec]] = {}
        for spec in self.specs:
            by_summary.setdefault(spec.summary, []).append(spec)
        for summary, siblings in by_summary.items():
            runs = [spec for spec in siblings if spec.record in self.runs]
            if not runs:
                continue
            frameworks = ", ".join(dict.fromkeys(spec.framework for spec in siblings))
            topologies = ", ".join(dict.fromkeys(spec.topology for spec in siblings))
            lines.append(
                f"  {summary}: {siblings[0].model}, {frameworks}, {topologies}: {_counted(len(runs), 'run')} "
                f"to make, {len(siblings) - len(runs)} there already"
            )
        how = "the time of all jobs added up" if self.cluster else "one at a time"
        lines.append(f"  training, {how}: {self._time()}" if self.runs else "  no training run is to be made")
        return "\n".join([*lines, *(f"  the result: {made}" for made in self.results())])

    @cached_property
    def _earlier_s(self) -> dict[str, float]:
        """The same of the runs that were there before, as their records say."""
        records = [spec.record for spec in self.specs if spec.record not in self.pending]
        found = {record: _duration_s(self.root / record) for record in records}
        return {record: seconds for record, seconds in found.items() if seconds is not None}

    def _time(self) -> str:
        """How long the pending runs take together, and how well that is known."""
        estimates = self.estimates_s(self.runs.values())
        known = [seconds for seconds in estimates if seconds is not None]
        if not known:
            return "time not known before the first repeat"
        rest = len(estimates) - len(known)
        more = f" and {_counted(rest, 'run')} whose time is not known yet" if rest else ""
        tried = {_repeated(spec) for spec in self.specs if spec.record in self._earlier_s}
        first = any(_repeated(spec) not in tried for spec in self.runs.values())
        return f"about {span(sum(known))}{more}" + (", better known after the first repeat" if first else "")

    def estimates_s(self, runs: Iterable[RunSpec]) -> list[float | None]:
        """Seconds of each run: like the finished repeats of it, else at most its time cap; None where unknown."""
        finished: dict[tuple[str, ...], list[float]] = {}
        took_s = self._earlier_s | self.measured_s
        for spec in self.specs:
            if spec.record in took_s:
                finished.setdefault(_repeated(spec), []).append(took_s[spec.record])
        estimates: list[float | None] = []
        for spec in runs:
            cap, repeats = spec.steps.at_most_s, finished.get(_repeated(spec))
            estimates.append(median(repeats) if repeats else None if cap is None else START_S + cap)
        return estimates

    def results(self) -> list[str]:
        """What a person looks at afterwards: the report, else medians, else manifests, else what was asked for."""
        summaries = [name for name in dict.fromkeys(spec.summary for spec in self.specs) if name in self.pending]
        manifests = sorted(name for name in self.data if name.endswith("/manifest.json"))
        report = [REPORT] if REPORT in self.pending else []
        return report or summaries or manifests or sorted(self.pending.intersection(self.targets))

    def outcome(self) -> str:
        """What a finished workflow says last: the medians that were made, and where the results are."""
        summaries = [name for name in dict.fromkeys(spec.summary for spec in self.specs) if name in self.pending]
        lines = [line for name in summaries for line in _medians(self.root / name)]
        if len(lines) > NAMED_AT_MOST:
            lines[NAMED_AT_MOST:] = [f"  and {len(lines) - NAMED_AT_MOST} more"]
        made = self.results()
        if made == [REPORT]:
            made = [f"{REPORT} (open it in a browser; it needs no network)"]
        return "\n".join(["Finished.", *lines, *(f"  result: {name}" for name in made)])


def failures(logs: Mapping[str, str], root: Path = Path()) -> str:
    """What a failed workflow says last: each file of `logs` that is missing and has a log, and the next step.

    logs: what was to be made -> its log.
    """
    failed = [
        f"  failed: {made}; why: {log}"
        for made, log in logs.items()
        if not (root / made).exists() and (root / log).exists()
    ]
    named = ["Not everything could be made; what is there is kept.", *failed[:NAMED_AT_MOST]]
    if len(failed) > NAMED_AT_MOST:
        named.append(f"  and {len(failed) - NAMED_AT_MOST} more")
    if (root / SO_FAR).exists():
        named.append(f"  what is measured so far: {SO_FAR}")
    fix = "fix what the log says" if len(failed) == 1 else "fix what the logs say" if failed else "fix the cause"
    return "\n".join([*named, f"  next: {fix}, and run the same command again: only the rest is made"])


def check_places(outputs: Iterable[str], root: Path = Path()) -> None:
    """UserError where a folder that something is about to be written to cannot be written: before hours of training."""
    wanted = {root / os.path.dirname(output) for output in outputs}
    there = {next(place for place in (folder, *folder.parents) if place.is_dir()) for folder in wanted}
    for folder in sorted(there):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}{os.sep} cannot be written, and results belong there",
                why="this user may not write there, or the file system is mounted read-only",
                next_step="correct the rights or the mount, and run the same command again; nothing was started",
            )


def _repeated(spec: RunSpec) -> tuple[str, ...]:
    """What the repeats of one run have in common."""
    return spec.cell, spec.framework, spec.topology


def _medians(summary: Path) -> list[str]:
    """A line per framework and topology of a summary: `bert bz64 fp16 torch 1n2g: 914.2 samples/s, speedup 1.78`."""
    try:
        found = files.read_json(summary)
        unit, where = found["unit"], f"{found['benchmark']} bz{found['batch']} {found['precision']}"
        cells = [(name, *cell) for name, topologies in found["frameworks"].items() for cell in topologies.items()]
        kind = "strong-scaling " if found.get("scaling") == "strong" else ""
        lines = []
        for framework, topology, cell in cells:
            speed, speedup = cell["median_speed"], cell["speedup"]
            said = (
                f"{speed:.1f} {unit}" if speed else " ".join(f"{n} {status}" for status, n in cell["statuses"].items())
            )
            said += f", {kind}speedup {speedup:.2f}" if speedup and speedup != 1 else ""
            lines.append(f"  {where} {framework} {topology}: {said} (median of {cell['n_ok']})")
        return lines
    except (UserError, KeyError, TypeError, AttributeError):
        return []


def _duration_s(path: Path) -> float | None:
    """Seconds between a record's start and end; None where there is no readable record, or the clock was set back."""
    try:
        record = json.loads(path.read_bytes())
        started, ended = (datetime.fromisoformat(record[key]) for key in ("started", "ended"))
        seconds = (ended - started).total_seconds()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return seconds if seconds >= 0 else None


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """`90 s`, `12 min`, `2.5 h`."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"

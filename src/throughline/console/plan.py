"""The plan that is printed before a workflow starts, and the messages that are printed at its end.

The plan says what will be made and how long it takes. The messages name the results, or the failures and the next step.
"""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median

from throughline import ratios
from throughline.acceptance import verdict
from throughline.console import plan_memory
from throughline.console.plan_acceptance import Visits
from throughline.files import UserError
from throughline.records import read_acceptance, read_summary
from throughline.records.glance import glance
from throughline.spec import RunSpec
from throughline.study.acceptance import RESULT as ACCEPTANCE

START_S = 8.0
"""Assumed seconds from a run's start to its first step (start processes, load a model), if none was measured yet."""
NAMED_AT_MOST = 20
"""Largest number of failures or medians that the last message lists. The files of the others exist too."""
REPORT, SO_FAR = "results/report.html", "results/report-incomplete.html"
ACCEPTANCE_PAGE = "results/acceptance.html"
ENDS = (REPORT, "results/compare.html", ACCEPTANCE_PAGE, "results/archive.zip")
"""The files that everything else is made for."""


@dataclass
class Plan:
    """What one call of Snakemake makes.

    specs: all runs of the configuration; jobs: for every job that has to run, its outputs (at least one); targets: the
    files that the user asked for by name; cluster: True if the jobs run in parallel on the nodes of a cluster;
    acceptance: the node jobs of an acceptance that are to be made; margins: `runs.margin` of each block.
    """

    specs: Sequence[RunSpec]
    jobs: Sequence[Sequence[str]]
    targets: Collection[str] = ()
    cluster: bool = False
    root: Path = Path()
    acceptance: Visits | None = None
    margins: Mapping[str, float] = field(default_factory=dict)
    measured_s: dict[str, float] = field(default_factory=dict)
    """Map the record of each run that has finished in this call to the seconds that the run took."""

    def __post_init__(self) -> None:
        self.pending = {output for outputs in self.jobs for output in outputs}
        self.runs = {spec.record: spec for spec in self.specs if spec.record in self.pending}
        self.data = {outputs[0] for outputs in self.jobs if outputs[0].startswith("data/")}

    def __str__(self) -> str:
        """Return the plan as text: what will be made, how long the runs take, and where the result will be."""
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
            topologies = ", ".join(dict.fromkeys(str(spec.topology) for spec in siblings))
            lines.append(
                f"  {summary}: {siblings[0].model}, {frameworks}, {topologies}: {_counted(len(runs), 'run')} "
                f"to make, {len(siblings) - len(runs)} there already"
            )
            lines += [f"    {line}" for line in [*_global_batch(siblings), *plan_memory.lines(siblings)]]
        lines += self._decided()
        how = "the time of all jobs added up" if self.cluster else "one at a time"
        lines += self.acceptance.lines if self.acceptance else []
        if self.runs or not self.acceptance:
            lines.append(f"  training, {how}: {self._time()}" if self.runs else "  no training run is to be made")
        return "\n".join([*lines, *(f"  the result: {path}" for path in self.results())])

    def _decided(self) -> list[str]:
        """Return a line for each benchmark that compares something: what its repeats can tell apart.

        Its largest family of questions counts: all pairs of frameworks at a place, or all steps to more devices.
        """
        by_benchmark: dict[str, list[RunSpec]] = {}
        for spec in self.runs.values():
            by_benchmark.setdefault(spec.benchmark, [])
        for spec in self.specs:
            if spec.benchmark in by_benchmark and "__" not in spec.benchmark:
                by_benchmark[spec.benchmark].append(spec)
        lines = []
        for name, specs in by_benchmark.items():
            frameworks, cells = {spec.framework for spec in specs}, {spec.cell for spec in specs}
            more = len({str(spec.topology) for spec in specs}) - 1
            questions = max(math.comb(len(frameworks), 2), len(cells) * len(frameworks) * more, len(cells) - 1)
            if specs and questions:
                margin = self.margins.get(name, ratios.MARGIN)
                lines.append(f"  {name}: {ratios.decides(max(spec.repeat for spec in specs), questions, margin)}")
        return lines

    @cached_property
    def _earlier_s(self) -> dict[str, float]:
        """Map the record of each run that was finished before this call to the seconds that it took."""
        records = [spec.record for spec in self.specs if spec.record not in self.pending]
        glances = ((record, glance(self.root / record)) for record in records)
        return {record: run.seconds for record, run in glances if run and run.seconds is not None}

    def _time(self) -> str:
        """Return in words how long all pending runs take together, and how certain that is."""
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
        """Return the estimated seconds of each run, or None where there is no estimate.

        The estimate is the median of the run's finished repeats. Without one, it is START_S plus the time cap of the
        run's steps, if they have a cap.
        """
        finished: dict[tuple[str, ...], list[float]] = {}
        took_s = self._earlier_s | self.measured_s
        for spec in self.specs:
            if spec.record in took_s:
                finished.setdefault(_repeated(spec), []).append(took_s[spec.record])
        estimates: list[float | None] = []
        for spec in runs:
            cap, repeats = spec.steps.max_total_seconds, finished.get(_repeated(spec))
            estimates.append(median(repeats) if repeats else None if cap is None else START_S + cap)
        return estimates

    def results(self) -> list[str]:
        """Return the files that a person should look at afterwards.

        These are the report, a comparison and an archive. Without them, these are the summaries; without them, the
        manifests; without them, the files that the user asked for.
        """
        summaries = [name for name in dict.fromkeys(spec.summary for spec in self.specs) if name in self.pending]
        manifests = sorted(name for name in self.data if name.endswith("/manifest.json"))
        ends = [name for name in ENDS if name in self.pending]
        return ends or summaries or manifests or sorted(self.pending.intersection(self.targets))

    def outcome(self) -> str:
        """Return the last message of a finished workflow: the new medians, a verdict, and where the results are."""
        summaries = [name for name in dict.fromkeys(spec.summary for spec in self.specs) if name in self.pending]
        lines = [line for name in summaries for line in _medians(self.root / name)]
        if len(lines) > NAMED_AT_MOST:
            lines[NAMED_AT_MOST:] = [f"  and {len(lines) - NAMED_AT_MOST} more"]
        if ACCEPTANCE in self.pending:
            lines += [f"  {line}" for line in verdict.lines(read_acceptance(self.root / ACCEPTANCE))]
        pages = " (open it in a browser; it needs no network)"
        results = [name + pages * name.endswith(".html") for name in self.results()]
        return "\n".join(["Finished.", *lines, *(f"  result: {path}" for path in results)])


def failures(logs: Mapping[str, str], root: Path = Path()) -> str:
    """Return the last message of a failed workflow: the missing files that have a log, and the next step.

    `logs` maps each file that had to be made to its log.
    """
    failed = [
        f"  failed: {path}; why: {log}"
        for path, log in logs.items()
        if not (root / path).exists() and (root / log).exists()
    ]
    named = ["Not everything could be made; what is there is kept.", *failed[:NAMED_AT_MOST]]
    if len(failed) > NAMED_AT_MOST:
        named.append(f"  and {len(failed) - NAMED_AT_MOST} more")
    if (root / SO_FAR).exists():
        named.append(f"  what is measured so far: {SO_FAR}")
    if ACCEPTANCE in logs and (root / ACCEPTANCE_PAGE).exists():
        named.append(f"  the verdict on what is there: {ACCEPTANCE_PAGE}")
    fix = "fix what the log says" if len(failed) == 1 else "fix what the logs say" if failed else "fix the cause"
    return "\n".join([*named, f"  next: {fix}, and run the same command again: only the rest is made"])


def check_places(outputs: Iterable[str], root: Path = Path()) -> None:
    """Raise UserError if a folder that outputs belong in cannot be written.

    This is checked first, because otherwise the user would see the error only after hours of training.
    """
    wanted = {root / os.path.dirname(output) for output in outputs}
    existing = {next(path for path in (folder, *folder.parents) if path.is_dir()) for folder in wanted}
    for folder in sorted(existing):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}{os.sep} cannot be written, and results belong there",
                why="this user may not write there, or the file system is mounted read-only",
                next_step="correct the rights or the mount, and run the same command again; nothing was started",
            )


def _repeated(spec: RunSpec) -> tuple[str, ...]:
    """Return what all repeats of a run have in common."""
    return spec.cell, spec.framework, str(spec.topology)


def _medians(summary: Path) -> list[str]:
    """Return a line for each framework and topology of a summary, or no lines if the summary cannot be read.

    Example: `bert bz64 fp16 torch 1n2g: 914.2 samples/s, speedup 1.78 (median of 5)`.
    """
    try:
        content = read_summary(summary)
    except UserError:
        return []
    where = f"{content.benchmark} bz{content.batch} {content.precision}"
    kind = "strong-scaling " if content.scaling == "strong" else ""
    lines = []
    for framework, topology, cell in content.cells():
        outcome = " ".join(f"{n} {status}" for status, n in cell.statuses.items())
        outcome = f"{cell.median_speed:.1f} {content.unit}" if cell.median_speed else outcome
        outcome += f", {kind}speedup {cell.speedup:.2f}" if cell.speedup and cell.speedup != 1 else ""
        lines.append(f"  {where} {framework} {topology}: {outcome} (median of {cell.n_ok})")
    return lines


def told_beforehand(specs: Iterable[RunSpec]) -> list[str]:
    """Return what a dry run prints of each summary: the micro-batches of a stated global batch, and the memory that a
    rank is predicted to need."""
    by_summary: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_summary.setdefault(spec.summary, []).append(spec)
    return [
        f"{name}: {line}"
        for name, siblings in by_summary.items()
        for line in [*_global_batch(siblings), *plan_memory.lines(siblings)]
    ]


def _global_batch(specs: Sequence[RunSpec]) -> list[str]:
    """Return a line that says how a stated global batch becomes micro-batches on each topology; else no line.

    Example: `67,584 samples a step = replicas x batch x micro-batches: 1n1g 1 x 32 x 2112, 1n8g 8 x 32 x 264`.
    """
    if specs[0].global_batch is None:
        return []
    sizes = {str(spec.topology): spec.size for spec in specs}
    factors = (
        (name, size.replicas, size.batch_per_replica, size.gradient_accumulation) for name, size in sizes.items()
    )
    each = ", ".join(f"{name} {replicas} x {batch} x {count}" for name, replicas, batch, count in factors)
    return [f"{specs[0].global_batch:,} samples a step = replicas x batch x micro-batches: {each}"]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a duration in words, such as `90 s`, `12 min` or `2.5 h`."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"

"""The plan that is printed before a workflow starts, and the messages that are printed at its end.

The plan says what will be made and how long it takes. The messages name the results, or the failures and the next step.
"""

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from throughline import gpus, log_kinds, ratios, workloads
from throughline.acceptance import verdict
from throughline.console.node_jobs import START_S, NodeJobs
from throughline.files import UserError
from throughline.grouping import grouped
from throughline.memory import gib
from throughline.numbers import counted
from throughline.programs import words
from throughline.progress import duration
from throughline.records import Imported, read_acceptance, read_imported, read_predictions, read_summary, stored_run
from throughline.report.analysis import predictions
from throughline.spec import RunSpec, cell_name
from throughline.spec.program import DECIDES
from throughline.study.acceptance import RESULT as ACCEPTANCE

NAMED_AT_MOST = 20
"""Largest number of failures, medians or predictions that the last message lists. The files of the others exist too."""
REPORT, SO_FAR = "results/report.html", "results/report-incomplete.html"
ACCEPTANCE_PAGE = "results/acceptance.html"
ENDS = (REPORT, "results/compare.html", ACCEPTANCE_PAGE, "results/archive.zip")
"""The files that everything else is made for."""
PREDICTED = "/predictions.json"
IMPORTED = re.compile("results/[^/]+/imported.json")


@dataclass
class Plan:
    """What a call of Snakemake makes.

    specs: all runs of the configuration; jobs: for every job that has to run, its outputs (at least one); targets: the
    files that the user asked for by name; cluster: True if the jobs run in parallel on the nodes of a cluster;
    node_jobs: those of an acceptance that are to be made; margins: `runs.margin` of each block.
    """

    specs: Sequence[RunSpec]
    jobs: Sequence[Sequence[str]]
    targets: Collection[str] = ()
    cluster: bool = False
    node_jobs: NodeJobs | None = None
    margins: Mapping[str, float] = field(default_factory=dict)
    took_s: dict[str, float] = field(init=False)
    """Map the record of each finished run to the seconds that the run took. The console adds runs that end."""

    def __post_init__(self) -> None:
        self.pending = {output for outputs in self.jobs for output in outputs}
        self.runs = {spec.record: spec for spec in self.specs if spec.record in self.pending}
        self.data = {outputs[0] for outputs in self.jobs if outputs[0].startswith("data/")}
        records = (spec.record for spec in self.specs if spec.record not in self.pending)
        runs = ((record, stored_run(Path(record))) for record in records)
        self.took_s = {record: run.seconds for record, run in runs if run and run.seconds is not None}

    def __str__(self) -> str:
        """Return the plan as text: what will be made, how long the runs take, and where the result will be."""
        lines = ["The plan:"]
        if self.data:
            lines.append(f"  data: {counted(len(self.data), 'step')} to make")
        for summary, specs in grouped(self.specs, lambda spec: spec.summary).items():
            runs = sum(spec.record in self.runs for spec in specs)
            if not runs:
                continue
            frameworks = ", ".join(dict.fromkeys(spec.framework for spec in specs))
            topologies = ", ".join(dict.fromkeys(str(spec.topology) for spec in specs))
            model = "" if specs[0].model == DECIDES else f"{specs[0].model}, "
            lines.append(
                f"  {summary}: {model}{frameworks}, {topologies}: {counted(runs, 'run')} to make, "
                f"{len(specs) - runs} there already"
            )
            lines += [
                f"    {line}"
                for line in [*_commands(specs), *_micro_batches(specs), *memory_lines(specs, self.cluster)]
            ]
        lines += self._detectable()
        if self.node_jobs:
            lines += self.node_jobs.lines
        if self.runs:
            how = "the time of all jobs added up" if self.cluster else "one at a time"
            lines.append(f"  training, {how}: {self._training_time()}")
        elif not self.node_jobs:
            lines.append("  no training run is to be made")
        return "\n".join([*lines, *(f"  the result: {path}" for path in self.results())])

    def _detectable(self) -> list[str]:
        """Return a line for each benchmark that compares something: which differences its repeats can detect.

        Its largest family of questions counts: all pairs of frameworks at a place, or all steps to more devices.
        """
        lines = []
        pending = {spec.benchmark for spec in self.runs.values() if "__" not in spec.benchmark}
        for name, specs in grouped(self.specs, lambda spec: spec.benchmark).items():
            if name not in pending:
                continue
            frameworks, cells = len({spec.framework for spec in specs}), len({spec.cell for spec in specs})
            steps = len({str(spec.topology) for spec in specs}) - 1
            if questions := max(math.comb(frameworks, 2), cells * frameworks * steps, cells - 1):
                margin = self.margins.get(name, ratios.MARGIN)
                lines.append(f"  {name}: {ratios.decides(max(spec.repeat for spec in specs), questions, margin)}")
        return lines

    def _training_time(self) -> str:
        """Return in words how long all pending runs take together, and how certain that is."""
        estimates, finished_s = self.estimates_s(self.runs.values()), self._finished_s()
        total_s = sum(seconds for seconds in estimates if seconds is not None)
        unknown = estimates.count(None)
        if unknown == len(estimates):
            return "time not known before the first repeat"
        more = f" and {counted(unknown, 'run')} whose time is not known yet" if unknown else ""
        first = any(repeated(spec) not in finished_s for spec in self.runs.values())
        return f"about {duration(total_s)}{more}" + (", better known after the first repeat" if first else "")

    def estimates_s(self, runs: Iterable[RunSpec]) -> list[float | None]:
        """Return the estimated seconds of each run, or None where there is no estimate.

        The estimate is the median of the run's finished repeats. Without one, it is START_S plus the time cap of the
        run's steps, or plus their shortest window, if they have one.
        """
        finished_s = self._finished_s()
        estimates: list[float | None] = []
        for spec in runs:
            cap = spec.steps.max_total_seconds or spec.steps.min_window_seconds
            repeats = finished_s.get(repeated(spec))
            estimates.append(median(repeats) if repeats else None if cap is None else START_S + cap)
        return estimates

    def _finished_s(self) -> dict[tuple[str, ...], list[float]]:
        """Map what repeats have in common to the seconds of each repeat that is finished."""
        finished: dict[tuple[str, ...], list[float]] = {}
        for spec in self.specs:
            if spec.record in self.took_s:
                finished.setdefault(repeated(spec), []).append(self.took_s[spec.record])
        return finished

    def results(self) -> list[str]:
        """Return the files that a person should look at afterwards.

        These are the report, a comparison and an archive. Without them, these are the tables of predictions; without
        them, the summaries; without them, the manifests; without them, the files that the user asked for; without them,
        the tables.
        """
        manifests = sorted(name for name in self.data if name.endswith("/manifest.json"))
        ends = [name for name in ENDS if name in self.pending]
        files = sorted(self.pending.intersection(self.targets))
        tables = sorted(name for name in self.pending if name.endswith("/tables"))
        predicted = [name.replace(PREDICTED, "/tables/predictions.md") for name in self._predictions()]
        return ends or predicted or self._summaries() or manifests or files or tables

    def _predictions(self) -> list[str]:
        return sorted(name for name in self.pending if name.endswith(PREDICTED))

    def _summaries(self) -> list[str]:
        return [name for name in dict.fromkeys(spec.summary for spec in self.specs) if name in self.pending]

    def outcome(self) -> str:
        """Return the last message of a finished workflow: medians, predictions, a verdict, where the results are."""
        lines = _shortened([line for name in self._summaries() for line in _medians(name)])
        if ACCEPTANCE in self.pending:
            lines += [f"  {line}" for line in verdict.lines(read_acceptance(ACCEPTANCE))]
        predicted = map(read_predictions, self._predictions())
        lines += _shortened([f"  {line}" for made in predicted for line in predictions.lines(made)])
        read = map(read_imported, sorted(filter(IMPORTED.fullmatch, self.pending)))
        lines += [line for imported in read for line in _imported(imported)]
        pages = " (open it in a browser; it needs no network)"
        results = [name + pages * name.endswith(".html") for name in self.results()]
        return "\n".join(["Finished.", *lines, *(f"  result: {path}" for path in results)])


def _imported(imported: Imported) -> list[str]:
    """Return what an import did with its files, which kinds of logs are known, and where each file's reason is."""
    lines = [f"  {imported.outcome}"]
    if any(run.status == "foreign" for run in imported.files):
        titles = sorted({kind.title for kind in log_kinds.find_all()})
        lines.append(f"    kinds of logs that are known: {', '.join(titles)}")
    return [*lines, f"    each file: results/{imported.name}/imported/throughput.md"]


def failures(logs: Mapping[str, str], since: float = 0.0) -> str:
    """Return the last message of a failed workflow: the missing files that have a log, and the next step.

    `logs` maps each file that had to be made to its log. since: older logs are of earlier calls.
    """
    failed = []
    for path, log in logs.items():
        if not os.path.exists(path) and os.path.exists(log) and os.path.getmtime(log) >= since:
            why = log if os.path.getsize(log) else "its job was ended before it wrote into its log"
            failed.append(f"  failed: {path}; why: {why}")
    lines = ["Not everything could be made; what is there is kept.", *_shortened(failed)]
    if os.path.exists(SO_FAR):
        lines.append(f"  what is measured so far: {SO_FAR}")
    if ACCEPTANCE in logs and os.path.exists(ACCEPTANCE_PAGE):
        lines.append(f"  the verdict on what is there: {ACCEPTANCE_PAGE}")
    fix = "fix what the log says" if len(failed) == 1 else "fix what the logs say" if failed else "fix the cause"
    return "\n".join([*lines, f"  next: {fix}, and run the same command again: only the rest is made"])


def check_places(outputs: Iterable[str]) -> None:
    """Raise UserError if a folder that outputs belong in cannot be written.

    This is checked first, because otherwise the user would see the error only after hours of training.
    """
    wanted = {Path(output).parent for output in outputs}
    existing = {next(path for path in (folder, *folder.parents) if path.is_dir()) for folder in wanted}
    for folder in sorted(existing):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}{os.sep} cannot be written, and results belong there",
                why="this user may not write there, or the file system is mounted read-only",
                next_step="correct the rights or the mount, and run the same command again; nothing was started",
            )


def memory_lines(specs: Sequence[RunSpec], cluster: bool = False, models: Path = gpus.MODELS) -> list[str]:
    """Return a line for each framework whose memory can be predicted: what a rank needs, beside what its device has.

    The specifications share a summary. cluster: the runs are on other machines, whose memory is not known. models:
    where the driver names the GPUs of this machine.
    """
    lines = []
    for framework in dict.fromkeys(spec.framework for spec in specs):
        by_topology = {spec.topology: spec for spec in specs if spec.framework == framework}
        on_cpu = specs[0].device == "cpu"
        predicted = {name: workloads.predicted_memory(spec, gpu=not on_cpu) for name, spec in by_topology.items()}
        needed = {topology: memory.peak_bytes for topology, memory in predicted.items() if memory}
        if not needed:
            continue
        machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        name, has = ("this machine, for all its ranks,", machine) if on_cpu else gpus.smallest_here(models)
        line = ", ".join(f"{topology} {gib(size)}" for topology, size in needed.items())
        if has and not cluster:
            ranks = {topology: topology.devices if on_cpu else 1 for topology in needed}
            too_large = [str(topology) for topology, size in needed.items() if size * ranks[topology] > has]
            line += f"; {name} has {gib(has)}"
            line += f". WARNING: it cannot fit: {', '.join(too_large)}" if too_large else ""
        lines.append(f"predicted memory of a rank, {framework}: {line}")
    return lines


def _commands(specs: Sequence[RunSpec]) -> list[str]:
    """Return the command of each program among these runs, with the placeholders that its specification decides."""
    programs = {spec.framework: spec for spec in specs if spec.program}
    return [f"{name}: {words.shown(words.command(spec))}" for name, spec in programs.items()]


def _micro_batches(specs: Sequence[RunSpec]) -> list[str]:
    """Return a line that says how a global batch becomes micro-batches on each topology; else no line.

    Example: `67,584 samples a step = replicas x batch x micro-batches: 1n1g 1 x 32 x 2112, 1n8g 8 x 32 x 264`.
    """
    if specs[0].global_batch is None:
        return []
    sizes = {str(spec.topology): spec.size for spec in specs}
    each = ", ".join(
        f"{topology} {size.replicas} x {size.batch_per_replica} x {size.gradient_accumulation}"
        for topology, size in sizes.items()
    )
    return [f"{specs[0].global_batch:,} samples a step = replicas x batch x micro-batches: {each}"]


def _medians(summary: str) -> list[str]:
    """Return a line for each framework and topology of a summary, or no lines if the summary cannot be read.

    Example: `bert bz64 fp16 torch 1n2g: 914.2 samples/s, speedup 1.78 (median of 5)`.
    """
    try:
        content = read_summary(summary)
    except UserError:
        return []
    where = cell_name(content.benchmark, content.batch, content.precision)
    kind = "strong-scaling " if content.scaling == "strong" else ""
    lines = []
    for framework, topology, cell in content.cells():
        statuses = " ".join(f"{n} {status}" for status, n in cell.statuses.items())
        speed = f"{cell.median_speed:.1f} {content.unit}" if cell.median_speed else statuses
        speedup = f", {kind}speedup {cell.speedup:.2f}" if cell.speedup and cell.speedup != 1 else ""
        lines.append(f"  {where} {framework} {topology}: {speed}{speedup} (median of {cell.n_ok})")
    return lines


def repeated(spec: RunSpec) -> tuple[str, ...]:
    """Return what all repeats of a run have in common."""
    return spec.cell, spec.framework, str(spec.topology)


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - NAMED_AT_MOST
    return [*lines[:NAMED_AT_MOST], f"  and {more} more"] if more > 0 else lines

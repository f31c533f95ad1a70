"""Make one summary from the run records of one benchmark, batch size and precision.

Records are grouped by their own specification, never by the names of their files. A record under the name of another
configuration is refused.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from throughline import ratios, statistics, workloads
from throughline.files import UserError, snakemake, write_json
from throughline.records import SCHEMA, CellRecord, Equivalence, RunRecord, Summary, read_equivalence, read_run
from throughline.report.analysis import advice, baseline, cost, differences, goals, hardware_totals, program_losses
from throughline.report.analysis.baseline import Pool
from throughline.report.analysis.workload_figures import medians, other_units
from throughline.spec import RunSpec, Topology
from throughline.spec import values as json_values
from throughline.study.result_sections import Goals, Price
from throughline.study.section import Section, Share

FREE = {"framework", "topology", "repeat", "hosts", "program"}
"""The keys in which the specifications of one summary's runs may differ; runs on one topology have the same hosts, and
those of one cell the same program."""
NO_SPEEDUP = dict.fromkeys(("speedup", "efficiency", "speedup_range", "speedup_coverage", "efficiency_range"))
"""What is not known of a cell and a baseline that ran in different environments."""
ByTopology = dict[str, list[RunRecord]]


class Terms(Section):
    """The goals, prices and margin of a benchmark, from the configuration. Without goals it is not judged.

    failed: why repeats that the summary does not wait for have no record, by the places of their records.
    """

    goals: Goals | None = None
    prices: dict[str, Price] = Field(default_factory=dict)
    total_samples: int | None = None
    margin: Share = ratios.MARGIN
    mtbf_hours: float | None = None
    failed: dict[str, str] = Field(default_factory=dict)


def read_terms(text: str) -> Terms:
    """Return the terms in a JSON text; UserError if it has no valid terms."""
    try:
        return Terms.model_validate_json(text)
    except ValidationError as error:
        raise UserError("--terms has no valid goals and prices", why=str(error)) from None


def summarize(
    paths: Sequence[Path],
    repeats: int,
    remarks: str | None = None,
    equivalence: Equivalence | None = None,
    terms: Terms | None = None,
    asked: RunSpec | None = None,
) -> Summary:
    """Summarize the records at `paths` (one benchmark, batch and precision), with `repeats` repeats per cell.

    Every figure is unrounded. UserError if there is no record, if a record lies at another run's path, if two records
    are of one run, or if records differ in more than framework, topology and repeat, from each other or from a run that
    is `asked` for.
    """
    runs, terms = _read(paths, asked), terms or Terms()
    by_framework: dict[str, ByTopology] = {run.spec.framework: {} for run in runs}
    for run in sorted(runs, key=lambda run: (baseline.size(str(run.spec.topology)), run.spec.repeat)):
        by_framework[run.spec.framework].setdefault(str(run.spec.topology), []).append(run)
    found = {name: equivalence.of(name, runs[0].spec.precision) if equivalence else None for name in by_framework}
    verdicts = {name: verdict for name, verdict in found.items() if verdict} if equivalence else None
    pooled = {name: {t: baseline.pool(of) for t, of in series.items()} for name, series in by_framework.items()}
    kept = [run for series in pooled.values() for pool in series.values() for run in pool.kept]
    settings = {name: next((run.settings for run in kept if run.spec.framework == name and run.settings), None)
                for name in by_framework}  # fmt: skip
    device = next((run.device for run in kept if run.device), None)
    data = next((run.data for run in kept if run.data), None)
    baselines = {name: baseline.of(series) for name, series in by_framework.items()}
    doubts = advice.about_frameworks(settings, verdicts or {})
    environment = {run.spec.framework: run.environment for run in (*reversed(runs), *reversed(kept))}  # the first kept
    cells = {}
    for name, series in pooled.items():
        stated = differences.by_key(device, environment[name], data)
        cells[name] = _series(series, baselines[name], repeats, doubts[name], terms, stated)
    kind = device.kind if device else None
    return without_runs(
        runs[0].spec,
        unit=runs[0].unit,
        device=device,
        environment=environment,
        data=data,
        remarks=remarks,
        equivalence=verdicts,
        settings=settings if any(settings.values()) else None,
        goals=(goals.judge(cells, terms.goals, kind, baselines) or None) if terms.goals else None,
        baselines=baselines,
        margin=terms.margin,
        mtbf_hours=terms.mtbf_hours,
        frameworks=cells,
    )


def without_runs(spec: RunSpec, **measured: Any) -> Summary:
    """Return the summary of the runs that are like `spec`, as long as none has a record; `measured` replaces fields."""
    reasons = {}
    if spec.scaling == "strong":
        reasons["batch_size_per_device"] = "batch is of all replicas together: scaling is strong"
    elif (devices := spec.options.layout.tensor_parallel) > 1:
        reasons["batch_size_per_device"] = f"batch is of a replica, and {devices} devices share one"
    elif not isinstance(spec.batch, int):
        reasons["batch_size_per_device"] = "the program decides"
    known: dict[str, Any] = {
        "schema_": SCHEMA,
        "parameters": json_values(spec.parameters),
        "batch_size_per_device": None if reasons else spec.batch,
        "unit": f"{workloads.unit(spec)}/s",
        "options": spec.block_options,
        "environment": {},
        "reasons": reasons,
        "baselines": {},
        "margin": ratios.MARGIN,
        "frameworks": {},
    }
    same = ("benchmark", "model", "batch", "precision", "scaling", "global_batch", "optimizer", "steps", "job")
    known |= {name: getattr(spec, name) for name in same}
    nothing = dict.fromkeys(("device", "data", "remarks", "equivalence", "settings", "goals"))
    return Summary(**{**nothing, **known, **measured})


def _read(paths: Sequence[Path], asked: RunSpec | None) -> list[RunRecord]:
    """Read the records at `paths`; UserError unless all are of one configuration, and each of another run."""
    if not paths:
        raise UserError("a summary needs at least one run record", next_step="name the files run<k>.json")
    records = [(path, read_run(path)) for path in paths]
    values = [(path, _fixed(run.spec)) for path, run in records]
    if asked:
        _as_asked(values, _fixed(asked))
    _same(values)
    for topology in {run.spec.topology for _, run in records}:
        _same([(path, {"hosts": run.spec.hosts}) for path, run in records if run.spec.topology == topology])
    for cell in {(run.spec.framework, run.spec.topology) for _, run in records}:
        of_cell = [(path, run.spec) for path, run in records if (run.spec.framework, run.spec.topology) == cell]
        _same([(path, {"program": spec.program and json_values(spec.program)}) for path, spec in of_cell])
    seen = set()
    for path, run in records:
        name = f"{run.spec.framework} {run.spec.topology} repeat {run.spec.repeat}"
        if name in seen:
            raise UserError(
                f"two records of {name}, the second is {path}",
                why="a repeat counts once",
                next_step="name every record once",
            )
        seen.add(name)
    return [run for _, run in records]


def _fixed(spec: RunSpec) -> dict[str, Any]:
    """Return what all runs of a summary have in common, as JSON values by dotted keys."""
    common = {**spec.values(), "options": json_values(spec.block_options)}
    return differences.flat({key: value for key, value in common.items() if key not in FREE})


def _as_asked(values: Sequence[tuple[Path, dict[str, Any]]], wanted: dict[str, Any]) -> None:
    """Raise a UserError if a record was made for another configuration.

    Snakemake notices this by itself, unless it was killed while its job on a cluster went on: then it does not know
    what the record was made for.
    """
    stale = [(path, keys[0], other) for path, other in values if (keys := _unequal(other, wanted))]
    if stale:
        path, key, other = stale[0]
        raise UserError(
            f"{path} was run with {key} = {other.get(key)}, and the configuration asks for {wanted.get(key)}",
            why="a summary holds runs of the present configuration only",
            next_step=f"make it again: {snakemake('--force', *(str(path) for path, *_ in stale))}",
        )


def _same(values: Sequence[tuple[Path, dict[str, Any]]]) -> None:
    """Raise a UserError if a record has another value than the first."""
    first, wanted = values[0]
    for path, other in values[1:]:
        for key in _unequal(wanted, other):
            raise UserError(
                f"{path} was run with {key} = {other.get(key)}, {first} with {wanted.get(key)}",
                why="runs of one summary differ in framework, topology and repeat only",
                next_step="remove the record of the older configuration and run snakemake again",
            )


def _unequal(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [key for key in one | other if one.get(key) != other.get(key)]


def write(
    paths: Sequence[Path],
    output: Path,
    repeats: int,
    remarks: str | None = None,
    strict: bool = False,
    equivalence: Path | None = None,
    terms: Terms | None = None,
    asked: RunSpec | None = None,
) -> None:
    """Write the summary to `output`. With `strict`, a warning in any cell raises a UserError instead.

    UserError as well if `output` is not the place of these records.
    """
    compared = read_equivalence(equivalence) if equivalence else None
    summary = summarize(paths, repeats, remarks, compared, terms, asked)
    expected = f"{summary.benchmark}/bz{summary.batch}_{summary.precision}.json"
    if not output.absolute().as_posix().endswith("/" + expected):
        raise UserError(
            f"these records belong into {expected}, not into {output}",
            why="a summary's place is named by its benchmark, batch and precision",
            next_step="give the records of the configuration that the output's name says",
        )
    warnings = [f"{name} {topology}: {text}" for name, topology, cell in summary.cells() for text in cell.warnings]
    if strict and warnings:
        raise UserError(
            f"{output} has warnings, and runs.strict is on:\n    " + "\n    ".join(warnings),
            why="a strict configuration accepts no figure with a warning",
            next_step="fix the cause and run the cells again (the first line of a run's log says how), or set "
            "runs.strict: false",
        )
    write_json(output, summary.model_dump(by_alias=True))


def _series(
    pools: Mapping[str, Pool], base: str, repeats: int, doubts: Sequence[str], terms: Terms, stated: dict[str, Any]
) -> dict[str, CellRecord]:
    """Return the cells of one framework by topology, smallest first.

    doubts: warnings about the framework. stated: the facts of its environment; a cell keeps what differs from them.
    """
    base_runs = pools[base].kept if base in pools else []
    cells: dict[str, CellRecord] = {}
    losses = program_losses.warnings({topology: pool.kept for topology, pool in pools.items()})
    for topology, pool in pools.items():
        cell = _cell(pool, repeats, base, base_runs, terms, stated)
        unlike = advice.unlike_baseline(pool.kept, base_runs, base) if topology != base else []
        cell = cell.model_copy(update=NO_SPEEDUP if unlike else {})
        warnings = [*advice.about_cell(pool.kept, cell, base), *unlike, *losses[topology], *doubts]
        cells[topology] = cell.model_copy(update={"warnings": warnings})
    return cells


def _of_repeats(runs: Sequence[RunRecord | None], name: str) -> list[Any] | None:
    """Return what each repeat says under a key that not every run has; None if none has it."""
    values = [getattr(run, name, None) for run in runs]
    return values if any(values) else None


def _cell(
    pool: Pool, repeats: int, base: str, base_runs: Sequence[RunRecord], terms: Terms, stated: dict[str, Any]
) -> CellRecord:
    """Return a cell's record, without warnings. `ran_in` keeps what differs from the facts `stated` in the summary."""
    every, runs, spec = pool.every, pool.kept, pool.every[0].spec
    speeds, base_speeds = ([r.samples_per_s for r in of if r.samples_per_s is not None] for of in (runs, base_runs))
    n = max(repeats, *(run.spec.repeat for run in every))
    records = {repeat: replace(spec, repeat=repeat).record for repeat in range(1, n + 1)}
    failed = [f"repeat {k} failed: {terms.failed[path]}" for k, path in records.items() if path in terms.failed]
    by_repeat = {run.spec.repeat: run for run in runs if run.samples_per_s is not None}
    timed = [by_repeat.get(repeat) for repeat in range(1, n + 1)]
    world = spec.topology.world
    each = None if spec.options.layout.tensor_parallel > 1 else spec.size.batch_per_replica
    if spec.program:
        each = spec.batch if isinstance(spec.batch, int) and spec.scaling != "strong" else None
    middle, ideal = statistics.median(speeds), world / Topology.parse(base).world
    speedup = statistics.speedup(middle, statistics.median(base_speeds))
    interval = None if str(spec.topology) == base else statistics.speedup_range(speeds, base_speeds)
    rated = cost.rate(next((run.device for run in runs if run.device), None), terms.prices)
    ok = [run for run in runs if run.status == "ok"]
    here = differences.of_run(ok[-1]) if ok else {}
    return CellRecord(
        values=[run.samples_per_s if run else None for run in timed],
        n=n,
        n_ok=len(speeds),
        median_speed=middle,
        average_speed=statistics.average(speeds),
        min=min(speeds, default=None),
        max=max(speeds, default=None),
        median_absolute_deviation=statistics.median_absolute_deviation(speeds),
        coefficient_of_variation=statistics.coefficient_of_variation(speeds),
        range_coverage=statistics.range_coverage(len(speeds)),
        speedup=speedup,
        speedup_range=list(interval) if interval else None,
        speedup_coverage=statistics.speedup_coverage(len(speeds), len(base_speeds)) if interval else None,
        efficiency=statistics.efficiency(speedup, ideal),
        efficiency_range=[end / ideal for end in interval] if interval else None,
        batch_size_per_device=each,
        replicas=spec.size.replicas,
        global_batch=spec.size.global_batch,
        world_size=world,
        statuses=dict(Counter(run.status for run in every)),
        reasons=list(dict.fromkeys([*(run.reason for run in every if run.reason), *failed])),
        warnings=[],
        simulated=spec.hosts == "simulated",
        logs=[f"{spec.framework}/{spec.topology}/run{run.spec.repeat}.log" for run in every],
        other_units=other_units(spec, middle),
        figures=medians(runs),
        left_out=pool.left_out,
        cost=cost.of(middle, world, rated, terms.total_samples),
        starts=[run.started if run else None for run in timed],
        steps_timed=[run.steps_timed if run else None for run in timed],
        ranks=hardware_totals.of_ranks(runs, n),
        start_up=_of_repeats(timed, "start_up"),
        checkpoints=_of_repeats(timed, "checkpoints"),
        ran_in={key: here.get(key) for key in stated | here if here.get(key) != stated.get(key)} if ok else None,
        started=min((run.started for run in ok), default=None),
        ended=max((run.ended for run in ok), default=None),
        **hardware_totals.of(runs),
    )

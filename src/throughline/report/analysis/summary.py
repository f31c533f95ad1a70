"""Run records of one benchmark, batch size and precision -> one summary.

Records are grouped by what they say about themselves (their specification), never by the names of their files; a
record that lies under another configuration's name is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field, ValidationError

from throughline import statistics
from throughline.files import UserError, write_json
from throughline.records import (
    Cell,
    Device,
    Equivalence,
    RunRecord,
    Summary,
    dump,
    parameters_of,
    read_equivalence,
    read_run,
)
from throughline.report.analysis import advice, cost, goals, hardware, pooling
from throughline.study.config import Goals, Price, Section
from throughline.topology import Topology

FREE = {"framework", "topology", "repeat", "hosts"}
"""What two runs of one summary may differ in; everything else in their specifications is the same (of one topology, the
hosts as well)."""


class Terms(Section):
    """What a benchmark is judged and priced by, from the configuration; without goals it is not judged."""

    goals: Goals | None = None
    prices: dict[str, Price] = Field(default_factory=dict)
    task_samples: int | None = None


def read_terms(text: str) -> Terms:
    """The terms in a JSON text; UserError where it is none."""
    try:
        return Terms.model_validate_json(text)
    except ValidationError as error:
        raise UserError("--terms are no goals and prices", why=str(error)) from None


def summarize(
    paths: Sequence[Path],
    asked: int,
    remarks: str | None = None,
    equivalence: Equivalence | None = None,
    terms: Terms | None = None,
) -> Summary:
    """The summary of the records at `paths` (one benchmark, batch and precision), `asked` repeats a cell.

    Every figure is unrounded. UserError: no record, a record under a name that is not its own, two records of one
    run, or records that differ in more than framework, topology and repeat.
    """
    if not paths:
        raise UserError("a summary needs at least one run record", next_step="name the files run<k>.json")
    records = [read_run(path) for path in paths]
    _same_configuration(records, paths)
    frame = pd.DataFrame(
        {
            "framework": [record.spec.framework for record in records],
            "topology": [record.spec.topology for record in records],
            "repeat": [record.spec.repeat for record in records],
            "record": records,
        }
    )
    _each_once(frame, paths)
    frameworks: dict[str, dict[str, Cell]] = {}
    for framework, series in frame.groupby("framework", sort=False):
        by_topology = {
            str(topology): list(part.sort_values("repeat")["record"]) for topology, part in series.groupby("topology")
        }
        frameworks[str(framework)] = _series(by_topology, asked)
    mathematics = {name: found for name in frameworks if (found := equivalence.of(name))} if equivalence else None
    settings = {
        name: next((run.settings for run in records if run.spec.framework == name and run.settings), None)
        for name in frameworks
    }
    for name, notes in advice.about_frameworks(settings, mathematics or {}).items():
        frameworks[name] = {
            topology: cell.model_copy(update={"warnings": [*cell.warnings, *notes]})
            for topology, cell in frameworks[name].items()
        }
    first, spec = records[0], records[0].spec
    device = next((record.device for record in records if record.device), None)
    terms = terms or Terms()
    frameworks = {name: _priced(series, device, terms) for name, series in frameworks.items()}
    return Summary(
        schema_=2,
        benchmark=spec.benchmark,
        model=spec.model,
        parameters=parameters_of(spec),
        batch=spec.batch_per_device,
        batch_size_per_device=spec.batch_per_device,
        precision=spec.precision,
        unit=first.unit,
        device=device,
        environment={
            record.spec.framework: record.environment for record in reversed(records)
        },  # each framework's first
        optimizer=spec.optimizer,
        options=spec.options,
        steps=spec.steps,
        data=first.data,
        remarks=remarks,
        mathematics=mathematics,
        settings=settings if any(settings.values()) else None,
        goals=goals.judge(frameworks, terms.goals, device.kind if device else None) if terms.goals else None,
        baselines=dict.fromkeys(frameworks, "1n1g"),
        frameworks=frameworks,
    )


def _priced(series: dict[str, Cell], device: Device | None, terms: Terms) -> dict[str, Cell]:
    rated = cost.rate(device, terms.prices)
    return {
        topology: cell.model_copy(
            update={"cost": cost.of(cell.median_speed, cell.world_size, rated, terms.task_samples)}
        )
        for topology, cell in series.items()
    }


def write(
    paths: Sequence[Path],
    output: Path,
    asked: int,
    remarks: str | None = None,
    strict: bool = False,
    equivalence: Path | None = None,
    terms: Terms | None = None,
) -> None:
    """Write the summary to `output`; with `strict`, a warning in any cell is a UserError instead."""
    compared = read_equivalence(equivalence) if equivalence else None
    summary = summarize(paths, asked, remarks, compared, terms)
    own = f"{summary.benchmark}/bz{summary.batch}_{summary.precision}.json"
    if not output.absolute().as_posix().endswith("/" + own):
        raise UserError(
            f"these records belong into {own}, not into {output}",
            why="a summary's place is named by its benchmark, batch and precision",
            next_step="give the records of the configuration that the output's name says",
        )
    if strict:
        _refuse_warnings(summary, output)
    write_json(output, dump(summary))


def _same_configuration(records: Sequence[RunRecord], paths: Sequence[Path]) -> None:
    fixed = [advice.flat(record.spec.model_dump(exclude=FREE)) for record in records]
    _same(list(zip(paths, fixed, strict=True)))
    for topology in {record.spec.topology for record in records}:
        alike = [(p, r) for p, r in zip(paths, records, strict=True) if r.spec.topology == topology]
        _same([(path, {"hosts": record.spec.hosts}) for path, record in alike])


def _same(found: Sequence[tuple[Path, dict[str, Any]]]) -> None:
    first, wanted = found[0]
    for path, other in found[1:]:
        for key in wanted | other:
            if wanted.get(key) != other.get(key):
                raise UserError(
                    f"{path} was run with {key} = {other.get(key)}, {first} with {wanted.get(key)}",
                    why="runs of one summary differ in framework, topology and repeat only",
                    next_step="remove the record of the older configuration and run snakemake again",
                )


def _each_once(frame: pd.DataFrame, paths: Sequence[Path]) -> None:
    twice = [int(index) for index in frame.index[frame.duplicated(["framework", "topology", "repeat"])]]
    if twice:
        spec = frame["record"][twice[0]].spec
        raise UserError(
            f"two records of {spec.framework} {spec.topology} repeat {spec.repeat}, the second is {paths[twice[0]]}",
            why="a repeat counts once",
            next_step="name every record once",
        )


def _series(by_topology: dict[str, list[RunRecord]], asked: int) -> dict[str, Cell]:
    """All topologies of one framework, smallest first."""
    pooled = {topology: pooling.pool(runs) for topology, runs in by_topology.items()}
    baseline = pooled.get("1n1g", ([], []))[0]
    cells: dict[str, Cell] = {}
    for topology in sorted(pooled, key=lambda name: (Topology.parse(name).world, Topology.parse(name))):
        kept, left_out = pooled[topology]
        cell = _cell(by_topology[topology], kept, asked, baseline).model_copy(update={"left_out": left_out})
        notes = advice.about_cell(kept, cell)
        if topology != "1n1g":
            notes += advice.unlike_baseline(kept, baseline)
        cells[topology] = cell.model_copy(update={"warnings": notes})
    return cells


def _cell(every: Sequence[RunRecord], runs: Sequence[RunRecord], asked: int, baseline: Sequence[RunRecord]) -> Cell:
    """What `runs` come to; `every` are the records of the cell, also those that are left out."""
    spec = every[0].spec
    world = Topology.parse(spec.topology).world
    speeds, baseline_speeds = _speeds(runs), _speeds(baseline)
    by_repeat = {run.spec.repeat: run.samples_per_s for run in runs}
    n = max(asked, *(run.spec.repeat for run in every))
    middle = statistics.median(speeds)
    speedup = statistics.speedup(middle, statistics.median(baseline_speeds))
    interval = None if spec.topology == "1n1g" else statistics.speedup_range(speeds, baseline_speeds)
    return Cell(
        values=[by_repeat.get(repeat) for repeat in range(1, n + 1)],
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
        speedup_coverage=statistics.speedup_coverage(len(speeds), len(baseline_speeds)) if interval else None,
        efficiency=statistics.efficiency(speedup, world),
        efficiency_range=[end / world for end in interval] if interval else None,
        batch_size_per_device=spec.batch_per_device,
        global_batch=spec.size.samples_per_step,
        world_size=world,
        replicas=world,
        statuses=dict(Counter(run.status for run in every)),
        reasons=list(dict.fromkeys(run.reason for run in every if run.reason)),
        warnings=[],
        simulated=spec.hosts == "simulated",
        logs=[f"{spec.framework}/{spec.topology}/run{run.spec.repeat}.log" for run in every],
        **hardware.of(runs),
    )


def _speeds(runs: Iterable[RunRecord]) -> list[float]:
    """Throughputs of the runs that are ok: a record with any other status carries none."""
    return [run.samples_per_s for run in runs if run.samples_per_s is not None]


def _refuse_warnings(summary: Summary, output: Path) -> None:
    found = [
        f"{framework} {topology}: {warning}"
        for framework, series in summary.frameworks.items()
        for topology, cell in series.items()
        for warning in cell.warnings
    ]
    if found:
        raise UserError(
            f"{output} has warnings, and runs.strict is on:\n    " + "\n    ".join(found),
            why="a strict configuration accepts no doubtful figure",
            next_step="mend the cause and run the cells again (snakemake --force <record>), or set runs.strict: false",
        )

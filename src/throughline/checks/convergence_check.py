"""A convergence check, the launcher's side: which there are, start or resume, the verdict against a stated curve."""

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from throughline import files, records
from throughline.files import UserError
from throughline.launch import launch
from throughline.launch.job import Job
from throughline.messages import Checkpoint, Training
from throughline.rank.convergence import Book
from throughline.rank.data import Manifest
from throughline.records.checks import AgainstStated, Verdict
from throughline.study.benchmark import Convergence, Steps
from throughline.study.config import Config
from throughline.study.runs import RunSpec
from throughline.study.section import canonical
from throughline.study.targets import CHECK
from throughline.topology import Topology

LAST, CHECKPOINTS = "last", ".checkpoints"
"""The folder beside a finished curve that holds its last checkpoint; how that of an unfinished one ends."""
FORMAT = 2
"""Of the checkpoints; those of another one are not taken up."""
Stated = dict[str, list[tuple[int, float]]]
"""Figure of held-out data -> its (step, value) pairs, rising in step."""


def requests(config: Config, specs: Iterable[RunSpec]) -> dict[str, RunSpec]:
    """results/<benchmark>/convergence_<...>.json -> the run behind it.

    One for every framework and precision of a benchmark with `convergence`: its smallest batch on its largest topology.
    """
    requested = {}
    for spec in sorted(specs, key=lambda spec: spec.batch_per_device):
        block = config.benchmarks.get(spec.benchmark)
        if block is None or block.convergence is None or spec.repeat != 1:
            continue
        largest = max(block.topologies, key=lambda name: (Topology.parse(name).world, Topology.parse(name)))
        if spec.topology == largest and spec.batch_per_device == min(block.batch[spec.precision]):
            place = CHECK.format(**vars(spec), batch=spec.batch_per_device) + ".json"
            requested[place] = spec.model_copy(update={"steps": Steps(warmup=0, timed=block.convergence.steps)})
    return requested


def run(
    spec: RunSpec,
    settings: Convergence,
    manifest: Path,
    output: Path,
    log: Path,
    python: str,
    hosts: Sequence[str],
    begin: Path | None = None,
) -> None:
    """Train to the end and write the curve to `output`; what an earlier call has checkpointed beside it is taken up.
    The last checkpoint stays in `last/` beside the curve. `begin`: the curve of the check with whose last weights this
    one begins.

    UserError where it does not end by itself: the checkpoints stay, and the next call resumes. Checkpoints of another
    specification, of other settings or of other data are not taken up.
    """
    wanted = settings.model_dump(include={"steps", "evaluate_every", "samples"})
    same = [FORMAT, spec.canonical, *wanted.values(), _data(spec, manifest).content["content_digest"]]
    first = _last_weights(begin, spec.model) if begin else None
    if begin and first:
        same.append(first.sha256)
        print(f"begins with the weights of {begin.parent} after step {first.step}; the optimizer's states are new")
    identity = hashlib.sha256(canonical(same).encode()).hexdigest()
    book = Book(output.with_suffix(CHECKPOINTS), identity)
    resume, faults = book.newest()
    if resume is None:
        book.clear()
    for line in [*faults, f"resumes after step {resume.step}" if resume else "starts from the first step"]:
        print(line)
    order = Training(**wanted, folder=str(book.folder.resolve()), identity=identity, resume=resume, begin=first)
    job = Job(spec, output, log, manifest, python, hosts=hosts, convergence=order, telemetry=False)
    curve = _curve(job, order, launch.train(job))
    if begin and first:
        curve["begun_from"] = f"{begin.parent.parent.name}/{begin.parent.name}, step {first.step}, {first.sha256}"
    records.write(records.Curve, files.scrubbed(curve, but=launch.AS_IT_IS), output)
    book.leave_last(output.with_name(LAST))


def _last_weights(curve: Path, model: str) -> Checkpoint:
    """The last checkpoint of a finished check. UserError where there is none that this model can begin with."""
    done, kept = records.read_curve(curve), curve.with_name(LAST)
    book = Book(kept if kept.exists() else curve.with_suffix(CHECKPOINTS), None)  # where a call ended before it moved
    again = f"remove {curve} and run snakemake again: it trains once more, and its last checkpoint stays"
    if done.spec.model != model:
        raise UserError(
            f"no weights for {model} in {curve.parent}",
            why=f"they are those of {done.spec.model}",
            next_step="let convergence.begin_from name a benchmark of the same model",
        )
    if done.status != "ok" or None in done.loss:
        why = done.reason if done.status != "ok" else "its loss was not finite in the end"
        raise UserError(f"{curve.parent} has no weights to begin with", why=why, next_step=f"read {curve}")
    checkpoint, faults = book.newest()
    if checkpoint is None:
        missing = f"{kept} holds none: it was removed, or an older version has trained it"
        why = "; ".join(faults) or missing
        raise UserError(f"{curve.parent} has no checkpoint to begin with", why=why, next_step=again)
    return replace(checkpoint, file=str((book.folder / checkpoint.file).resolve()))


def _data(spec: RunSpec, manifest: Path) -> Manifest:
    """The data, with what is held out checked. UserError where nothing is held out."""
    data = Manifest(manifest, str(spec.workload.DATA), spec.typed_parameters, spec.seed)
    if not data.held_out:
        raise UserError(
            f"{manifest} lists no test shards",
            why="a convergence check looks at data that training does not read",
            next_step=f"set {spec.workload.DATA}.shards.test to 1 or more",
        )
    data.check(data.held_out)
    return data


def _curve(job: Job, order: Training, ended: launch.Ended) -> dict[str, Any]:
    """A curve's record: rank 0's looks and losses, or why there are none."""
    bad = next((report for _, report in sorted(ended.reports.items()) if report.status != "ok"), None)
    trained = None if bad else ended.reports[0].trained
    return {
        "schema": records.SCHEMA,
        "spec": job.full,
        "evaluate_every": order.evaluate_every,
        "status": bad.status if bad else "ok",
        "reason": bad.reason if bad else None,
        "curve": [records.Look.flat(look) for look in trained.curve] if trained else [],
        "loss": trained.losses if trained else [],
        "resumed_after_step": order.resume.step if order.resume else None,
        "device": ended.device,
        "data": ended.data,
        "environment": ended.environment,
        "warnings": ended.site.warnings,
        "started": ended.started,
        "ended": ended.ended,
    }


def judge(curve: records.Curve, against: Path | None, tolerance: float) -> records.ConvergenceVerdict:
    """The content of convergence_<...>.json: the curve's points against those of a CSV file.

    The file has a column `step` and some of the figures that the workload looks at in held-out data; between its
    steps it is taken to be straight. A point passes where it is not worse than stated by more than the tolerance: an
    absolute difference where more is better (an accuracy), else a share of what is stated (a loss).
    """
    held_out = curve.spec.workload.HELD_OUT
    expected = stated(against, held_out) if against else {}
    compared = [
        _against(there, look, name, held_out[name], tolerance)
        for name, points in expected.items()
        for look in curve.curve
        if (there := between(points, look.step)) is not None
    ]
    verdict, reason = _verdict(curve, against, compared)
    return records.ConvergenceVerdict(
        schema_=records.SCHEMA,
        spec=curve.spec,
        verdict=verdict,
        reason=reason,
        against=against.name if against else None,
        against_sha256=files.sha256(against) if against else None,
        tolerance=tolerance,
        last=curve.curve[-1] if curve.curve else None,
        stated={name: [[float(step), value] for step, value in points] for name, points in expected.items()},
        compared=compared,
    )


def stated(path: Path, held_out: Iterable[str]) -> Stated:
    """Figure -> its (step, value) pairs, rising in step. UserError where the file is no curve of these figures."""
    columns = f"give it the columns step and some of {', '.join(held_out)}"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        curves = {
            name: sorted((int(row["step"]), float(row[name])) for row in rows if row[name])
            for name in held_out
            if rows and name in rows[0]
        }
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is no curve", why=str(error), next_step=columns) from None
    if not any(curves.values()):
        raise UserError(f"{path} states nothing", next_step=columns)
    return curves


def between(points: list[tuple[int, float]], step: int) -> float | None:
    """The stated value at `step`; None outside of what is stated."""
    before = [point for point in points if point[0] <= step]
    after = [point for point in points if point[0] >= step]
    if not before or not after:
        return None
    (low, a), (high, b) = before[-1], after[0]
    return a if high == low else a + (b - a) * (step - low) / (high - low)


def _against(there: float, look: records.Look, name: str, more: bool, tolerance: float) -> AgainstStated:
    """A figure of a look against what is stated `there`; `more`: whether more of it is better."""
    value, limit = look.figures.get(name), there - tolerance if more else there * (1 + tolerance)
    passes = value is not None and (value >= limit if more else value <= limit)
    return AgainstStated(quantity=name, step=look.step, value=value, stated=there, limit=limit, passes=passes)


def _verdict(curve: records.Curve, against: Path | None, compared: Sequence[AgainstStated]) -> tuple[Verdict, str]:
    """Verdict and reason."""
    if curve.status != "ok":
        return "unsupported" if curve.status == "unsupported" else "fail", f"{curve.status}: {curve.reason}"
    broken = next((step for step, loss in enumerate(curve.loss, 1) if loss is None), None)
    if broken is not None:
        return "fail", f"the loss is not finite from step {broken} on"
    if against is None:
        return "not judged", "no curve is stated: set convergence.against"
    if not compared:  # a curve that says nothing passes nothing
        return "fail", f"{against.name} states nothing about the steps that were looked at"
    if worse := [one for one in compared if not one.passes]:
        first = worse[0]
        value = "not finite" if first.value is None else f"{first.value:.4f}"
        return "fail", (
            f"{first.quantity} {value} at step {first.step}, {first.stated:.4f} is stated and "
            f"{first.limit:.4f} the limit; {len(worse)} of {len(compared)} comparisons fail"
        )
    return "pass", f"{len(compared)} comparisons within the tolerance"

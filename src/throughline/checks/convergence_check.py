"""Convergence checks: which ones the configuration asks for, how they start or resume, and their verdicts."""

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from throughline import files, records, workloads
from throughline.files import UserError
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.messages import Checkpoint, Training
from throughline.rank.checkpoints import Checkpoints
from throughline.rank.data import Manifest
from throughline.records.checks import AgainstStated, Look, Verdict
from throughline.spec import RunSpec, Steps, Topology, canonical
from throughline.study.benchmark import Convergence
from throughline.study.config import Config
from throughline.study.targets import CHECK

LAST, CHECKPOINTS = "last", ".checkpoints"
"""The folder beside a finished curve with its last checkpoint, and the ending of that of an unfinished curve."""
FORMAT = 2
"""The version of the checkpoints' format. Checkpoints of another version are not used."""
Stated = dict[str, list[tuple[int, float]]]
"""Map each figure of held-out data to its (step, value) pairs, sorted by step."""


def requests(config: Config, specs: Iterable[RunSpec]) -> dict[str, RunSpec]:
    """Map each results/<benchmark>/convergence_<...>.json to the run that makes it: for each framework and precision of
    a benchmark with `convergence`, with its smallest batch on its largest topology."""
    requested = {}
    for spec in sorted((spec for spec in specs if not spec.program), key=lambda spec: spec.batch):
        block = config.benchmarks.get(spec.benchmark)
        if block is None or block.convergence is None or spec.repeat != 1:
            continue
        largest = max(map(Topology.parse, block.topologies), key=lambda topology: (topology.world, topology))
        if spec.topology == largest and spec.batch == min(block.batch_sizes[spec.precision]):
            path = CHECK.format(**vars(spec)) + ".json"
            requested[path] = replace(spec, steps=Steps(warmup=0, timed=block.convergence.steps))
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
    """Train to the end and write the curve to `output`. The last checkpoint stays in the folder `last` beside it.

    Training resumes from the checkpoints of an earlier call with the same specification, settings and data that did not
    finish. `begin`: the curve of the check with whose last weights it begins. Raises UserError if training is stopped;
    the next call resumes.
    """
    wanted = settings.model_dump(include={"steps", "evaluate_every", "samples"})
    same = [FORMAT, spec.canonical, *wanted.values(), _data(spec, manifest).content["content_digest"]]
    first = _last_weights(begin, spec.model) if begin else None
    if begin and first:
        same.append(first.sha256)
        print(f"begins with the weights of {begin.parent} after step {first.step}; the optimizer's states are new")
    identity = hashlib.sha256(canonical(same).encode()).hexdigest()
    book = Checkpoints(output.with_suffix(CHECKPOINTS), identity)
    resume, faults = book.newest()
    if resume is None:
        book.clear()
    for line in [*faults, f"resumes after step {resume.step}" if resume else "starts from the first step"]:
        print(line)
    order = Training(**wanted, folder=str(book.folder.resolve()), identity=identity, resume=resume, begin=first)
    request = RunRequest(spec, output, log, manifest, python, hosts=hosts, convergence=order, telemetry=False)
    curve = _curve(request, order, launcher.train(request))
    if begin and first:
        curve["begun_from"] = f"{begin.parent.parent.name}/{begin.parent.name}, step {first.step}, {first.sha256}"
    records.write(records.Curve, files.scrubbed(curve, but=launcher.AS_IT_IS), output)
    book.leave_last(output.with_name(LAST))


def _last_weights(curve: Path, model: str) -> Checkpoint:
    """Return the last checkpoint of a finished check. Raises UserError if `model` cannot begin with it."""
    done, kept = records.read_curve(curve), curve.with_name(LAST)
    # If the call ended before it moved the last checkpoint, all checkpoints are still in the other folder.
    book = Checkpoints(kept if kept.exists() else curve.with_suffix(CHECKPOINTS), None)
    if done.spec.model != model:
        raise UserError(
            f"no weights for {model} in {curve.parent}",
            why=f"they are those of {done.spec.model}",
            next_step="let convergence.begin_from name a benchmark of the same model",
        )
    if done.status != "ok" or None in done.loss:
        reason = done.reason if done.status != "ok" else "its loss was not finite in the end"
        raise UserError(f"{curve.parent} has no weights to begin with", why=reason, next_step=f"read {curve}")
    checkpoint, faults = book.newest()
    if checkpoint is None:
        raise UserError(
            f"{curve.parent} has no checkpoint to begin with",
            why="; ".join(faults) or f"{kept} holds none: it was removed",
            next_step=f"remove {curve} and run snakemake again: it trains once more, and its last checkpoint stays",
        )
    return replace(checkpoint, file=str((book.folder / checkpoint.file).resolve()))


def _data(spec: RunSpec, manifest: Path) -> Manifest:
    """Return the data, with the held-out data checked. Raises UserError if there are no held-out data."""
    data = Manifest.of_run(spec, manifest)
    if not data.held_out:
        raise UserError(
            f"{manifest} lists no test shards",
            why="a convergence check looks at data that training does not read",
            next_step=f"set {data.room}.shards.test to 1 or more",
        )
    data.check(data.held_out)
    return data


def _curve(request: RunRequest, order: Training, ended: launcher.FinishedRun) -> dict[str, Any]:
    """Return the record of a curve: the evaluations and losses of rank 0, or the reason why there are none."""
    refused = next((report for _, report in sorted(ended.reports.items()) if report.status != "ok"), None)
    trained = None if refused else ended.reports[0].trained
    return {
        "schema": records.SCHEMA,
        "spec": request.spec.values(),
        "evaluate_every": order.evaluate_every,
        "status": refused.status if refused else "ok",
        "reason": refused.reason if refused else None,
        "curve": [Look.flat(look) for look in trained.curve] if trained else [],
        "loss": trained.losses if trained else [],
        "resumed_after_step": order.resume.step if order.resume else None,
        "device": asdict(ended.survey.device),
        "data": ended.data,
        "environment": ended.environment,
        "warnings": ended.survey.warnings,
        "started": ended.started,
        "ended": ended.ended,
    }


def judge(curve: records.Curve, against: Path | None, tolerance: float) -> records.ConvergenceVerdict:
    """Return the content of convergence_<...>.json: the comparison of the curve with the stated curve in a file.

    It is a CSV file (`stated`), or the curve.json of another check. Between two steps we interpolate linearly. A point
    may be worse than the stated value by the tolerance: an absolute difference if more is better (an accuracy),
    otherwise (a loss) a share of the stated value.
    """
    if against is None:
        return compare(curve, {}, tolerance)
    model, held_out = curve.spec.model, workloads.of(curve.spec.model).held_out
    expected = of_earlier(against, model, held_out) if against.suffix == ".json" else stated(against, held_out)
    return compare(curve, expected, tolerance, against.name, files.sha256(against))


def compare(
    curve: records.Curve, expected: Stated, tolerance: float, against: str | None = None, sha256: str | None = None
) -> records.ConvergenceVerdict:
    """Return the comparison of a curve with an expected curve. against, sha256: the name and the digest of its file."""
    held_out = workloads.of(curve.spec.model).held_out
    compared = [
        _against(value, look, name, held_out[name], tolerance)
        for name, points in expected.items()
        for look in curve.curve
        if (value := between(points, look.step)) is not None
    ]
    verdict, reason = _verdict(curve, against, compared)
    return records.ConvergenceVerdict(
        schema_=records.SCHEMA,
        spec=curve.spec,
        verdict=verdict,
        reason=reason,
        against=against,
        against_sha256=sha256,
        tolerance=tolerance,
        last=curve.curve[-1] if curve.curve else None,
        stated={name: [[float(step), value] for step, value in points] for name, points in expected.items()},
        compared=compared,
    )


def stated(path: Path, held_out: Iterable[str]) -> Stated:
    """Read the stated curve of each figure in `held_out` from a CSV file. Raises UserError if it is no such curve."""
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


def of_earlier(path: Path, model: str, held_out: Iterable[str]) -> Stated:
    """Return the curve of an earlier check as a stated curve. Raises UserError if it is of another model, or empty."""
    earlier = records.read_curve(path)
    wrong = f"it is of {earlier.spec.model}, and this check trains {model}" if earlier.spec.model != model else None
    if wrong or earlier.status != "ok" or not earlier.curve:
        raise UserError(
            f"{path} is no curve to compare with",
            why=wrong or earlier.reason or "it has no evaluations",
            next_step="name the curve.json of a finished check of the same model in convergence.against, or a CSV file",
        )
    looks = sorted(earlier.curve, key=lambda look: look.step)
    return {
        name: [(look.step, value) for look in looks if (value := look.figures.get(name)) is not None]
        for name in held_out
    }


def between(points: list[tuple[int, float]], step: int) -> float | None:
    """Return the stated value at `step`, or None before the first and after the last stated step."""
    before = [point for point in points if point[0] <= step]
    after = [point for point in points if point[0] >= step]
    if not before or not after:
        return None
    (low, a), (high, b) = before[-1], after[0]
    return a if high == low else a + (b - a) * (step - low) / (high - low)


def _against(expected: float, look: Look, name: str, more: bool, tolerance: float) -> AgainstStated:
    """Compare a figure of an evaluation with its stated value. `more`: True if more of the figure is better."""
    value = look.figures.get(name)
    limit = expected - tolerance if more else expected * (1 + tolerance)
    passes = value is not None and (value >= limit if more else value <= limit)
    return AgainstStated(quantity=name, step=look.step, value=value, stated=expected, limit=limit, passes=passes)


def _verdict(curve: records.Curve, against: str | None, compared: Sequence[AgainstStated]) -> tuple[Verdict, str]:
    """Return the verdict and its reason."""
    if curve.status != "ok":
        return "unsupported" if curve.status == "unsupported" else "fail", f"{curve.status}: {curve.reason}"
    broken = next((step for step, loss in enumerate(curve.loss, 1) if loss is None), None)
    if broken is not None:
        return "fail", f"the loss is not finite from step {broken} on"
    if against is None:
        return "not judged", "no curve is stated: set convergence.against"
    if not compared:  # a stated curve without a common step proves nothing
        return "fail", f"{against} states nothing about the steps that were looked at"
    if worse := [comparison for comparison in compared if not comparison.passes]:
        first = worse[0]
        value = "not finite" if first.value is None else f"{first.value:.4f}"
        return "fail", (
            f"{first.quantity} {value} at step {first.step}, {first.stated:.4f} is stated and "
            f"{first.limit:.4f} the limit; {len(worse)} of {len(compared)} comparisons fail"
        )
    return "pass", f"{len(compared)} comparisons within the tolerance"

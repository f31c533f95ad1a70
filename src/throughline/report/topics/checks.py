"""Show the checks besides the measured runs: equal mathematics, the largest batch that fits, and convergence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from throughline import workloads
from throughline.numbers import mebibytes, percent, reading
from throughline.records import ConvergenceVerdict, Curve, Equivalence, Largest, read_curve, read_verdict
from throughline.report.analysis.cells import Group, Note
from throughline.report.render import plots as draws
from throughline.report.render.plots import LIGHT, Theme, save
from throughline.report.render.tables import Table
from throughline.report.topic import Drawing, Scope, Topic

FLOOR = 1e-9  # smaller differences are drawn here: a logarithm has no zero
LOSS = "loss"
SHARE = "accuracy"  # figures whose names end so are shares between 0 and 1
SMOOTHED = 100  # training losses are averaged so that about so many points are drawn


def proofs(group: Group) -> list[Note]:
    """Return what the proofs of equal mathematics cover, if they say so. Equal texts are one note."""
    covered: dict[str, list[str]] = {}
    for name, proof in (group.summary.mathematics or {} if group.summary else {}).items():
        if proof.covers:
            found = "is proven" if proof.verdict == "equal" else f"was tried ({proof.verdict})"
            covered.setdefault(f"equal mathematics {found} for: {'; '.join(proof.covers)}", []).append(name)
    return [Note(", ".join(names), text, "proof") for text, names in covered.items()]


def write_equivalence(proof: Equivalence, path: Path) -> None:
    """Plot relative differences over steps beside `path` (.svg, .png): a colour per framework, a dash per topology."""
    heading = f"{proof.benchmark}: loss against a float64 reference"
    figure, axes = draws.blank(LIGHT, heading, "relative difference")
    axes.set_xlabel("step", color=LIGHT.muted, fontsize=9)
    axes.set_yscale("log")
    for index, (framework, topologies) in enumerate(proof.frameworks.items()):
        for dash, (topology, one) in zip(("-", "--", ":"), topologies.items(), strict=False):
            steps, values = range(1, len(one.difference) + 1), [max(FLOOR, value) for value in one.difference]
            label = f"{framework} {topology}: {one.verdict}"
            look: dict[str, Any] = {
                "color": LIGHT.colour(index),
                "marker": LIGHT.marker(index),
                "ms": 4,
                "markevery": 0.1,
            }
            axes.plot(steps, values, dash, lw=max(1.2, 3.2 - index), label=label, **look)
    axes.axhline(proof.tolerance, color=LIGHT.muted, lw=1.0, ls=":", label=f"tolerance {proof.tolerance:.0e}")
    figure.set_size_inches(LIGHT.size[0], LIGHT.size[1] * 1.25)
    axes.set_position((0.13, 0.36, 0.83, 0.52))
    legend: dict[str, Any] = {"fontsize": 7.5, "frameon": False, "labelcolor": LIGHT.ink}
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, **legend)
    save(figure, path.with_suffix(""))


def largest(scope: Scope) -> Table:
    """Return a row per precision and framework; unknown values are n/a."""
    header = [
        "framework",
        "precision",
        "topology",
        "limit",
        "largest batch per device, or size",
        "refused",
        "peak memory, MiB",
    ]
    rows = []
    for search in scope.largest:
        for framework, found in search.frameworks.items():
            limit = f"{search.memory_limit_mb:,} MiB per worker" if search.memory_limit_mb else "none"
            if found.device and found.device.kind != "cpu":
                limit = found.device.name
            refused = f"{found.smallest_out_of_memory:,}" if found.smallest_out_of_memory else "n/a"
            peak = mebibytes(found.peak_memory_bytes) or "n/a"
            tries = (f"{t.size or t.batch_per_device:,} {'fits' if t.status == 'fits' else 'OOM'}" for t in found.tries)
            cell = [framework, search.precision, search.topology, limit, _answer(found, search.quantity)]
            rows.append([*cell, refused, peak, ", ".join(tries)])
    return [*header, "tries"], rows


def _answer(found: Largest, quantity: str) -> str:
    """Return the largest batch or size, or why there is none."""
    if found.largest_batch_per_device is None:
        return f"{'n/a' if found.status == 'unsupported' else 'OOM'}: {found.reason}"
    named = f"{found.largest_size:,} {quantity}, batch " if found.largest_size else ""
    return f"{named}{found.largest_batch_per_device:,}" + (" or more" if found.smallest_out_of_memory is None else "")


@dataclass(frozen=True)
class Check:
    """A verdict on convergence, and its curve if the file is still there."""

    verdict: ConvergenceVerdict
    curve: Curve | None


def read(path: Path) -> Check:
    """Read the check whose verdict is at `path`; UserError if a file is not what it should be."""
    curve = path.with_suffix("") / "curve.json"
    return Check(read_verdict(path), read_curve(curve) if curve.is_file() else None)


def convergence(scope: Scope) -> Table:
    """Return a header and a row per check of one benchmark; unknown values are n/a."""
    figures = list(workloads.of(scope.checks[0].verdict.spec.model).held_out) if scope.checks else []
    rows = []
    for check in scope.checks:
        one = check.verdict
        spec, known = one.spec, one.last.figures if one.last else {}
        against = f" (against {one.against}, tolerance {one.tolerance:g})" if one.against else ""
        precision, step = (
            f"{spec.precision}, batch {spec.batch}",
            f"{one.last.step:,}" if one.last else "n/a",
        )
        texts = [_text(name, known.get(name)) for name in figures]
        why = one.reason + against + _begun(check.curve)
        rows.append([spec.framework, spec.topology, precision, one.verdict, step, *texts, why])
    return ["framework", "topology", "precision", "verdict", "steps", *map(_label, figures), "why"], rows


def _begun(curve: Curve | None) -> str:
    """Say which weights a check began with; empty if they were random."""
    if curve is None or curve.begun_from is None:
        return ""
    check, step, _ = curve.begun_from.split(", ")
    return f". It began with the weights of {check} after {step}"


def _label(name: str) -> str:
    """Return the name of a figure of held-out data in words: `held-out loss`, `mlm accuracy`."""
    return "held-out loss" if name == LOSS else name.replace("_", " ")


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "n/a"
    return percent(value, 1) if name.endswith(SHARE) else f"{value:.4f}"


def curves(scope: Scope) -> Iterator[Drawing]:
    """Draw the curve of every check that still has one, with its two ends in words."""
    for index, check in enumerate(scope.checks):
        if check.curve:
            looks = check.curve.curve
            ends = [looks[0], looks[-1]] if looks else []
            words = [f"held-out loss {reading(look.figures.get(LOSS))} after {look.step:,} steps" for look in ends]
            heading = f"{scope.benchmark}: convergence"
            yield Drawing(f"convergence-{index}", heading, partial(draw, check), "; ".join(words), in_files=False)


def write_convergence(verdict: ConvergenceVerdict, curve: Curve, path: Path) -> None:
    """Write the plot beside `path`, as .svg and .png."""
    save(draw(Check(verdict, curve), LIGHT), path.with_suffix(""))


def draw(check: Check, theme: Theme) -> Figure:
    """Draw the averaged training loss and the held-out loss over steps, with stated curves; other figures below."""
    spec, curve = check.verdict.spec, check.curve
    heading = f"{spec.benchmark}: {spec.framework} {spec.topology}, {spec.precision}: {check.verdict.verdict}"
    figure, axes = draws.blank(theme, heading, LOSS)
    names = list(workloads.of(spec.model).held_out)
    every = [axes]
    if len(names) > 1:
        figure.set_size_inches(theme.size[0], theme.size[1] * 1.6)
        axes.set_position((0.13, 0.50, 0.83, 0.38))
        every.append(figure.add_axes((0.13, 0.10, 0.83, 0.32), sharex=axes))
        shares = all(name.endswith(SHARE) for name in names if name != LOSS)
        draws.style(every[1], theme, "", "share of right answers" if shares else "")
        if shares:
            every[1].set_ylim(0, 1.02)
    axes.set_xlabel("")
    every[-1].set_xlabel("step", color=theme.muted, fontsize=9)
    if curve:
        axes.plot(*smoothed(curve.loss), "-", color=theme.muted, lw=1.0, label="training", zorder=1)
    for index, name in enumerate(names):
        _line(axes if name == LOSS else every[-1], check, name, theme.colour(index), theme.marker(index))
    for where in every:
        where.legend(fontsize=7.5, frameon=False, labelcolor=theme.ink, loc="best")
    return figure


def _line(axes: Axes, check: Check, name: str, colour: str, marker: str) -> None:
    """Draw one figure of held-out data over steps, and its stated curve."""
    looks, stated = check.curve.curve if check.curve else [], check.verdict.stated
    points = [(look.step, value) for look in looks if (value := look.figures.get(name)) is not None]
    axes.plot(*_columns(points), "-", marker=marker, color=colour, lw=1.6, ms=3.5, label=_label(name), zorder=3)
    if name in stated:
        axes.plot(*_columns(stated[name]), ":", color=colour, lw=1.6, label=f"{_label(name)}, stated", zorder=2)


def smoothed(losses: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """Return (steps, means) of the losses in about SMOOTHED equal stretches, without stretches with an unknown loss."""
    width = max(1, len(losses) // SMOOTHED)
    parts = [(start, losses[start : start + width]) for start in range(0, len(losses), width)]
    known = [(start, [loss for loss in part if loss is not None]) for start, part in parts if None not in part]
    return [start + (len(part) + 1) / 2 for start, part in known], [sum(part) / len(part) for _, part in known]


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [step for step, _ in points], [value for _, value in points]


EQUIVALENCE = Topic("equivalence", "Equal mathematics", order=50, notes=lambda scope, group: proofs(group))
FOUND = (
    "The search doubles the batch until it does not fit, and then halves the interval. Each try is a run of a few "
    "steps in new processes. These runs say nothing about speed."
)
LARGEST = Topic("largest", "Largest batch", FOUND, order=210, table=largest)
LONG = "A separate long run is tested with data that it does not train on. This run says nothing about speed."
CONVERGENCE = Topic("convergence", "Convergence", LONG, order=220, table=convergence, drawings=curves)

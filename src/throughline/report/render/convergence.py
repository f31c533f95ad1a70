"""Convergence checks in the report: their verdicts as rows, the curve of each as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from throughline.records import ConvergenceVerdict, Curve, read_curve, read_verdict
from throughline.report.render import plots
from throughline.report.render.markup import percent, reading

HEADER = [
    *("framework", "topology", "precision", "verdict", "steps"),
    *("held-out loss", "masked tokens", "next sentence", "why"),
]
SMOOTHED = 100
"""Training losses are averaged so that about so many points are drawn."""


@dataclass(frozen=True)
class Check:
    """A verdict, and the curve that it is about where that still lies beside it."""

    verdict: ConvergenceVerdict
    curve: Curve | None


def read(path: Path) -> Check:
    """The check whose verdict lies at `path`; UserError where a file is not what it should be."""
    curve = path.with_suffix("") / "curve.json"
    return Check(read_verdict(path), read_curve(curve) if curve.is_file() else None)


def rows(found: Iterable[ConvergenceVerdict]) -> list[list[str]]:
    """A row per check, in the words of HEADER; what is not known is n/a."""
    return [
        [
            one.spec.framework,
            one.spec.topology,
            f"{one.spec.precision}, batch {one.spec.batch_per_device}",
            one.verdict,
            f"{one.last.step:,}" if one.last else "n/a",
            f"{one.last.loss:.4f}" if one.last and one.last.loss is not None else "n/a",
            (percent(one.last.mlm_accuracy, 1) if one.last else "") or "n/a",
            (percent(one.last.nsp_accuracy, 1) if one.last else "") or "n/a",
            one.reason + (f" (against {one.against}, tolerance {one.tolerance:g})" if one.against else ""),
        ]
        for one in found
    ]


def write(verdict: ConvergenceVerdict, curve: Curve, path: Path) -> None:
    """Write the plot beside `path`, as .svg and .png."""
    plots.save(draw(Check(verdict, curve), plots.LIGHT), path.with_suffix(""))


def draw(check: Check, theme: plots.Theme) -> Figure:
    """Training loss (averaged) and held-out loss over steps, with what is stated; the accuracies below."""
    spec, curve, stated = check.verdict.spec, check.curve, check.verdict.stated
    heading = f"{spec.benchmark}: {spec.framework} {spec.topology}, {spec.precision}: {check.verdict.verdict}"
    figure, axes = plots.blank(theme, heading, "loss")
    figure.set_size_inches(theme.size[0], theme.size[1] * 1.6)
    axes.set_position((0.13, 0.50, 0.83, 0.38))
    axes.set_xlabel("")
    below = figure.add_axes((0.13, 0.10, 0.83, 0.32), sharex=axes)
    plots.style(below, theme, "", "share of right answers")
    below.set_xlabel("step", color=theme.muted, fontsize=9)
    if curve:
        axes.plot(*smoothed(curve.loss), "-", color=theme.muted, lw=1.0, label="training", zorder=1)
    for name, (where, label, colour) in {
        "loss": (axes, "held-out", theme.colour(0)),
        "mlm_accuracy": (below, "masked tokens", theme.colour(1)),
        "nsp_accuracy": (below, "next sentence", theme.colour(2)),
    }.items():
        looks = curve.curve if curve else []
        points = [(look.step, value) for look in looks if (value := getattr(look, name)) is not None]
        where.plot(*_columns(points), "-o", color=colour, lw=1.6, ms=3.5, label=label, zorder=3)
        if name in stated:
            where.plot(*_columns(stated[name]), ":", color=colour, lw=1.6, label=f"{label}, stated", zorder=2)
    below.set_ylim(0, 1.02)
    for where in (axes, below):
        where.legend(fontsize=7.5, frameon=False, labelcolor=theme.ink, loc="best")
    return figure


def describe(check: Check) -> str:
    """The plot's ends in words."""
    looks = check.curve.curve if check.curve else []
    ends = [looks[0], looks[-1]] if looks else []
    return "; ".join(f"held-out loss {reading(look.loss)} after {look.step:,} steps" for look in ends)


def smoothed(losses: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """(steps, means) of the losses in about SMOOTHED equal stretches; one that is not finite is left out."""
    width = max(1, len(losses) // SMOOTHED)
    parts = [(start, losses[start : start + width]) for start in range(0, len(losses), width)]
    known = [(start, [loss for loss in part if loss is not None]) for start, part in parts if None not in part]
    return [start + (len(part) + 1) / 2 for start, part in known], [sum(part) / len(part) for _, part in known]


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [step for step, _ in points], [value for _, value in points]

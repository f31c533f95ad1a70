"""Show the checks of convergence: a verdict for each, and the curve of its losses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot

from throughline import workloads
from throughline.numbers import percent
from throughline.records import ConvergenceVerdict, Curve, read_curve, read_verdict
from throughline.report.render import plots as draws
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Drawing, Scope, Topic

LOSS = "loss"
SHARE = "accuracy"  # figures whose names end so are shares between 0 and 1
SMOOTHED = 100  # training losses are averaged so that about so many points are drawn


@dataclass(frozen=True)
class Check:
    """A verdict on convergence, and its curve if the file is still there."""

    verdict: ConvergenceVerdict
    curve: Curve | None


def read(path: Path) -> Check:
    """Read the check whose verdict is at `path`; UserError if a file is not what it should be."""
    curve = path.with_suffix("") / "curve.json"
    return Check(read_verdict(path), read_curve(curve) if curve.is_file() else None)


def table(scope: Scope) -> Table | None:
    """Return a line for each check of one benchmark."""
    return texts([_row(check) for check in scope.checks])


def _row(check: Check) -> dict[str, str | None]:
    verdict, spec, curve = check.verdict, check.verdict.spec, check.curve
    last = verdict.last.figures if verdict.last else {}
    why = verdict.reason
    if verdict.against:
        why += f" (against {verdict.against}, tolerance {verdict.tolerance:g})"
    if curve and curve.begun_from:
        weights, step, _ = curve.begun_from.split(", ")
        why += f". It began with the weights of {weights} after {step}"
    return {
        "framework": spec.framework,
        "topology": str(spec.topology),
        "precision": f"{spec.precision}, batch {spec.batch}",
        "verdict": verdict.verdict,
        "steps": f"{verdict.last.step:,}" if verdict.last else None,
        **{_label(name): _text(name, last.get(name)) for name in workloads.of(spec.model).held_out},
        "why": why,
    }


def _label(name: str) -> str:
    """Return the name of a figure of held-out data in words: `held-out loss`, `mlm accuracy`."""
    return "held-out loss" if name == LOSS else name.replace("_", " ")


def _text(name: str, value: float | None) -> str | None:
    return value if value is None else percent(value, 1) if name.endswith(SHARE) else f"{value:.4f}"


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Draw the curve of every check that still has one."""
    for index, check in enumerate(scope.checks):
        if check.curve:
            heading = f"{scope.benchmark}: convergence"
            yield Drawing(f"convergence-{index}", heading, partial(draw, check), in_files=False)


def write_plot(verdict: ConvergenceVerdict, curve: Curve, path: Path) -> None:
    """Write the plot beside `path`, as .svg and .png."""
    draws.save(draw(Check(verdict, curve), draws.LIGHT), path.with_suffix(""))


def draw(check: Check, theme: draws.Theme) -> Plot:
    """Draw the averaged training loss and the held-out loss over steps, with stated drawings; other figures below."""
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


INTRO = "A separate long run is tested with data that it does not train on. This run says nothing about speed."
TOPIC = Topic("convergence", "Convergence", INTRO, order=220, table=table, drawings=drawings)

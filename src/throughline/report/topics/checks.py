"""Show the checks: what computes the same, whether long trainings converge, and the largest batches that fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot

from throughline import workloads
from throughline.numbers import mebibytes, percent
from throughline.records import ConvergenceVerdict, Curve, Equivalence, Largest, MaxBatch, read_curve, read_verdict
from throughline.records.checks import EquivalenceVerdict, WorstUpdate
from throughline.report.analysis.advice import Note
from throughline.report.analysis.cells import Group
from throughline.report.render import plots as draws
from throughline.report.render.plots import LIGHT, save
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Drawing, Scope, Topic

FLOOR = 1e-9  # smaller differences are drawn here: a logarithm has no zero


def coverage(group: Group) -> list[Note]:
    """Return what the numerical equivalence checks cover, if they say so. Equal texts are one note."""
    covered: dict[str, list[str]] = {}
    for name, check in (group.summary.equivalence or {}).items():
        if check.verdict == "unsupported":
            text = f"numerical equivalence is not checked ({check.reason})"
        else:
            outcome = "is shown" if check.verdict == "equal" else f"was tried ({check.verdict})"
            text = f"numerical equivalence {outcome} for: {'; '.join(check.covers)}"
        if check.covers:
            covered.setdefault(text, []).append(name)
    return [Note(", ".join(names), text, "equivalence") for text, names in covered.items()]


def write_equivalence(check: Equivalence, path: Path) -> None:
    """Plot relative differences of losses beside `path` (.svg, .png): a colour per framework, a dash per topology."""
    figure, axes = draws.blank(LIGHT, f"{check.benchmark}: loss against a float64 reference", "relative difference")
    axes.set_xlabel("step", color=LIGHT.muted, fontsize=9)
    axes.set_yscale("log")
    for index, (framework, topologies) in enumerate(check.frameworks.items()):
        for dash, (topology, losses) in zip(("-", "--", ":"), topologies.items(), strict=False):
            steps, values = range(1, len(losses.difference) + 1), [max(FLOOR, value) for value in losses.difference]
            look: dict[str, Any] = {"color": LIGHT.colour(index), "marker": LIGHT.marker(index), "markevery": 0.1}
            label = f"{framework} {topology}: {losses.verdict}"
            axes.plot(steps, values, dash, lw=max(1.2, 3.2 - index), label=label, ms=4, **look)
    axes.axhline(check.tolerance, color=LIGHT.muted, lw=1.0, ls=":", label=f"tolerance {check.tolerance:.0e}")
    figure.set_size_inches(LIGHT.size[0], LIGHT.size[1] * 1.25)
    axes.set_position((0.13, 0.36, 0.83, 0.52))
    key: dict[str, Any] = {"fontsize": 7.5, "frameon": False, "labelcolor": LIGHT.ink, "ncols": 2}
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), **key)
    save(figure, path.with_suffix(""))


def equivalence(scope: Scope) -> Table | None:
    """Return a line for each framework and precision with an equivalence check that says something about updates."""
    found = {
        (framework, group.precision): (check, check.updates)
        for group in scope.groups
        if "__" not in group.name
        for framework, check in (group.summary.equivalence or {}).items()
        if check.updates
    }
    shown = texts([_of_equivalence(*place, *check) for place, check in found.items()])
    covers = dict.fromkeys(f"{note.where}: {note.text}" for group in scope.groups for note in coverage(group))
    return shown and replace(shown, notes=[*covers])


def _of_equivalence(
    framework: str, precision: str, check: EquivalenceVerdict, updates: WorstUpdate
) -> dict[str, str | None]:
    def short(number: float | None) -> str | None:
        return None if number is None else f"{number:.1e}"

    compared = f"{updates.compared}" + (f", {updates.left_out} left out" if updates.left_out else "")
    silent = updates.verdict == "not compared"
    return {
        "framework": framework,
        "precision": precision,
        "verdict": check.verdict,
        "largest difference of a loss": short(check.largest_difference),
        "tensors whose updates are compared": f"not compared: {updates.reason}" if silent else compared,
        "furthest off": None if silent else updates.worst,
        "its difference": None if silent else short(updates.difference),
        "tolerated": None if silent else short(updates.tolerance),
    }


EQUIVALENT = (
    "Every framework starts from the same weights and trains on the same batches. Its losses, and what it adds to each "
    "tensor, are compared with a reference in double precision. A row has the tensor that is furthest off for what is "
    "tolerated. equivalence.json has all tensors, and why some are left out."
)
EQUIVALENCE = Topic(
    "equivalence", "Numerical equivalence", EQUIVALENT, order=50, table=equivalence,
    notes=lambda scope, group: [] if equivalence(scope) else coverage(group),
)  # fmt: skip


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


def convergence(scope: Scope) -> Table | None:
    """Return a line for each check of one benchmark."""
    return texts([_of_check(check) for check in scope.checks])


def _of_check(check: Check) -> dict[str, str | None]:
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


def write_convergence(verdict: ConvergenceVerdict, curve: Curve, path: Path) -> None:
    """Write the plot beside `path`, as .svg and .png."""
    save(draw(Check(verdict, curve), LIGHT), path.with_suffix(""))


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


CONVERGES = "A separate long run is tested with data that it does not train on. This run says nothing about speed."
CONVERGENCE = Topic("convergence", "Convergence", CONVERGES, order=220, table=convergence, drawings=drawings)


def largest(scope: Scope) -> Table | None:
    """Return a line for each precision and framework."""
    return texts([
        {
            "framework": framework,
            "precision": search.precision,
            "topology": search.topology,
            "limit": _limit(search, largest),
            "largest batch per device, or size": _answer(largest, search.quantity),
            "refused": f"{largest.smallest_out_of_memory:,}" if largest.smallest_out_of_memory else None,
            "peak memory, MiB": mebibytes(largest.peak_memory_bytes),
            "tries": ", ".join(
                f"{each.size or each.batch:,} {'fits' if each.status == 'fits' else 'OOM'}" for each in largest.tries
            ),
        }
        for search in scope.largest
        for framework, largest in search.frameworks.items()
    ])  # fmt: skip


def _limit(search: MaxBatch, largest: Largest) -> str:
    if largest.device and largest.device.kind != "cpu":
        return largest.device.name
    return f"{search.memory_limit_mb:,} MiB per worker" if search.memory_limit_mb else "none"


def _answer(largest: Largest, quantity: str) -> str:
    """Return the largest batch or size, or why there is none."""
    if largest.largest_batch_per_device is None:
        return f"{'n/a' if largest.status == 'unsupported' else 'OOM'}: {largest.reason}"
    named = f"{largest.largest_size:,} {quantity}, batch " if largest.largest_size else ""
    more = " or more" if largest.smallest_out_of_memory is None else ""
    return f"{named}{largest.largest_batch_per_device:,}{more}"


SEARCH = (
    "The search doubles the batch until it does not fit, and then halves the interval. Each try is a run of a few "
    "steps in new processes. These runs say nothing about speed. The largest batch need not be the best: large batches "
    "converge slower, and fine-tuning wants small ones (a blog on the cost of training transformers; McCandlish et al. "
    "2018 measure from which batch on)."
)
LARGEST = Topic("largest", "Largest batch", SEARCH, order=210, table=largest)

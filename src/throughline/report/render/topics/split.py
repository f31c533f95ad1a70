"""Where a step's time goes: its parts as a stacked bar, as a CSV, and how sure each part is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from throughline import statistics
from throughline.report.analysis.cells import Group, Note
from throughline.report.analysis.split import Part, Split, milliseconds, split
from throughline.report.numbers import percent
from throughline.report.render import axes as draws
from throughline.report.render import markup
from throughline.report.render.theme import Theme
from throughline.report.render.topics.throughput import settings
from throughline.report.topics import ABOUT, Drawing, Finding, Scope, Topic

LABELLED = 0.07
"""Share of the largest step from which on a part's share is written into its bar."""


def frame(scope: Scope) -> pd.DataFrame | None:
    """One row per split, unrounded seconds; None where no derived runs tell."""
    rows = [
        {
            "benchmark": markup.spreadsheet(group.benchmark),
            "precision": group.precision,
            "batch_size_per_device": group.batch,
            "framework": markup.spreadsheet(one.row.framework),
            "topology": str(one.row.topology),
            "devices": one.row.topology.world,
            "step_s": one.step_s,
            "compute_s": one.rest_s if one.communication and one.input else None,
            **_columns("communication", one.communication),
            **_columns("input", one.input),
            "notes": markup.spreadsheet("; ".join(one.notes)),
        }
        for group in scope.groups
        for one in split(group, scope.everything)
    ]
    return pd.DataFrame(rows) if rows else None


def _columns(name: str, part: Part | None) -> dict[str, float | int | None]:
    return {
        f"{name}_s": part.shown_s if part else None,
        f"{name}_difference_s": part.median_s if part else None,
        f"{name}_difference_min_s": part.low_s if part else None,
        f"{name}_difference_max_s": part.high_s if part else None,
        f"{name}_pairs": part.n if part else None,
    }


def drawings(scope: Scope) -> Iterator[Drawing]:
    """A figure for every group whose derived runs tell something."""
    for group in scope.groups:
        if parts := split(group, scope.everything):
            heading = f"{group.benchmark}: where a step's time goes"
            yield Drawing(f"{group.name}_split", heading, partial(draw, group, parts), describe(parts), group)


def draw(group: Group, found: Sequence[Split], theme: Theme) -> Figure:
    """A stacked bar per framework and topology, in ms per step."""
    figure, axes = draws.blank(theme, f"{group.benchmark}: a step's time, {settings(group)}", "ms per step")
    axes.set_xlabel("")
    top = 1000 * max(one.step_s for one in found)
    named: set[str] = set()
    for place, one in enumerate(found):
        parts = [(one.rest, one.rest_s, 0)]
        parts += [("communication", one.communication.shown_s, 1)] if one.communication else []
        parts += [("input", one.input.shown_s, 2)] if one.input else []
        height = 0.0
        for name, seconds, colour in parts:
            axes.bar(
                place, 1000 * seconds, 0.55, bottom=height, color=theme.colour(colour), lw=0,
                label=name if name not in named else None,
            )  # fmt: skip
            named.add(name)
            if 1000 * seconds >= LABELLED * top:
                axes.annotate(
                    percent(seconds / one.step_s), (place, height + 500 * seconds), ha="center", va="center",
                    fontsize=8.5, color=theme.surface, fontweight="bold",
                )  # fmt: skip
            height += 1000 * seconds
    axes.set_xticks(range(len(found)), [f"{one.row.topology}\n{one.row.shown}" for one in found])
    axes.set_xlim(-0.6, len(found) - 0.4)
    axes.set_ylim(0, 1.08 * top)
    axes.legend(
        fontsize=8, frameon=False, labelcolor=theme.ink, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3,
        handlelength=1.0, borderpad=0.2, columnspacing=1.4,
    )  # fmt: skip
    return figure


def describe(found: Sequence[Split]) -> str:
    """The plot's figures in words."""
    sentences = []
    for one in found:
        parts = {one.rest: one.rest_s}
        parts |= {"communication": one.communication.shown_s} if one.communication else {}
        parts |= {"input": one.input.shown_s} if one.input else {}
        shares = ", ".join(f"{name} {percent(seconds / one.step_s, 1)}" for name, seconds in parts.items())
        sentences.append(f"{one.name}: {milliseconds(one.step_s)} ms a step; {shares}.")
    return " ".join(sentences)


def notes(scope: Scope, group: Group) -> list[Note]:
    """How sure the parts are."""
    return [Note(one.name, text, "split") for one in split(group, scope.everything) for text in one.notes]


def findings(scope: Scope) -> Iterator[Finding]:
    """What a derived benchmark (`<name>__aa`, `<name>__synthetic`) says about the one it is derived from."""
    name, _, extra = scope.benchmark.partition("__")
    if extra not in SAYS:
        return
    there = {
        (group.name, row.framework, row.topology): row.cell.median_speed
        for group in scope.everything if group.benchmark == name
        for row in group.rows if row.cell and row.cell.median_speed
    }  # fmt: skip
    ratios = [
        row.cell.median_speed / there[key]
        for group in scope.groups for row in group.rows
        if row.cell and row.cell.median_speed and (key := (group.name, row.framework, row.topology)) in there
    ]  # fmt: skip
    if ratios:
        yield Finding(SAYS[extra](name, ratios), ABOUT)


def _again(name: str, ratios: Sequence[float]) -> str:
    widest = max(abs(ratio - 1) for ratio in ratios)
    return (
        f"The same configurations as {name} once more: their medians differ by up to {percent(widest, 1)} "
        f"({len(ratios)} compared). Differences below that are noise here."
    )


def _synthetic(name: str, ratios: Sequence[float]) -> str:
    middle = statistics.median(ratios) or 1.0
    return (
        f"The configurations of {name} with batches that are made up instead of read: {middle:.3f} times its "
        f"throughput (median of {len(ratios)}). What is above 1 is the price of reading the data."
    )


def _alone(name: str, ratios: Sequence[float]) -> str:
    return (
        f"The configurations of {name}, but every rank keeps its gradients: it trains as many models as there are "
        f"devices, up to {max(ratios):.3f} times as fast. No speedup of a training, but the most that a faster "
        "exchange could give."
    )


SAYS = {"aa": _again, "synthetic": _synthetic, "noexchange": _alone}
TOPIC = Topic("split", "Where a step's time goes", frame=frame, drawings=drawings, notes=notes, findings=findings)

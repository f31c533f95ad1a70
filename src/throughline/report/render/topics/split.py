"""Where a step's time goes: its parts as a stacked bar, as a CSV, and how sure each part is."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from throughline import statistics
from throughline.report.analysis.cells import Group, Note
from throughline.report.analysis.comparisons import Side, differences
from throughline.report.analysis.split import Split, split
from throughline.report.numbers import milliseconds, percent
from throughline.report.render import markup, tables
from throughline.report.render import plots as draws
from throughline.report.render.head import Best, measured
from throughline.report.render.plots import Theme
from throughline.report.render.topics.throughput import settings
from throughline.report.topics import ABOUT, Drawing, Finding, Scope, Topic
from throughline.topology import Topology

LABELLED = 0.07  # share of the largest step from which on a part's share is written into its bar
LOOKS = {"communication": (1, "///"), "input": (2, "\\\\\\")}
"""Colour and hatch of a part: the hatch tells it apart without colours."""
COLUMNS = {
    "_s": "shown_s",
    "_difference_s": "median_s",
    "_difference_min_s": "low_s",
    "_difference_max_s": "high_s",
    "_pairs": "n",
}
"""Ends of the CSV's columns -> fields of a part."""


def frame(scope: Scope) -> pd.DataFrame | None:
    """One row per split, unrounded seconds; None where no derived runs tell."""
    rows = [
        {
            "benchmark": markup.spreadsheet(group.benchmark),
            "precision": group.precision,
            **tables.batch_columns(group, one.row),
            "framework": markup.spreadsheet(one.row.framework),
            "topology": str(one.row.topology),
            "devices": one.row.topology.world,
            "step_s": one.step_s,
            "compute_s": one.rest_s if one.communication and one.input else None,
            **{f"communication{column}": getattr(one.communication, name, None) for column, name in COLUMNS.items()},
            **{f"input{column}": getattr(one.input, name, None) for column, name in COLUMNS.items()},
            "notes": markup.spreadsheet("; ".join(one.notes)),
        }
        for group in scope.groups
        for one in split(group, scope.everything)
    ]
    return pd.DataFrame(rows) if rows else None


def shown(one: Split) -> dict[str, float]:
    """The parts of a step in seconds, by their names; those that are not known belong to the first."""
    known = {"communication": one.communication, "input": one.input}
    return {one.rest: one.rest_s, **{name: part.shown_s for name, part in known.items() if part}}


def drawings(scope: Scope) -> Iterator[Drawing]:
    """A figure for every group whose derived runs tell something."""
    for group in scope.groups:
        if parts := [one for one in split(group, scope.everything) if one.parts]:
            heading, words = f"{group.benchmark}: where a step's time goes", " ".join(map(_words, parts))
            yield Drawing(f"{group.name}_split", heading, partial(draw, group, parts), words, group)


def draw(group: Group, splits: Sequence[Split], theme: Theme) -> Figure:
    """A stacked bar per framework and topology, in ms per step."""
    figure, axes = draws.blank(theme, f"{group.benchmark}: a step's time, {settings(group)}", "ms per step")
    axes.set_xlabel("")
    top = 1000 * max(one.step_s for one in splits)
    named: set[str] = set()
    for place, one in enumerate(splits):
        height = 0.0
        for name, seconds in shown(one).items():
            index, hatch = LOOKS.get(name, (0, ""))
            colour, label = theme.colour(index), None if name in named else name
            paint: dict[str, Any] = {"facecolor": colour, "edgecolor": theme.surface, "hatch": hatch, "lw": 0}
            axes.bar(place, 1000 * seconds, 0.55, bottom=height, label=label, **paint)
            named.add(name)
            if 1000 * seconds >= LABELLED * top:
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5, "fontweight": "bold"}
                middle = (place, height + 500 * seconds)
                box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
                axes.annotate(percent(seconds / one.step_s), middle, color=theme.surface, bbox=box, **look)
            height += 1000 * seconds
    axes.set_xticks(range(len(splits)), [f"{one.row.topology}\n{one.row.shown}" for one in splits])
    axes.set_xlim(-0.6, len(splits) - 0.4)
    axes.set_ylim(0, 1.08 * top)
    legend: dict[str, Any] = {"handlelength": 1.0, "borderpad": 0.2, "columnspacing": 1.4, "ncols": 3}
    legend |= {"fontsize": 8, "frameon": False, "labelcolor": theme.ink}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **legend)
    return figure


def _words(one: Split) -> str:
    shares = ", ".join(f"{name} {percent(seconds / one.step_s, 1)}" for name, seconds in shown(one).items())
    return f"{one.name}: {milliseconds(one.step_s)} ms a step; {shares}."


def notes(scope: Scope, group: Group) -> list[Note]:
    """How sure the parts are."""
    return [Note(one.name, text, "split") for one in split(group, scope.everything) for text in one.notes]


def findings(scope: Scope) -> Iterator[Finding]:
    """What a derived benchmark (`<name>__aa`, `<name>__synthetic`) says about the one it is derived from."""
    name, _, extra = scope.benchmark.partition("__")
    origin = _by_cell(group for group in scope.everything if group.benchmark == name)
    twice = [(origin[key], one) for key, one in _by_cell(scope.groups).items() if key in origin]
    unlike = [differences(*(Side(one.group, one.row) for one in both)) for both in twice]
    ratios = [one.speed / base.speed for (base, one), found in zip(twice, unlike, strict=True) if not found]
    if extra and any(unlike):
        why = next(found[0] for found in unlike if found)
        yield Finding(f"{len(twice) - len(ratios)} of {len(twice)} are not compared with {name}: {why}.", ABOUT)
    if not ratios or not extra:
        return
    widest, middle = max(abs(ratio - 1) for ratio in ratios), statistics.median(ratios) or 1.0
    said = {
        "aa": f"The same configurations as {name}, measured again: the medians differ by up to {percent(widest, 1)} "
        f"({len(ratios)} compared). A difference no larger than this counts as noise here.",
        "synthetic": f"The same configurations as {name}, but with made-up batches, so nothing is read: {middle:.3f} "
        f"times its throughput (median of {len(ratios)}). Anything above 1 is the cost of reading the data.",
        "noexchange": f"The same configurations as {name}, but the ranks exchange no gradients. Each rank trains a "
        f"model of its own, up to {max(ratios):.3f} times as fast. This is no speedup of a training: it is the most "
        "that a faster exchange could give.",
    }
    if extra in said:
        yield Finding(said[extra], ABOUT)


def _by_cell(groups: Iterable[Group]) -> dict[tuple[str, str, Topology], Best]:
    return {(one.group.name, one.row.framework, one.row.topology): one for one in measured(groups)}


TOPIC = Topic("split", "Where a step's time goes", frame=frame, drawings=drawings, notes=notes, findings=findings)

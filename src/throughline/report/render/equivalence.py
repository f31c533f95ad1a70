"""The plot of equivalence.json: how far every framework's loss is from the reference, step by step."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from throughline.files import atomic
from throughline.records import Equivalence
from throughline.report.render import plots

FLOOR = 1e-9
"""Smaller differences are drawn here: a logarithm has no zero."""


def write(found: Equivalence, path: Path) -> None:
    """Write the plot to `path` as .svg and .png."""
    drawn = draw(found, plots.LIGHT)
    with atomic(path.with_suffix(".svg")) as temporary:
        temporary.write_text(plots.svg(drawn, plots.LIGHT), encoding="utf-8", newline="\n")
    with atomic(path.with_suffix(".png")) as temporary:
        drawn.savefig(temporary, format="png", dpi=160, facecolor=plots.LIGHT.surface, metadata={"Software": None})


def draw(found: Equivalence, theme: plots.Theme) -> Figure:
    """Relative difference over steps, logarithmic: a colour per framework, a dash per topology."""
    heading = f"{found.benchmark}: loss against a float64 reference"
    figure, axes = plots.blank(theme, heading, "relative difference")
    axes.set_xlabel("step", color=theme.muted, fontsize=9)
    axes.set_yscale("log")
    for index, (framework, topologies) in enumerate(found.frameworks.items()):
        for dash, (topology, one) in zip(("-", "--", ":"), topologies.items(), strict=False):
            steps = range(1, len(one.difference) + 1)
            values = [max(FLOOR, value) for value in one.difference]
            axes.plot(
                steps, values, dash, color=theme.colour(index), lw=max(1.2, 3.2 - index),
                label=f"{framework} {topology}: {one.verdict}",
            )  # fmt: skip
    axes.axhline(found.tolerance, color=theme.muted, lw=1.0, ls=":", label=f"tolerance {found.tolerance:.0e}")
    figure.set_size_inches(theme.size[0], theme.size[1] * 1.25)
    axes.set_position((0.13, 0.36, 0.83, 0.52))
    axes.legend(
        fontsize=7.5, frameon=False, labelcolor=theme.ink, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2
    )
    return figure

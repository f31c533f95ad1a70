"""Equal mathematics (equivalence.json): what its proof covers, and how far every loss is from the reference."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from throughline.records import Equivalence
from throughline.report.analysis.cells import Group, Note
from throughline.report.render import axes as draws
from throughline.report.render.theme import LIGHT, Theme, save
from throughline.report.topics import Scope, Topic

FLOOR = 1e-9
"""Smaller differences are drawn here: a logarithm has no zero."""


def write(proof: Equivalence, path: Path) -> None:
    """Write the plot beside `path`, as .svg and .png."""
    save(draw(proof, LIGHT), path.with_suffix(""))


def notes(scope: Scope, group: Group) -> list[Note]:
    """What the proof of equal mathematics covers, where it says so; alike ones once."""
    said: dict[str, list[str]] = {}
    for name, proof in (group.summary.mathematics or {} if group.summary else {}).items():
        if proof.covers:
            said.setdefault("; ".join(proof.covers), []).append(name)
    return [Note(", ".join(names), f"equal mathematics is proven for: {text}", "proof") for text, names in said.items()]


def draw(proof: Equivalence, theme: Theme) -> Figure:
    """Relative difference over steps, logarithmic: a colour per framework, a dash per topology."""
    heading = f"{proof.benchmark}: loss against a float64 reference"
    figure, axes = draws.blank(theme, heading, "relative difference")
    axes.set_xlabel("step", color=theme.muted, fontsize=9)
    axes.set_yscale("log")
    for index, (framework, topologies) in enumerate(proof.frameworks.items()):
        for dash, (topology, one) in zip(("-", "--", ":"), topologies.items(), strict=False):
            steps = range(1, len(one.difference) + 1)
            values = [max(FLOOR, value) for value in one.difference]
            axes.plot(
                steps, values, dash, color=theme.colour(index), lw=max(1.2, 3.2 - index),
                label=f"{framework} {topology}: {one.verdict}",
            )  # fmt: skip
    axes.axhline(proof.tolerance, color=theme.muted, lw=1.0, ls=":", label=f"tolerance {proof.tolerance:.0e}")
    figure.set_size_inches(theme.size[0], theme.size[1] * 1.25)
    axes.set_position((0.13, 0.36, 0.83, 0.52))
    axes.legend(
        fontsize=7.5, frameon=False, labelcolor=theme.ink, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2
    )
    return figure


TOPIC = Topic("equivalence", "Equal mathematics", notes=notes)

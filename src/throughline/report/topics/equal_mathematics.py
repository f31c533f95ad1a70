"""Show what the proofs of equal mathematics cover, and plot their losses against the reference."""

from pathlib import Path
from typing import Any

from throughline.records import Equivalence
from throughline.report.analysis.cells import Group, Note
from throughline.report.render import plots as draws
from throughline.report.render.plots import LIGHT, save
from throughline.report.topic import Topic

FLOOR = 1e-9  # smaller differences are drawn here: a logarithm has no zero


def proofs(group: Group) -> list[Note]:
    """Return what the proofs of equal mathematics cover, if they say so. Equal texts are one note."""
    covered: dict[str, list[str]] = {}
    for name, proof in (group.summary.mathematics or {} if group.summary else {}).items():
        if proof.covers:
            outcome = "is proven" if proof.verdict == "equal" else f"was tried ({proof.verdict})"
            covered.setdefault(f"equal mathematics {outcome} for: {'; '.join(proof.covers)}", []).append(name)
    return [Note(", ".join(names), text, "proof") for text, names in covered.items()]


def write_plot(proof: Equivalence, path: Path) -> None:
    """Plot relative differences over steps beside `path` (.svg, .png): a colour per framework, a dash per topology."""
    heading = f"{proof.benchmark}: loss against a float64 reference"
    figure, axes = draws.blank(LIGHT, heading, "relative difference")
    axes.set_xlabel("step", color=LIGHT.muted, fontsize=9)
    axes.set_yscale("log")
    for index, (framework, topologies) in enumerate(proof.frameworks.items()):
        for dash, (topology, losses) in zip(("-", "--", ":"), topologies.items(), strict=False):
            steps, values = range(1, len(losses.difference) + 1), [max(FLOOR, value) for value in losses.difference]
            label = f"{framework} {topology}: {losses.verdict}"
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


TOPIC = Topic("equivalence", "Equal mathematics", order=50, notes=lambda scope, group: proofs(group))

"""Show what the numerical equivalence checks cover and which updates they compare, and plot their losses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from throughline.records import Equivalence
from throughline.records.checks import EquivalenceVerdict, WorstUpdate
from throughline.report.analysis.cells import Group
from throughline.report.analysis.advice import Note
from throughline.report.render import plots as draws
from throughline.report.render.plots import LIGHT, save
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Scope, Topic

FLOOR = 1e-9  # smaller differences are drawn here: a logarithm has no zero


def proofs(group: Group) -> list[Note]:
    """Return what the numerical equivalence checks cover, if they say so. Equal texts are one note."""
    covered: dict[str, list[str]] = {}
    for name, proof in (group.summary.equivalence or {}).items():
        if proof.covers:
            outcome = "is shown" if proof.verdict == "equal" else f"was tried ({proof.verdict})"
            covered.setdefault(f"numerical equivalence {outcome} for: {'; '.join(proof.covers)}", []).append(name)
    return [Note(", ".join(names), text, "proof") for text, names in covered.items()]


def write_plot(proof: Equivalence, path: Path) -> None:
    """Plot relative differences of losses beside `path` (.svg, .png): a colour per framework, a dash per topology."""
    figure, axes = draws.blank(LIGHT, f"{proof.benchmark}: loss against a float64 reference", "relative difference")
    axes.set_xlabel("step", color=LIGHT.muted, fontsize=9)
    axes.set_yscale("log")
    for index, (framework, topologies) in enumerate(proof.frameworks.items()):
        for dash, (topology, losses) in zip(("-", "--", ":"), topologies.items(), strict=False):
            steps, values = range(1, len(losses.difference) + 1), [max(FLOOR, value) for value in losses.difference]
            look: dict[str, Any] = {"color": LIGHT.colour(index), "marker": LIGHT.marker(index), "markevery": 0.1}
            label = f"{framework} {topology}: {losses.verdict}"
            axes.plot(steps, values, dash, lw=max(1.2, 3.2 - index), label=label, ms=4, **look)
    axes.axhline(proof.tolerance, color=LIGHT.muted, lw=1.0, ls=":", label=f"tolerance {proof.tolerance:.0e}")
    figure.set_size_inches(LIGHT.size[0], LIGHT.size[1] * 1.25)
    axes.set_position((0.13, 0.36, 0.83, 0.52))
    key: dict[str, Any] = {"fontsize": 7.5, "frameon": False, "labelcolor": LIGHT.ink, "ncols": 2}
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), **key)
    save(figure, path.with_suffix(""))


def table(scope: Scope) -> Table | None:
    """Return a line for each framework and precision with an equivalence check that says something about updates."""
    found = {
        (framework, group.precision): (proof, proof.updates)
        for group in scope.groups
        if "__" not in group.name
        for framework, proof in (group.summary.equivalence or {}).items()
        if proof.updates
    }
    shown = texts([_row(*place, *proof) for place, proof in found.items()])
    covers = dict.fromkeys(f"{note.where}: {note.text}" for group in scope.groups for note in proofs(group))
    return shown and replace(shown, notes=[*covers])


def _row(framework: str, precision: str, proof: EquivalenceVerdict, updates: WorstUpdate) -> dict[str, str | None]:
    def short(number: float | None) -> str | None:
        return None if number is None else f"{number:.1e}"

    compared = f"{updates.compared}" + (f", {updates.left_out} left out" if updates.left_out else "")
    silent = updates.verdict == "not compared"
    return {
        "framework": framework,
        "precision": precision,
        "verdict": proof.verdict,
        "largest difference of a loss": short(proof.largest_difference),
        "tensors whose updates are compared": f"not compared: {updates.reason}" if silent else compared,
        "furthest off": None if silent else updates.worst,
        "its difference": None if silent else short(updates.difference),
        "tolerated": None if silent else short(updates.tolerance),
    }


INTRO = (
    "Every framework starts from the same weights and trains on the same batches. Its losses, and what it adds to each "
    "tensor, are compared with a reference in double precision. A row has the tensor that is furthest off for what is "
    "tolerated. equivalence.json has all tensors, and why some are left out."
)
TOPIC = Topic(
    "equivalence", "Numerical equivalence", INTRO, order=50, table=table,
    notes=lambda scope, group: [] if table(scope) else proofs(group),
)  # fmt: skip

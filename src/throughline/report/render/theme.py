"""Colours and sizes of plots, and figures as SVG and PNG. An SVG of the same figure has the same bytes every time."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from throughline.files import atomic


@dataclass(frozen=True)
class Theme:
    """Colours as #rrggbb: text, quieter text, grid lines, background, and one per series."""

    ink: str = "#1f2328"
    muted: str = "#6b7280"
    grid: str = "#e3e6ea"
    surface: str = "#ffffff"
    # After Okabe and Ito, darker: told apart with every common kind of colour blindness, and readable as text.
    series: tuple[str, ...] = ("#0072b2", "#c4540a", "#00805d", "#9c4a82", "#2b83b8", "#946300")
    size: tuple[float, float] = (6.4, 4.0)  # inches
    background: bool = True
    fonts: str = "path"  # text as outlines: looks the same everywhere; "none": text stays text

    def colour(self, index: int) -> str:
        return self.series[index % len(self.series)]


LIGHT = Theme()


def svg(figure: Figure, theme: Theme) -> str:
    """The figure as SVG text, without date or program name."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": theme.fonts, "svg.hashsalt": "throughline"}):
        face = theme.surface if theme.background else "none"
        figure.savefig(stream, format="svg", facecolor=face, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write `path` with .svg and with .png."""
    with atomic(path.with_name(f"{path.name}.svg")) as temporary:
        temporary.write_text(svg(figure, LIGHT), encoding="utf-8", newline="\n")
    with atomic(path.with_name(f"{path.name}.png")) as temporary:
        figure.savefig(temporary, format="png", dpi=160, facecolor=LIGHT.surface, metadata={"Software": None})

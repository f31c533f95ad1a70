"""Plots of one benchmark as files, SVG and PNG, of every topic that has them."""

from __future__ import annotations

from pathlib import Path

from throughline.report.render.theme import LIGHT, save
from throughline.report.render.topics import TOPICS
from throughline.report.topics import Scope


def write(scope: Scope, folder: Path) -> None:
    """Write every plot of one benchmark into `folder`; one without a single measured value says so."""
    for topic in TOPICS:
        for drawing in topic.drawings(scope):
            if drawing.in_files:
                save(drawing.draw(LIGHT), folder / drawing.name)

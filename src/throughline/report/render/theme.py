"""How plots look, as files and set into a page. An SVG of the same figure has the same bytes every time."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from throughline.files import atomic

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"


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
PAGE = Theme(
    *("#010101", "#010102", "#010103", "#010104", tuple(f"#01020{index}" for index in range(6)), (5.3, 3.5)),
    background=False,
    fonts="none",
)
"""Stand-ins that drawing accepts as colours; the page's variables replace them."""
VARIABLES = ("ink", "muted", "line", "surface", *(f"series-{index}" for index in range(6)))


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


def inline(drawn: Figure, identity: str, title: str, description: str) -> Markup:
    """`drawn` as an inline SVG element; `identity` makes its ids unique on the page."""
    root = ET.fromstring(svg(drawn, PAGE))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.removeprefix(SVG) in {"metadata", "style"}:
                parent.remove(child)
    used = set(re.findall(r"(?:url\(#|href=\")#?([\w-]+)", ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        attributes = dict(element.attrib)
        element.attrib.clear()
        for name, value in attributes.items():
            if name == f"{XLINK}href":
                element.set("href", f"#{identity}-{value.removeprefix('#')}")
            elif name != "id":
                element.set(name, re.sub(r"url\(#([\w-]+)\)", rf"url(#{identity}-\1)", value))
            elif value in used:
                element.set("id", f"{identity}-{value}")
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"class": "plot", "role": "img", "aria-labelledby": f"{identity}-title {identity}-desc"}
    for tag, text in (("desc", description), ("title", title)):
        child = ET.Element(tag, {"id": f"{identity}-{tag}"})
        child.text = text
        root.insert(0, child)
    text = ET.tostring(root, encoding="unicode")
    for stand_in, variable in zip(
        (PAGE.ink, PAGE.muted, PAGE.grid, PAGE.surface, *PAGE.series), VARIABLES, strict=True
    ):
        text = text.replace(stand_in, f"var(--{variable})")
    return Markup(text)

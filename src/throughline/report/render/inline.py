"""Figures set into a page: SVG that takes the page's colours and font, says what it shows, and clashes with nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from throughline.records import Cell
from throughline.report.numbers import reading
from throughline.report.render.theme import Theme, svg

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
REACH = 0.05  # a strip of repeats shows the median plus and minus this share

# Stand-ins that drawing accepts as colours; the page's variables replace them.
VARIABLES = {
    "#010101": "var(--ink)",
    "#010102": "var(--muted)",
    "#010103": "var(--line)",
    "#010104": "var(--surface)",
    **{f"#01020{index}": f"var(--series-{index})" for index in range(6)},
}
PAGE = Theme(
    ink="#010101",
    muted="#010102",
    grid="#010103",
    surface="#010104",
    series=tuple(f"#01020{index}" for index in range(6)),
    size=(5.3, 3.5),
    background=False,
    fonts="none",
)


def figure(drawn: Figure, identity: str, title: str, description: str) -> Markup:
    """`drawn` as an inline SVG element; `identity` makes its ids unique on the page."""
    root = ET.fromstring(svg(drawn, PAGE))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.split("}")[-1] in {"metadata", "style"} or not isinstance(child.tag, str):
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
    for stand_in, variable in VARIABLES.items():
        text = text.replace(stand_in, variable)
    return Markup(text)


def strip(cell: Cell, unit: str) -> Markup:
    """Every repeat as a dot on a line that reaches from 5 % below to 5 % above the median."""
    middle, dots = cell.median_speed or 1.0, []
    known = [(index, value) for index, value in enumerate(cell.values, start=1) if value is not None]
    for index, value in known:
        offset = (value / middle - 1) / REACH
        shape = "outside" if abs(offset) > 1 else "dot"
        dots.append(
            f'<circle class="{shape}" cx="{50 + 46 * max(-1.0, min(1.0, offset)):.1f}" cy="8" r="2.6">'
            f"<title>repeat {index}: {reading(value)} {escape(unit)}</title></circle>"
        )
    values = ", ".join(reading(value) for _, value in known)
    return Markup(
        f'<svg class="strip" viewBox="0 0 100 16" role="img" aria-label="repeats: {values} {escape(unit)}">'
        f'<path d="M4 8H96M50 3V13"/>{"".join(dots)}</svg>'
    )

"""Text made inert for Markdown, LaTeX and spreadsheets, and numbers rounded for reading."""

from __future__ import annotations

import re

# An underscore inside a word, a colon in a sentence and a lone & mean nothing in Markdown.
_MARKDOWN = re.compile(r"[\\`*\[\]<>#|~!$]|(?<!\w)_|_(?!\w)|:(?=//)|&(?=#|\w+;)|(?<=www)\.")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''",
}  # fmt: skip
MIB = 2**20


def one_line(text: str) -> str:
    """`text` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def markdown(text: str) -> str:
    """`text` as it is, in Markdown: no markup, no table cell borders, no HTML, no links."""
    return _MARKDOWN.sub(lambda match: "\\" + match[0], one_line(text))


def latex(text: str) -> str:
    """`text` as it is, in LaTeX."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def spreadsheet(text: str) -> str:
    """`text` that no spreadsheet takes for a formula: a leading = + - @ gets an apostrophe."""
    line = one_line(text)
    return f"'{line}" if line[:1] in {"=", "+", "-", "@"} else line


def speed(value: float | None, places: int = 2) -> str:
    """Samples per second for tables: two places, as DLPerf prints them."""
    return "" if value is None else f"{value:.{places}f}"


def reading(value: float | None) -> str:
    """Four significant digits and commas between thousands, for people."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}".rstrip(".")


def percent(share: float | None, places: int = 0) -> str:
    return "" if share is None else f"{100 * share:.{places}f} %"


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / MIB:.0f}"


def scaled(value: float | None) -> str:
    """Three significant digits and the SI prefix: 10.9 T."""
    if value is None:
        return ""
    size, prefix = next(
        ((10.0**e, p) for e, p in ((15, "P"), (12, "T"), (9, "G"), (6, "M")) if value >= 10**e), (1.0, "")
    )
    return f"{value / size:#.3g}".rstrip(".") + (f" {prefix}" if prefix else "")

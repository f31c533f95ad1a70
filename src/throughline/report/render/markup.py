"""Text made inert for Markdown, LaTeX and spreadsheets."""

import re

# An underscore inside a word, a colon in a sentence and a lone & mean nothing in Markdown.
_MARKDOWN = re.compile(r"[\\`*\[\]<>#|~!$]|(?<!\w)_|_(?!\w)|:(?=//)|&(?=#|\w+;)|(?<=www)\.")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''",
}  # fmt: skip


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

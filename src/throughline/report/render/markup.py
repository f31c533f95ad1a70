"""Text made inert for Markdown, LaTeX and spreadsheets."""

import re

# Not escaped, because they mean nothing in Markdown: an underscore in a word, a colon in a sentence, a lone &.
_MARKDOWN = re.compile(r"[\\`*\[\]<>#|~!$]|(?<!\w)_|_(?!\w)|:(?=//)|&(?=#|\w+;)|(?<=www)\.")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''",
}  # fmt: skip


def one_line(text: str) -> str:
    """Return `text` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def markdown(text: str) -> str:
    """Return Markdown that shows `text` as it is: nothing in it becomes markup, a table border, HTML or a link."""
    return _MARKDOWN.sub(lambda match: "\\" + match[0], one_line(text))


def latex(text: str) -> str:
    """Return LaTeX that shows `text` as it is."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def spreadsheet(text: str) -> str:
    """Return `text` such that no spreadsheet takes it for a formula: before a leading = + - @ comes an apostrophe."""
    line = one_line(text)
    return f"'{line}" if line[:1] in {"=", "+", "-", "@"} else line

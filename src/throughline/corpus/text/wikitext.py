"""Turn wikitext into plain text with one line per paragraph, heading or list item. This extractor is pure Python.

It makes these passes, each of which reads the text once:
1. Elements whose content is no prose are removed. The content of <nowiki> is hidden from all later passes.
2. Templates and tables are removed.
3. Links are replaced by their text. Marks of style and tags are removed.
4. The places where something was removed are closed up: `(born {{date}})` does not become `(born )`.
5. Headings become sentences, and list items become lines.
6. Entities become characters.

Damaged markup never raises an error. An unclosed `{{`, `{|` or `[[` of a file or category removes the rest of its line.
Any other unclosed mark removes only itself. A line that begins with `|` is left over from a table or template and is
removed. Every pass takes time in proportion to the text: no pattern can start a long, vain search at many places.
"""

import html
import re
from collections.abc import Collection, Iterator

# These elements are removed with their content. `pre`, `source` and `syntaxhighlight` hold programs and drawings.
_DROPPED = (
    "ref|references|math|chem|ce|gallery|timeline|score|hiero|imagemap|inputbox|graph|mapframe|maplink|templatedata|"
    "templatestyles|categorytree|indicator|includeonly|pre|source|syntaxhighlight|table|style|script"
)
_INLINE = (
    "abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|mark|nowiki|onlyinclude|noinclude|q|rb|rp|rt|rtc|ruby|s|"
    "samp|section|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_BLOCK = "blockquote|caption|center|dd|div|dl|dt|h[1-6]|hr|li|ol|p|poem|td|th|tr|ul"

# These patterns use possessive repetition (`*+`) only for single characters: before Python 3.11.4 it finds too little
# when it repeats a group (gh-106052). An atomic group, `(?>(?:...)*)`, means the same and is right in all versions.
GONE = "\x01"  # marks a place where something was removed; XML does not allow this character
_ELEMENT = re.compile(
    r"<!--(?>(?:[^-<]++|-(?!->)|<(?!!--))*)-->"
    rf"|<({_DROPPED})\b(?:[^<>]*/>|[^<>]*+>(?>(?:[^<]++|<(?!/?\1\b))*)</\1\s*+>)"
    r"|<nowiki\s*+>((?>(?:[^<]++|<(?!/?nowiki\b))*))</nowiki\s*+>",
    re.IGNORECASE,
)
_BRACES = re.compile(r"([{}])\1*+")
_HIDDEN = {ord(mark): f"&#{ord(mark)};" for mark in "{}[]|'<>=*#:;_-"}
_LINK = re.compile(r"\[\[(?:[^\[\]|\n:]*+\|([^\[\]|]++)|([^\[\]|\n:]*+))\]\]")
_ODD_LINK = re.compile(r"\[\[([^\[\]|\n]*+)(?>(?:\|((?>(?:[^\[\]]++|\[(?!\[)|\](?!\]))*)))?)\]\]")
_OPEN_LINK = re.compile(r"\[\[([^\[\]|\n:]*+):[^\n]*+")
_MEDIA = re.compile(r"\.(?:jpe?g|png|gif|svg|tiff?|og[gva]|djvu|webp|webm|mid|wav|mp3)$", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z-]+)?$")
_ADDRESS = re.compile(r"\[(?:(?:https?|ftps?|mailto|news|irc):|//)[^\s\[\]<>\"]*+[^\S\n]*+([^\[\]\n]*+)\]")
_TAG = re.compile(rf"</?+(?:(br)|({_BLOCK})|{_INLINE}|{_DROPPED})(?>(?:\s[^<>]*+|/\s*+)?)>", re.IGNORECASE)
_QUOTES = re.compile(r"('{3,})")
_SWITCH = re.compile(r"__(?![^\W\d_]{0,40}[a-z])[^\W\d_]{2,40}+__")  # __NOTOC__ in any language, not __init__
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,30});")
_MARKS = re.compile(r"\{\{+|\}\}+|\[\[+|\]\]+|''+|<!--|-->")
_BROKEN_TAG = re.compile(rf"</?+(?:{_BLOCK}|br|{_INLINE}|{_DROPPED})(?=[\s/<>])[^>]{{0,200}}+>", re.IGNORECASE)
_BLANKS = re.compile(r"  +")
_GONE_IN_A_ROW = re.compile(rf"{GONE}(?>(?:[ ,;:]*+{GONE})+)")
_WORD = re.compile(r"\w")


def plain_text(markup: str, dropped: Collection[str] = ()) -> str:
    """Return the plain text of a page's wikitext, its lines joined by line breaks; "" if it has none.

    `dropped`: the namespaces, in small letters, whose links show no text ("datei", "kategorie" in a German wiki). The
    English names always apply too.
    """
    text = markup.replace(GONE, " ").replace("\r", "")
    text = _ELEMENT.sub(_element, text)
    text = _without_links(_without_templates(text), {"file", "image", "media", "category", *dropped})
    text = "\n".join(_unstyled(line) if "''" in line else line for line in text.split("\n"))
    text = _TAG.sub(lambda match: " " if match[1] else "\n" if match[2] else "", text)
    text = _closed_up(text.replace("&nbsp;", " ").replace("\xa0", " ").replace("\t", " "))
    for left_over in (_MARKS, _SWITCH, _BROKEN_TAG, _BLANKS):
        text = left_over.sub(" ", text)
    return _ENTITY.sub(lambda match: html.unescape(match[0]).replace("\xa0", " "), "\n".join(_lines(text)))


def _element(match: re.Match[str]) -> str:
    if match[2] is not None:
        return match[2].translate(_HIDDEN)
    return GONE if match[1] else ""


def _without_templates(text: str) -> str:
    """Return the text with each template, parameter and table replaced by GONE."""
    opened: list[tuple[int, int]] = []  # (place, number of braces) of each mark that is still open; 0 braces: a table
    gone: list[tuple[int, int]] = []  # (begin, end) of what is closed
    tables = 0  # how many of the open marks are tables
    for run in _BRACES.finditer(text):
        at, end = run.span()
        if text[at] == "{":
            is_table = end - at == 1 and text.startswith("{|", at) and _begins_line(text, at, " \t:*#")
            tables += is_table
            if is_table or end - at > 1:
                opened.append((at, 0 if is_table else end - at))
            continue
        closes_table = tables and text[at - 1] == "|" and _begins_line(text, at - 1, " \t")
        if closes_table and (end - at == 1 or not opened[-1][1]):
            while opened[-1][1]:
                opened.pop()
            at, tables = at + 1, tables - 1
            gone.append((opened.pop()[0], at))
        while end - at > 1 and len(opened) > tables:
            begin, count = opened.pop()
            if not count:
                tables -= 1
                continue
            taken = min(3, count, end - at)
            if count - taken > 1:
                opened.append((begin, count - taken))
            at += taken
            gone.append((begin + count - taken, at))
    parts: list[str] = []
    at, lines = 0, text + "\n"
    for begin, end in sorted([*gone, *((begin, 0) for begin, _ in opened)]):
        if begin >= at:
            parts += text[at:begin], GONE
            at = end or lines.index("\n", begin)
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _begins_line(text: str, at: int, marks: str) -> bool:
    before = text[max(0, at - 20) : at].rstrip(marks)
    return not before or before[-1] == "\n"


def _without_links(text: str, dropped: set[str]) -> str:
    """Return the text with each link replaced by the text that it shows, or by GONE if it shows none."""

    def shown(match: re.Match[str]) -> str:
        target, display = match[1].strip(), match[2]
        prefix, colon, _ = target.partition(":")
        names_file = prefix.strip().replace("_", " ").lower() in dropped or _MEDIA.search(target)
        if colon and prefix and (names_file or (display is None and _LANGUAGE.match(prefix))):
            return GONE
        return display or target.removeprefix(":")

    for _ in range(5):  # links within links
        text, odd = _ODD_LINK.subn(shown, _LINK.sub(r"\1\2", text))
        if not odd:
            break
    text = _OPEN_LINK.sub(lambda match: GONE if match[1].strip().lower() in dropped else match[0], text)
    return _ADDRESS.sub(r"\1", text)


def _unstyled(line: str) -> str:
    """Return a line without its marks of bold and italic.

    As in MediaWiki, one of four quotes in a row is an apostrophe. If the line has odd numbers of both marks, one of
    three quotes in a row is an apostrophe too: ''Iliad'''s.
    """
    if "'''" not in line:
        return line.replace("''", "")
    parts = _QUOTES.split(line)
    runs = parts[1::2]
    parts[1::2] = ["'" * (len(run) - 5 if len(run) > 5 else len(run) == 4) for run in runs]
    italic = sum(part.count("''") for part in parts[::2]) + sum(len(run) > 4 for run in runs)
    if italic % 2 and len(runs) % 2:
        for at, run in enumerate(runs):
            if len(run) < 5 and parts[2 * at][-1:].strip():
                parts[2 * at + 1] += "'"
                break
    return "".join(part.replace("''", "") for part in parts)


def _closed_up(text: str) -> str:
    """Return the text without GONE, and without the brackets, commas and blanks that are left over around it."""
    left, *rest = _GONE_IN_A_ROW.sub(GONE, text).split(GONE)
    out: list[str] = []
    for right in rest:
        before, after = left.rstrip(" ,;:"), right.lstrip(" ,;:")
        start = before.rstrip(" *#:;")
        if before.endswith("("):
            left, right = before, after
            if after.startswith(")"):
                left, right = before[:-1], after[1:]
        elif after.startswith(")"):
            left, right = before, after
        if right.startswith((" ,", " .", " ;")):
            right = right[1:]
        if right.startswith((",", ".", ";", ":", " ", "\n")):
            left = left.rstrip(" ")
            if left.endswith(",") and right[0] in ",.;":
                left = left[:-1]
        if start.endswith("\n") or not (out or start):
            right = right.lstrip(" ,;:").removeprefix(". ")
        out.append(left)
        left = right
    out.append(left)
    return "".join(out)


def _lines(text: str) -> Iterator[str]:
    """Yield paragraphs, list items without their marks, and headings that have text below them."""
    headings: list[tuple[int, str]] = []
    for line in text.split("\n"):
        line = line.strip()
        if line.startswith("|"):
            continue
        if line.startswith("="):
            title = line.strip("= ")
            level = min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")))
            if level and title:
                while headings and headings[-1][0] >= level:
                    headings.pop()
                headings.append((level, title))
                continue
            line = line.lstrip("= ")
        elif line.startswith(("*", "#", ":", ";", "----")):
            line = line.lstrip("*#:;- ")
        if not _WORD.search(line):
            continue
        if headings:
            for _, title in headings:
                yield title if title.endswith((".", "!", "?")) else f"{title}."
            headings.clear()
        yield line

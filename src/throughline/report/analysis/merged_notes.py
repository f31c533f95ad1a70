"""Merge texts that differ only in their numbers into one text, in which every number has its range.

`node 0: 0.3 of 2 cores` and `node 1: 1.0 of 2 cores` become `nodes 0, 1: 0.3 to 1.0 of 2 cores`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

NUMBER = r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d|-\d)"
"""A number that is a word of its own: no part of a version, a date, a topology or a name."""
TOKEN = re.compile(
    r"\b(?P<kind>node|rank|repeat|GPU)s? (?P<names>\d+(?:, \d+)*)(?![\w.])"
    rf"|(?P<low>{NUMBER})(?: to (?P<high>{NUMBER}))?"
)
"""Numbers that name things, such as `repeats 1, 3`; or a number; or a range of numbers."""


def merged(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts in their order. Texts that differ only in their numbers are merged into the first of them."""
    same: dict[str, list[str]] = {}
    for text in texts:
        same.setdefault(form(text), []).append(text)
    return map(_one, same.values())


def form(text: str) -> str:
    """Return a text with `#` for its numbers. Texts of the same form can be merged."""
    return TOKEN.sub(lambda token: f"{token['kind'] or ''}#", text)


def _one(texts: Sequence[str]) -> str:
    """Merge texts of one form."""
    if len(set(texts)) == 1:
        return texts[0]
    columns = zip(*(TOKEN.finditer(text) for text in texts), strict=True)
    together = map(_together, columns)
    return TOKEN.sub(lambda _: next(together), texts[0])


def _together(tokens: Sequence[re.Match[str]]) -> str:
    """Merge the numbers in one place of several texts: names into a list, other numbers into a range."""
    kind = tokens[0]["kind"]
    if kind:
        names = sorted({int(name) for token in tokens for name in token["names"].split(", ")})
        return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(map(str, names))}"
    numbers = [number for token in tokens for number in (token["low"], token["high"]) if number]
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if float(low) == float(high) else f"{low} to {high}"

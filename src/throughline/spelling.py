"""Which names somebody may have meant who wrote another one."""

import os
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path

SUGGESTED = 3
"""How many names an error suggests at most."""


def similar(word: str, names: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """Return the names that are most like `word`, the most similar first; capital letters do not count.

    cutoff: how similar a name has to be, from 0 to 1.
    """
    matcher = SequenceMatcher(b=word.lower())
    near = []
    for position, name in enumerate(dict.fromkeys(names)):
        matcher.set_seq1(name.lower())
        if matcher.real_quick_ratio() >= cutoff and matcher.quick_ratio() >= cutoff and matcher.ratio() >= cutoff:
            near.append((-matcher.ratio(), position, name))
    return [name for _, _, name in sorted(near)[:SUGGESTED]]


def listed(names: Iterable[str], last: str = "or") -> str:
    """Return the names as words of a sentence: `a`, `a or b`, `a, b or c`."""
    *first, end = list(names)
    return f"{', '.join(first)} {last} {end}" if first else end


def meant(word: str, names: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the question whether one of these names was meant; "" if none is similar."""
    near = similar(word, names, cutoff)
    return f"did you mean {listed(near)}?" if near else ""


def beside(path: Path, otherwise: str = "") -> str:
    """Return the question whether a file or folder beside `path` with a similar name was meant, or else `otherwise`."""
    names = sorted(os.listdir(path.parent)) if path.parent.is_dir() else []
    near = similar(path.name, [name for name in names if not name.startswith(".")], 0.6)
    return f"did you mean {listed(str(path.parent / name) for name in near)}? " if near else otherwise

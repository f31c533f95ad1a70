"""Compare what an archive states with what was derived again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDING = 1e-9
"""The relative difference that sums in another order may make."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it should be. file: where; what: which value of it, if any; text: what is wrong.

    word: True if no figure differs, but a text.
    """

    file: str
    what: str
    text: str
    word: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.what + ': ' if self.what else ''}{self.text}"


Found = Iterator[Difference]
"""What a function of a check yields."""


def between(file: str, stated: Any, derived: Any, where: str = "") -> Found:
    """Yield the differences of two JSON values. A key that is missing counts as None."""
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        for key in {**derived, **stated}:
            inner = f"{where}.{key}" if where else str(key)
            yield from between(file, stated.get(key), derived.get(key), inner)
    elif _list(stated) and _list(derived) and len(stated) == len(derived):
        for index, (one, other) in enumerate(zip(stated, derived, strict=True)):
            yield from between(file, one, other, f"{where}[{index}]")
    elif not equal(stated, derived):
        word = not any(_number(value) for value in (stated, derived))
        yield Difference(file, where, _told(stated, derived), word)


def equal(stated: Any, derived: Any) -> bool:
    """True if two values are the same, but for the rounding of sums."""
    if _number(stated) and _number(derived):
        return math.isclose(stated, derived, rel_tol=ROUNDING, abs_tol=1e-12)
    return bool(stated == derived)


def _told(stated: Any, derived: Any) -> str:
    text = f"it states {_short(stated)}, and {_short(derived)} follows from the raw values"
    if _number(stated) and _number(derived) and derived:
        text += f" ({100 * (stated / derived - 1):+.3g} %)"
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)

"""Read figures in a log: numbers and their means, steps in order, and the precision. All kinds of logs share them."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from throughline.comparables.logs.log import Unusable

NUMBER = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)"


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean."""
    every = list(values)
    return sum(every) / len(every)


def numbers(pattern: str, text: str) -> list[float]:
    """Return the first group of all matches as numbers. Raise Unusable if one is no positive number."""
    return [number(found) for found in re.findall(pattern, text)]


def number(text: str) -> float:
    """Return a positive number, with or without commas between thousands. Raise Unusable for any other text."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Unusable("broken", f"a figure in it is no positive number: {text[:40]!r}")
    return value


def after(values: Sequence[float], dropped: int, what: str = "records") -> list[float]:
    """Return the values after the first `dropped` ones. Raise Unusable if none are left."""
    if len(values) <= dropped:
        raise Unusable("cut_off", f"it has {len(values)} {what}, and the rule drops the first {dropped}")
    return list(values[dropped:])


def only(values: Sequence[float], what: str) -> float:
    """Return the only value, which the log may repeat. Raise Unusable if the log has different values."""
    if len(set(values)) > 1:
        raise Unusable("mixed", f"it ends {len(set(values))} runs: {what} stands in it so often; give each a file")
    return values[0]


def ascending(steps: Sequence[int]) -> None:
    """Raise Unusable if the steps start again, because the log then has several runs."""
    if any(later < earlier for earlier, later in pairwise(steps)):
        raise Unusable("mixed", "its steps begin again: it holds several runs; give each a file of its own")


def precision(half: str | None, brain: str | None = None) -> str | None:
    """Return fp16, bf16 or fp32 from a log's settings of mixed precision; None if it has no such setting."""

    def on(setting: str | None) -> bool:
        return str(setting).lower() in ("1", "true", "fp16", "float16", "amp", "o1", "o2")

    if half is None and brain is None:
        return None
    return "bf16" if on(brain) else "fp16" if on(half) else "fp32"


def prefixed(words: str, text: str | None) -> str | None:
    """Return a text after these words; None if there is no text."""
    return f"{words}{text}" if text else None

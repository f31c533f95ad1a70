"""A log as text that patterns can search, and what a kind of log says of one run in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from throughline.records.imported import Outcome

# What mpirun puts before each line (`Thu Dec 17 15:05:20 2020[1,0]<stdout>:`), in front of it or in its middle.
MPIRUN = re.compile(r"(?:\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4})?\[1,(\d+)\]<std(?:out|err)>:")
COLOURS = re.compile(r"\[\d{1,3}(?:;\d+)*m")  # what is left of them without the escape character
NUMBER = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)"
NOT_SAID = "the log does not say it"


class Unusable(Exception):
    """Why a log of a known kind gives no figure."""

    def __init__(self, status: Outcome, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


@dataclass(frozen=True)
class Log:
    """`name` is its path below the imported folder, `raw` its text."""

    name: str
    raw: str

    @cached_property
    def ranks(self) -> int:
        """How many ranks mpirun names in it; 0 where it was not started so."""
        marks = MPIRUN.findall(self.raw) if "]<std" in self.raw else ()
        return 1 + max(map(int, marks), default=-1)

    @cached_property
    def text(self) -> str:
        """The lines as the programs wrote them: without mpirun's marks and without colours."""
        plain = MPIRUN.sub("", self.raw) if "]<std" in self.raw else self.raw
        return COLOURS.sub("", plain.replace("\x1b", "")).replace("\r", "\n")

    @cached_property
    def before_2022(self) -> bool:
        """Whether DLLogger's lines are of 2021 or older: PaddlePaddle's comparison has another rule since 2022."""
        return (self.find(r"DLL (\d{4})-") or "9999") < "2022"

    def find(self, pattern: str) -> str | None:
        """The first group of the pattern's first match."""
        match = re.search(pattern, self.text)
        return match[1] if match else None

    def count(self, pattern: str) -> int | None:
        """That group as a whole number from 1 on."""
        found = self.find(pattern)
        return int(found) or None if found else None

    def part(self, text: str) -> Log:
        """A piece of it, as a log of its own."""
        return Log(self.name, text)

    def named(self, pattern: str) -> str | None:
        """The first group of a pattern that the file's name and its folders match."""
        match = re.search(pattern, self.name)
        return match[1] if match else None


@dataclass(frozen=True)
class Reading:
    """What one run says. `rule` is a sentence; a null value of `facts` has its reason in `reasons`."""

    framework: str
    value: float
    unit: str
    rule: str
    model: str | None = None
    precision: str | None = None
    batch: int | None = None
    accumulate: int | None = None
    devices: int | None = None
    nodes: int | None = None
    hardware: str | None = None
    software: str | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


Kind = Callable[[Log], Sequence[Reading]]
"""A kind of log: the runs in a log of this kind, none where it is of another. Raises Unusable."""


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean."""
    every = list(values)
    return sum(every) / len(every)


def numbers(pattern: str, text: str) -> list[float]:
    """The pattern's first group, everywhere; Unusable where one is no number."""
    return [number(found) for found in re.findall(pattern, text)]


def number(text: str) -> float:
    """A positive number, with or without commas between thousands."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Unusable("broken", f"a figure in it is no positive number: {text[:40]!r}")
    return value


def after(values: Sequence[float], dropped: int, what: str = "records") -> list[float]:
    """What is left after the first `dropped`; Unusable where that is nothing."""
    if len(values) <= dropped:
        raise Unusable("cut_off", f"it has {len(values)} {what}, and the rule drops the first {dropped}")
    return list(values[dropped:])


def one(values: Sequence[float], what: str) -> float:
    """The one value; Unusable where a log says it more than once, differently."""
    if len(set(values)) > 1:
        raise Unusable("mixed", f"it ends {len(set(values))} runs: {what} stands in it so often; give each a file")
    return values[0]


def ascending(steps: Sequence[int]) -> None:
    """Unusable where a run begins again: the log holds several."""
    if any(later < earlier for earlier, later in pairwise(steps)):
        raise Unusable("mixed", "its steps begin again: it holds several runs; give each a file of its own")


def precision(*, half: Any, brain: Any = None) -> str:
    """fp16, bf16 or fp32 from what a log says of mixed precision."""

    def on(value: Any) -> bool:
        return str(value).lower() in ("1", "true", "fp16", "float16", "amp", "o1", "o2")

    return "bf16" if on(brain) else "fp16" if on(half) else "fp32"

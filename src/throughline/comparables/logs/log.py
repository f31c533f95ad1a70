"""The text of a log, and what all kinds of logs read in it: facts, positive numbers, means, and steps in order."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from throughline.records.imported import Outcome

# The mark that mpirun adds to each line (`Thu Dec 17 15:05:20 2020[1,0]<stdout>:`), at its start or in its middle.
MPIRUN = re.compile(r"(?:\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4})?\[1,(\d+)\]<std(?:out|err)>:")
COLOURS = re.compile(r"\[\d{1,3}(?:;\d+)*m")  # the rest of a colour code without its escape character
NUMBER = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)"


class Unusable(Exception):
    """A file gives no figure. `status` and `reason` say why."""

    def __init__(self, status: Outcome, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


@dataclass(frozen=True)
class Log:
    """A log file. `name` is its path below the imported folder, and `raw` its text."""

    name: str
    raw: str

    @cached_property
    def ranks(self) -> int:
        """The number of ranks that the marks of mpirun name; 0 if mpirun did not start the run."""
        marks = MPIRUN.findall(self.raw) if "]<std" in self.raw else ()
        return 1 + max(map(int, marks), default=-1)

    @cached_property
    def text(self) -> str:
        """The lines that the programs wrote, without the marks of mpirun and without colours."""
        plain = MPIRUN.sub("", self.raw) if "]<std" in self.raw else self.raw
        return COLOURS.sub("", plain.replace("\x1b", "")).replace("\r", "\n")

    @cached_property
    def json(self) -> Any:
        """The value of a JSON file; None for any other text."""
        try:
            return json.loads(self.raw) if self.raw.lstrip().startswith("{") else None
        except (json.JSONDecodeError, RecursionError):
            return None

    @cached_property
    def before_2022(self) -> bool:
        """True if the lines of DLLogger are from 2021 or earlier.

        PaddlePaddle's comparison changed its rules in 2022.
        """
        return (self.find(r"DLL (\d{4})-") or "9999") < "2022"

    def find(self, *patterns: str) -> str | None:
        """Return the first group of the first pattern that matches; None without a match."""
        matches = (re.search(pattern, self.text) for pattern in patterns)
        return next((match[1] for match in matches if match and match[1]), None)

    def count(self, *patterns: str) -> int | None:
        """Return the same group as a positive integer, above 0; None without a match."""
        texts = (self.find(pattern) for pattern in patterns)
        return next((count for text in texts if text and (count := int(text))), None)

    def numbers(self, pattern: str) -> list[float]:
        """Return the first group of all matches as numbers. Raise Unusable if one is no positive number."""
        return [number(text) for text in re.findall(pattern, self.text)]

    def named(self, pattern: str) -> str | None:
        """Return the first group of a pattern in the names of the file and its folders; None without a match."""
        match = re.search(pattern, self.name)
        return match[1] if match else None


def number(text: str) -> float:
    """Return a positive number, with or without commas between thousands. Raise Unusable for any other text."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Unusable("broken", f"a figure in it is no positive number: {text[:40]!r}")
    return value


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean."""
    listed = list(values)
    return sum(listed) / len(listed)


def after(values: Sequence[float], dropped: int, what: str = "records") -> list[float]:
    """Return the values after the first `dropped` values. Raise Unusable if no value remains."""
    if len(values) <= dropped:
        raise Unusable("cut_off", f"it has {len(values)} {what}, and the rule drops the first {dropped}")
    return list(values[dropped:])


def only(values: Sequence[float], what: str) -> float:
    """Return the only value, which the log may repeat. Raise Unusable if the log has different values."""
    if len(set(values)) > 1:
        raise Unusable("mixed", f"it ends {len(set(values))} runs: {what} stands in it so often; give each a file")
    return values[0]


def ascending(steps: Iterable[int | str]) -> None:
    """Raise Unusable if the steps start again, because the log then has several runs."""
    if any(int(later) < int(earlier) for earlier, later in pairwise(steps)):
        raise Unusable("mixed", "its steps begin again: it holds several runs; give each a file of its own")


def precision(half: str | None, brain: str | None = None) -> str | None:
    """Return fp16, bf16 or fp32 from a log's settings of fp16 and bf16; None if it has no such setting."""
    if half is None and brain is None:
        return None
    on = ("1", "true", "fp16", "float16", "amp", "o1", "o2")
    return "bf16" if str(brain).lower() in on else "fp16" if str(half).lower() in on else "fp32"


def prefixed(words: str, text: str | None) -> str | None:
    """Return a text after these words; None if there is no text."""
    return f"{words}{text}" if text else None

"""The text of a log (Log), and the result of one run in it (Reading)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from throughline.records.imported import Outcome

# The mark that mpirun adds to each line (`Thu Dec 17 15:05:20 2020[1,0]<stdout>:`), at its start or in its middle.
MPIRUN = re.compile(r"(?:\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4})?\[1,(\d+)\]<std(?:out|err)>:")
COLOURS = re.compile(r"\[\d{1,3}(?:;\d+)*m")  # the rest of a colour code without its escape character
NOT_SAID = "the log does not say it"


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

    def named(self, pattern: str) -> str | None:
        """Return the first group of a pattern in the names of the file and its folders; None without a match."""
        match = re.search(pattern, self.name)
        return match[1] if match else None


@dataclass(frozen=True)
class Reading:
    """The result of one run in a log. `rule` describes how the value was computed. `reasons` says why a key is None.

    framework: None if it is called as the kind of log is.
    """

    value: float
    unit: str
    rule: str
    framework: str | None = None
    model: str | None = None
    precision: str | None = None
    batch: int | None = None
    gradient_accumulation: int | None = None
    devices: int | None = None
    nodes: int | None = None
    hardware: str | None = None
    software: str | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

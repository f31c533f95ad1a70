"""The text of a log, and what all kinds of logs need of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Outcome = Literal["ok", "foreign", "cut_off", "mixed", "broken", "binary", "too_large"]

# The mark that mpirun adds to each line (`Thu Dec 17 15:05:20 2020[1,0]<stdout>:`), at its start or in its middle.
MPIRUN = re.compile(r"(?:\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4})?\[(?:[\w.-]+@)?\d+,(\d+)\]<std(?:out|err)>:")
LAUNCHERS = (
    re.compile(r"(?m)^ *\d+: "),  # srun -l
    re.compile(r"(?m)^[a-z][\w-]*[\d.][\w.-]* \d+: "),  # mpiexec of PBS and PALS: the host and the rank
    re.compile(r"(?m)^\[\d+\] "),  # mpirun -l of MPICH and Intel
)
"""What a launcher writes before each line. A log may have such lines without a launcher, but not most of them."""
TORCHRUN = re.compile(r"(?m)^\[(?:default|rank|trainer|worker)\d+\]:")
DLLL = re.compile(r'DLLL (\{.*"datetime": .*\})')
COLOURS = re.compile(r"\[\d{1,3}(?:;\d+)*m")  # the rest of a colour code without its escape character
NUMBER = r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"


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
        """The lines that the programs wrote, as `plain` returns them."""
        return plain(self.raw)

    def find(self, pattern: str) -> str | None:
        """Return the first group of the first match in the text; None without a match."""
        match = re.search(pattern, self.text)
        return match[1] if match else None

    def has(self, pattern: str) -> bool:
        """Return whether a pattern matches in the text."""
        return re.search(pattern, self.text) is not None

    def named(self, pattern: str) -> str | None:
        """Return the first group of a pattern in the names of the file and its folders; None without a match."""
        match = re.search(pattern, self.name)
        return match[1] if match else None


def dllogger(line: re.Match[str]) -> str:
    """Return a line of DLLogger's JSON as DLLogger prints it: the step, and the figures with their names."""
    entry = json.loads(line[1])
    step, data = entry["step"], entry["data"]
    names = ("Training Epoch", "Training Iteration") if "step_loss" in data else ("Epoch", "Iteration")
    if isinstance(step, str):
        words = step
    else:
        words = " ".join(f"{name}: {number}" for name, number in zip(names, step, strict=False)) or "Summary:"
    return f"DLL {entry['datetime']} - {words} {' '.join(f'{name} : {value} ' for name, value in data.items())}"


def plain(text: str) -> str:
    """Return a log's text without colours and without what launchers add, which the patterns of kinds do not have.

    Lines of DLLogger's JSON become those that it prints.
    """
    if "DLLL {" in text:
        text = DLLL.sub(dllogger, text)
    text = MPIRUN.sub("", text) if "]<std" in text else text
    text = COLOURS.sub("", text.replace("\x1b", "")).replace("\r", "\n")
    lines = len(re.findall(r"(?m)^.*\S", text))
    for launcher in LAUNCHERS:
        if 2 * len(launcher.findall(text)) > lines:
            text = launcher.sub("", text)
    return TORCHRUN.sub("", text)


def number(text: str) -> float:
    """Return a positive number, with or without commas between thousands. Raise Unusable for any other text."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Unusable("broken", f"a figure in it is no positive number: {text[:40]!r}")
    return value


def only(values: Sequence[float]) -> float:
    """Return the figure at the end of a run, which the log may repeat. Raise Unusable if the log has different ones."""
    if len(set(values)) > 1:
        raise Unusable("mixed", f"it ends {len(set(values))} runs; give each a file of its own")
    return values[0]

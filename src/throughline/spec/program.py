"""A training program of somebody else that a run measures: how it starts, and where the time of a step comes from.

    programs.<name> in config.yaml -> study/program_section.py -> RunSpec.program -> launch/program_runner.py -> record

The working directory, the Python and the values of secret variables are in none of these: they are places of one
machine, and handover.py carries them to the jobs.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from throughline.spec.part import Part, key

NAME = r"[a-z][a-z0-9-]*"
"""A regular expression for the name of a program. It stands where the name of a framework stands."""
MARKS = "THROUGHLINE_MARKS"
"""The variable with the file to which a program appends its marks."""
DECIDES = "program"
"""A batch size or a precision that the program itself decides has this name in files and on pages."""
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Map each group of a pattern that has the time of one step to its length in seconds."""
FIGURES = (*TIMES, "interval_s", "steps_per_s", "per_s", "clock")
"""The groups of which a pattern has one: the time of a step, the seconds of all steps since the line before, steps or
units per second, or the time of day of a line."""


@dataclass(frozen=True)
class Timing(Part):
    """Where the time of a step comes from.

    kind: `marks`, the name of a kind of log, or `pattern`; pattern: the regular expression of a line of the log, None
    for marks. Its groups are `step`, one of `FIGURES`, and `loss` if the line has it. of: whether `per_s` counts one
    device or the whole job.
    """

    kind: str
    pattern: str | None = None
    of: Literal["job", "device"] = "job"

    @property
    def group(self) -> str | None:
        """The group with the figure of a line: one of `FIGURES`; None for marks.

        Raise ValueError if the pattern is no regular expression, or lacks a group.
        """
        if self.pattern is None:
            return None
        try:
            named = re.compile(self.pattern).groupindex
        except re.error as error:
            raise ValueError(f"{self.pattern!r} is no regular expression: {error}") from None
        figures = [name for name in FIGURES if name in named]
        if "step" not in named or len(figures) != 1:
            has = ", ".join(named) or "none"
            one = ", ".join(FIGURES)
            raise ValueError(f"a pattern needs the groups (?P<step>...) and one of {one}; its groups: {has}")
        return figures[0]

    @property
    def words(self) -> str:
        """The source of the times, as pages name it."""
        if self.group is None:
            return "its marks"
        printed = {
            "per_s": f"the throughput of the {self.of} in its log",
            "steps_per_s": "the steps per second in its log",
            "interval_s": "the time of the steps between its lines",
            "clock": "the times of day in its log",
        }
        which = f"lines that match {self.pattern}" if self.kind == "pattern" else self.kind
        return f"{printed.get(self.group, 'the time of each step in its log')} ({which})"


@dataclass(frozen=True)
class Accelerator(Part):
    """The accelerators of a node, where we cannot count them ourselves (AMD, TPU, Gaudi)."""

    name: str = key("for reports, such as `MI300X`")
    per_node: int = key("how many each node has", least=1)
    visible: str | None = key(
        "variable that hides devices, such as `HIP_VISIBLE_DEVICES`; null: all are seen",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class Program(Part):
    """A program and what a run of it measures.

    command: its words, with placeholders (programs/words.py); start: on which nodes it starts; precision: what
    `{precision}` becomes; prepare: the words of a command that runs before the program; per_step: the units of a step
    on all devices; variables: the names of the environment variables that the configuration sets, with the values of
    those that decide speed.
    """

    command: tuple[str, ...] = field(metadata={"strict": False})
    start: Literal["node", "job", "rank"] = "node"
    timing: Timing
    unit: str
    per_step: int = field(metadata={"ge": 1})
    precision: str | None = None
    flops_per_step: float | None = None
    accelerator: Accelerator | None = None
    prepare: tuple[str, ...] | None = field(default=None, metadata={"strict": False})
    variables: dict[str, Any] = field(default_factory=dict)

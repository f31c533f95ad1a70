"""The section `programs`: training programs of somebody else, which a benchmark measures as it measures a framework."""

import os
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, field_validator

from throughline.log_kinds import timed
from throughline.programs import words
from throughline.spec import Accelerator, Batch, Precision, Program, Steps, Timing, Topology
from throughline.spec.program import MARKS
from throughline.spec.run import NumberFormat
from throughline.spelling import listed
from throughline.study.config_errors import allowed
from throughline.study.section import UNIT, FilePath, PositiveInt, Section, Text
from throughline.variables import VARIABLES

Command = Text | Annotated[list[Text], Field(min_length=1)]
MARKS_KIND = "marks"


class Pattern(Section):
    """A regular expression for the lines of a log that has no kind of its own."""

    pattern: Text = Field(
        description="a regular expression with the group `(?P<step>...)`, one of `s`, `ms`, `us` (the time of that "
        "step), `interval_s` (since the line before), `steps_per_s`, `per_s` (units) and `clock` (the time of day or "
        "since the start), and perhaps `loss`"
    )
    of: Literal["job", "device"] = Field("job", description="what `per_s` counts")

    @field_validator("pattern")
    @classmethod
    def _has_its_groups(cls, pattern: str) -> str:
        Timing("pattern", pattern).group  # noqa: B018  raises ValueError
        return pattern


class ProgramSection(Section):
    """A program under `programs` in config.yaml."""

    command: Command = Field(
        description="starts the program, without a shell: write `[bash, -c, ...]` for one. Placeholders: "
        + ", ".join(f"`{{{name}}}`" for name in words.NAMES)
    )
    start: Literal["node", "job", "rank"] = Field(
        "node",
        description="once on every node (`node`); once on the first, for a program that starts its ranks (`job`); or "
        "for every device, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (`rank`)",
    )
    folder: FilePath = Field(
        ".",
        description="working directory. Repeats are pooled only if its commit, its uncommitted changes and `files` "
        "are the same",
    )
    files: list[Text] = Field(
        default_factory=list, description="patterns of files in `folder` outside git that decide what is measured"
    )
    python: FilePath | None = Field(None, description="the Python whose packages the record lists")
    variables: dict[Text, str | int | float] = Field(
        default_factory=dict,
        description="environment variables. Records have their names, and values of those that decide speed",
    )
    precisions: dict[NumberFormat, Text] = Field(
        default_factory=dict, description="what `{precision}` becomes, such as `bf16: bfloat16`"
    )
    timing: Literal["marks"] | Text | Pattern = Field(
        description=f"where the time of a step comes from: `marks`, which the program appends to ${MARKS}; the name of "
        f"a kind of log ({listed(sorted(timed()))}); or `{{pattern: ...}}`"
    )
    per_step: PositiveInt | Text = Field(
        description="units that all devices train in a step, with or without placeholders: `{batch} * {world}`"
    )
    unit: Annotated[str, Field(pattern=UNIT)] = Field(
        "samples", description="what is counted, in the plural: `samples`, `tokens`, `images`"
    )
    flops_per_step: PositiveFloat | None = Field(
        None, description="FLOPs of a step on all devices, for the share of their peak"
    )
    accelerator: Accelerator | None = Field(
        None, description="devices that we cannot count (AMD, TPU, Gaudi); null: we look"
    )
    prepare: Command | None = Field(None, description="runs in `folder` before each run")
    silent_for: PositiveFloat = Field(
        600.0, description="a program that shows no first step, or none after it, for so many seconds has failed"
    )
    timeout: PositiveFloat | None = Field(None, description="most seconds of a run")

    @field_validator("timing")
    @classmethod
    def _is_known(cls, timing: str | Pattern) -> str | Pattern:
        if isinstance(timing, str) and timing not in (MARKS_KIND, *timed()):
            page = "docs/how-to/measure-your-own-program.md"
            raise ValueError(allowed(timing, [MARKS_KIND, *sorted(timed())], page))
        return timing

    @field_validator("command", "prepare")
    @classmethod
    def _has_words(cls, command: str | list[str] | None) -> str | list[str] | None:
        words.used(words.split(command) if command is not None else ())
        return command

    @field_validator("per_step")
    @classmethod
    def _is_known_before_a_run(cls, per_step: int | str) -> int | str:
        if unknown := words.used([str(per_step)]) - set(words.OF_RUN):
            raise ValueError(f"{{{min(unknown)}}} is not known before a run")
        words.value(per_step, dict.fromkeys(words.OF_RUN, 1))
        return per_step

    @property
    def placeholders(self) -> set[str]:
        """The placeholders of the command, and those of `per_step`."""
        return words.used([*words.split(self.command), str(self.per_step)])

    def of_run(self, batch: Batch, precision: Precision, topology: Topology, steps: Steps) -> Program:
        """Return the program as a run's specification has it. Raise ValueError if `per_step` is no whole number."""
        timing = self.timing
        if isinstance(timing, Pattern):
            found = Timing("pattern", timing.pattern, timing.of)
        elif timing == MARKS_KIND:
            found = Timing(MARKS_KIND)
        else:
            kind = timed()[timing]
            found = Timing(timing, kind.step, kind.rate_of)
        values = {
            "batch": batch, "steps": steps.warmup + steps.timed,
            "nodes": topology.nodes, "devices": topology.devices, "world": topology.world,
        }  # fmt: skip
        return Program(
            command=words.split(self.command),
            start=self.start,
            timing=found,
            unit=self.unit,
            per_step=words.number(self.per_step, values),
            precision=None if precision == "program" else self.precisions.get(precision),
            flops_per_step=self.flops_per_step,
            accelerator=self.accelerator,
            prepare=words.split(self.prepare) if self.prepare else None,
            variables={
                name: str(self.variables[name]) if VARIABLES.fullmatch(name) else None for name in self.variables
            },
        )

    def places(self) -> dict[str, Any]:
        """Return what a run needs of this section and its specification does not have (handover.py)."""
        return {
            "folder": os.path.abspath(self.folder),
            "files": self.files,
            "python": self.python and os.path.abspath(self.python),
            "variables": {name: str(value) for name, value in self.variables.items()},
            "silent_for": self.silent_for,
            "timeout": self.timeout,
        }

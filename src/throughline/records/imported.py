"""imported.json: what other people's logs say, file by file, and the rows of speed that follow from them."""

from typing import Literal

from pydantic import Field

from throughline.records.entry import Count, Entry
from throughline.records.result import Result

Outcome = Literal["ok", "foreign", "cut_off", "mixed", "broken", "binary", "too_large"]
OUTCOMES: dict[Outcome, str] = {
    "ok": "its figure is read",
    "foreign": "of no kind that is known",
    "cut_off": "of a known kind, but it ends too early for its rule",
    "mixed": "it holds several runs, or runs of several kinds",
    "broken": "of a known kind, but its lines cannot be read",
    "binary": "no text",
    "too_large": "larger than what is read",
}
UNITS: dict[str | None, Literal["samples/s", "images/s", "tokens/s", "tokens/s/device"]] = {
    "sequences/s": "samples/s",
    "samples/s": "samples/s",
    "images/s": "images/s",
    "tokens/s": "tokens/s",
    "tokens/s/device": "tokens/s/device",
}
"""What an import's units are called where rows are checked. Steps per second say nothing without their batch."""


class ImportedRun(Entry):
    """One run of a file, or the file's outcome where there is none.

    `reasons` says why a value is null, by its key; `named` lists the keys that the file's name says, and not the log.
    `value` is the speed of all devices together, unrounded; `rule` says which steps it drops and what it averages.
    """

    file: str
    status: Outcome
    reason: str | None = None
    kind: str | None = None
    framework: str | None = None
    model: str | None = None
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"] | None = None
    batch_size_per_device: Count | None = None
    accumulate: Count | None = None
    devices: Count | None = None
    nodes: Count | None = None
    value: float | None = None
    unit: str | None = None
    rule: str | None = None
    hardware: str | None = None
    software: str | None = None
    sha256: str | None = None
    named: list[str] = Field(default_factory=list)
    reasons: dict[str, str] = Field(default_factory=dict)


class Imported(Entry):
    """Every file of one folder of logs, in the order of their names."""

    schema_: Literal[2] = Field(alias="schema")
    name: str
    files: list[ImportedRun]

    @property
    def read(self) -> list[ImportedRun]:
        """The runs whose figure is known."""
        return [run for run in self.files if run.status == "ok"]

    def results(self) -> list[Result]:
        """Its rows as they are checked beside published and own ones."""
        return [
            Result(
                origin="imported",
                source=self.name,
                place=f"results/{self.name}/imported.json, {run.file}",
                framework=run.framework or run.kind or "unknown",
                software=run.software,
                model=run.model or "unknown",
                precision=run.precision,
                device=run.hardware,
                nodes=run.nodes,
                devices=run.devices,
                batch_per_device=run.batch_size_per_device,
                accumulate=run.accumulate,
                convention=run.rule or "",
                value=repr(run.value),
                unit=UNITS[run.unit],
                evidence=run.sha256,
            )
            for run in self.read
            if run.unit in UNITS
        ]

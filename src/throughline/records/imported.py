"""imported.json: the results in other people's logs, file by file, and the rows of speed that follow from them."""

from typing import Annotated

from pydantic import Field

from throughline.log_kinds.kind import Outcome
from throughline.records.entry import Count, Entry, Schema
from throughline.records.result import Result

OUTCOMES: dict[Outcome, str] = {
    "ok": "its figure is read",
    "foreign": "its kind is not known",
    "cut_off": "of a known kind, but it ends too early for its rule",
    "mixed": "it holds several runs, or runs of several kinds",
    "broken": "of a known kind, but its lines cannot be read",
    "binary": "no text",
    "too_large": "too large to be read",
}
UNITS = {
    "sequences/s": "samples/s",
    **{unit: unit for unit in ("samples/s", "images/s", "tokens/s", "tokens/s/device", "GB/s")},
}
"""Map the units of imports to the units of a Result. Steps per second are left out: the batch is unknown."""


class ImportedRun(Entry):
    """One run in a file or, if the file has no usable run, the file's outcome.

    value: the speed of all devices together, not rounded; rule: which steps it drops and what it averages; reasons: why
    a value is null, by key; named: the keys whose values are from the file's name and not from the log. A kind of log
    leaves file, kind, named and sha256 to the import, and framework too, if it is called as the kind is.
    """

    file: str = ""
    status: Outcome = "ok"
    reason: str | None = None
    kind: str | None = None
    framework: str | None = None
    model: str | None = None
    precision: Annotated[str, Field(pattern="^(fp32|tf32|bf16|fp16|fp8|fp4)$")] | None = None
    batch_size_per_device: Count | None = None
    gradient_accumulation: Count | None = None
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
    """All files of one folder of logs, in the order of their names."""

    schema_: Schema
    name: str
    files: list[ImportedRun]

    @property
    def read(self) -> list[ImportedRun]:
        """The runs with a figure."""
        return [run for run in self.files if run.status == "ok"]

    @property
    def outcome(self) -> str:
        """How many files were not read, and why."""
        statuses = [run.status for run in self.files]
        others = [
            f"{statuses.count(status)} {status.replace('_', ' ')} ({words})"
            for status, words in OUTCOMES.items()
            if status != "ok" and status in statuses
        ]
        files = len({run.file for run in self.files})
        if not others:
            return f"{self.name}: all {files} files were read"
        return f"{self.name}: {len(self.files) - len(self.read)} of {files} files were not read: {', '.join(others)}"

    def results(self) -> dict[int, Result]:
        """Map the places of runs in `files` to rows, in the form in which we check them beside other results."""
        return {
            index: Result.model_validate(
                {
                    **{key: getattr(run, key) for key in ("software", "precision", "nodes", "devices")},
                    "origin": "imported",
                    "source": self.name,
                    "place": f"results/{self.name}/imported.json, {run.file}",
                    "framework": run.framework or run.kind or "unknown",
                    "model": run.model or "unknown",
                    "device": run.hardware,
                    "batch": run.batch_size_per_device,
                    "gradient_accumulation": run.gradient_accumulation,
                    "convention": run.rule or "",
                    "value": repr(run.value),
                    "unit": UNITS[run.unit],
                    "evidence": run.sha256,
                }
            )
            for index, run in enumerate(self.files)
            if run.status == "ok" and run.unit in UNITS
        }

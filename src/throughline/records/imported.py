"""Rows of tables of training speeds: published somewhere, imported from logs (imported.json), or measured here.

A figure of a row is a text with the digits that its source prints. The digits tell how exactly we can check the figure.
"""

from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from throughline import gpus
from throughline.log_kinds.kind import Outcome
from throughline.records.entry import Count, Entry, Schema
from throughline.study.section import Value

Origin = Literal["published", "imported", "measured"]
Beside = Literal[
    "speedup", "mfu", "tflops", "seconds_per_step", "memory_mib", "parameters_billion", "memory_change_mib",
    "memory_change_share", "speed_change_share", "global_step", "train_steps_per_second", "eval_steps_per_second",
    "eval_samples_per_second", "train_runtime", "eval_runtime",
]  # fmt: skip
"""The figures that a row may have beside its value.

`speedup` is over the smallest topology of its table; `mfu` is a share of 1; `tflops` and `memory_mib` are of one
device; the changes are relative to the row without the option. The last six are those of a whole job of Hugging Face's
Trainer, with its own definitions.
"""


def _number(text: str) -> str:
    try:
        finite = Decimal(text).is_finite()
    except InvalidOperation:
        finite = False
    if not finite:
        raise ValueError("is no number")
    return text


Printed = Annotated[str, AfterValidator(_number)]
"""A number as its source prints it, but without commas between thousands: `14822.31`. Our own figures use `repr`."""


@cache
def ends(printed: str) -> tuple[float, float]:
    """Return the lowest and the highest possible value of a printed number before rounding: 27.325 to 27.335."""
    half_a_digit = 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)
    return float(printed) - half_a_digit, float(printed) + half_a_digit


class Result(Entry):
    """A row. Values that its source does not state are None.

    source: who measured it; place: where the source states it (an address, or a file under results/); model, device:
    with the names of the configuration and of resources/gpus.csv, if they are known there; parameters: those of the
    model, except `sequence_length`; devices: on all nodes together; options: everything else that affects the speed
    (optimizer, XLA ...); convention: how the figure was measured (which steps, mean or median); value: the speed of all
    devices together, in `unit`; printed: the other figures of the row; evidence: a proof, such as the digest of the
    log. Two rows with the same evidence are one measurement. implausible: what is doubtful about a published row, as
    `comparables.implausible` found it. repeats: the slowest and the fastest repeat of a row of our own, in `unit`, if
    it has several; no file has it.
    """

    origin: Origin
    source: str
    place: str | None = None
    date: str | None = Field(None, pattern=r"^\d{4}(-\d\d(-\d\d)?)?$")
    framework: str
    software: str | None = None
    model: str
    parameters: dict[str, Value] = Field(default_factory=dict)
    sequence_length: Count | None = None
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"] | None = None
    device: str | None = None
    nodes: Count | None = None
    devices: Count | None = None
    batch: Count | None = None
    gradient_accumulation: Count | None = None
    global_batch: Count | None = None
    options: str = ""
    convention: str = ""
    value: Printed | None = None
    unit: Literal["samples/s", "images/s", "tokens/s", "tokens/s/device", "ms", "TFLOPS", "GB/s"] = "samples/s"
    printed: dict[Beside, Printed] = Field(default_factory=dict)
    implausible: str = ""
    evidence: str | None = None
    repeats: tuple[float, float] | None = Field(None, exclude=True, repr=False)

    @property
    def shown(self) -> str | None:
        """`value` for use in a sentence. A figure that is not rounded, such as our own, gets six digits."""
        if self.value is None or len(self.value.replace(".", "")) <= 9:
            return self.value
        return f"{float(self.value):.6g}"

    @property
    def lowest(self) -> float:
        """The slowest repeat as a share of the figure; 1.0 if no repeats are known."""
        return self.repeats[0] / float(self.value) if self.repeats and self.value else 1.0

    @property
    def is_job(self) -> bool:
        """True if it is a whole job, so that `value` counts the time of its evaluations too."""
        return "train_runtime" in self.printed

    @property
    def gpu(self) -> gpus.Gpu | None:
        """The device, if it is a GPU that resources/gpus.csv has."""
        return gpus.find(self.device) if self.device else None

    @property
    def samples_per_s(self) -> tuple[float, float] | None:
        """Lowest and highest samples per second of all devices that the printed digits allow; None if unknown."""
        if self.value is None:
            return None
        of_all = self.devices if self.unit == "tokens/s/device" else 1
        per_sample = self.sequence_length if self.unit.startswith("tokens/s") else 1
        low, high = ends(self.value)
        if self.unit == "ms":
            return (self.global_batch / high * 1e3, self.global_batch / low * 1e3) if self.global_batch else None
        if self.unit in ("TFLOPS", "GB/s") or not (of_all and per_sample):
            return None
        return low * of_all / per_sample, high * of_all / per_sample


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

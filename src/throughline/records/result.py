"""One row of a table of training speeds: published somewhere, imported from a log, or measured here.

A figure is a text with the digits that its source prints. The digits tell how exactly we can check the figure.
"""

from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from throughline import gpus
from throughline.records.entry import Count, Entry
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

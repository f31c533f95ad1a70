"""One row of a table of training speeds, whoever has it: published somewhere, imported from a log, or measured here.

Figures are text with the digits that their source prints: these digits say how exactly a figure can be checked.
"""

from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from throughline.records.entry import Count, Entry
from throughline.study.section import Value

Origin = Literal["published", "imported", "measured"]
Beside = Literal[
    "speedup",
    "mfu",
    "tflops",
    "seconds_per_step",
    "memory_mib",
    "parameters_billion",
    "memory_change_mib",
    "memory_change_share",
    "speed_change_share",
]
"""What a row may print beside its value. `speedup` is over the smallest topology of its table, `mfu` a share of 1;
`tflops` and `memory_mib` are of a device; the changes are over the row without its option."""


def _number(text: str) -> str:
    try:
        finite = Decimal(text).is_finite()
    except InvalidOperation:
        finite = False
    if not finite:
        raise ValueError("is no number")
    return text


Printed = Annotated[str, AfterValidator(_number)]
"""A number as it is printed, without commas between thousands: `14822.31`. A figure of our own: `repr` of it."""


def half_a_digit(printed: str) -> float:
    """By how much a printed number may differ from the one that was rounded: 0.005 for `27.33`."""
    return 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)


def ends(printed: str) -> tuple[float, float]:
    """The least and the most that a printed number can have been before it was rounded."""
    return float(printed) - half_a_digit(printed), float(printed) + half_a_digit(printed)


class Result(Entry):
    """A row. What its source does not say is None.

    `source` says who has measured it, `place` where that stands (an address, or a file under results/). `model` and
    `device` are named as in the configuration and in resources/gpus.csv where these know them. `parameters` are those
    of the model beside `sequence`. `devices` counts those of all nodes. `options` is what else decides the speed
    (optimizer, XLA ...), `convention` how the figure was taken (which steps, mean or median). `value` is the speed of
    all devices together in `unit`; `printed` are the other figures of the row. `evidence` names what proves it, such
    as the digest of its log: two rows with the same one are one measurement.
    """

    origin: Origin
    source: str
    place: str | None = None
    date: str | None = Field(None, pattern=r"^\d{4}(-\d\d(-\d\d)?)?$")
    framework: str
    software: str | None = None
    model: str
    parameters: dict[str, Value] = Field(default_factory=dict)
    sequence: Count | None = None
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"] | None = None
    device: str | None = None
    nodes: Count | None = None
    devices: Count | None = None
    batch_per_device: Count | None = None
    accumulate: Count | None = None
    global_batch: Count | None = None
    options: str = ""
    convention: str = ""
    value: Printed | None = None
    unit: Literal["samples/s", "images/s", "tokens/s", "tokens/s/device", "ms", "TFLOPS"] = "samples/s"
    printed: dict[Beside, Printed] = Field(default_factory=dict)
    evidence: str | None = None

    @property
    def shown(self) -> str | None:
        """`value` for a sentence: a figure that is not rounded, such as our own, with six digits."""
        if self.value is None or len(self.value.replace(".", "")) <= 9:
            return self.value
        return f"{float(self.value):.6g}"

    @property
    def samples_per_s(self) -> tuple[float, float] | None:
        """Samples a second of all devices, the least and the most that the printed digits allow; None where the row
        does not say enough."""
        if self.value is None:
            return None
        of_all = self.devices if self.unit == "tokens/s/device" else 1
        per_sample = self.sequence if self.unit.startswith("tokens/s") else 1
        low, high = ends(self.value)
        if self.unit == "ms":
            return (self.global_batch / high * 1e3, self.global_batch / low * 1e3) if self.global_batch else None
        if self.unit == "TFLOPS" or not (of_all and per_sample):
            return None
        return low * of_all / per_sample, high * of_all / per_sample

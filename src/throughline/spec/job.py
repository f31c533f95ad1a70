"""A whole training job: several epochs, an evaluation after each, and the figures that Hugging Face's Trainer prints.

The figures have the Trainer's names and definitions. Figures that depend on each other have to agree; `faults` lists
those that do not. Standard library only: ranks import this too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from throughline.spec.part import Part, key

Better = Literal["more", "less"]
FIGURES: dict[str, tuple[str, Better]] = {
    "global_step": ("steps", "less"),
    "train_steps_per_second": ("steps/s", "more"),
    "eval_steps_per_second": ("steps/s", "more"),
    "train_samples_per_second": ("samples/s", "more"),
    "eval_samples_per_second": ("samples/s", "more"),
    "train_runtime": ("s", "less"),
    "eval_runtime": ("s", "less"),
    "samples_per_second_without_evaluations": ("samples/s", "more"),
    "preparation": ("s", "less"),
}
"""Map each figure of a job to its unit and to which direction is better.

The Trainer's come first: `train_runtime` is the time of the whole job with its evaluations, and `eval_runtime` that of
the last evaluation. Our own clock measures the last two: the throughput of the steps without evaluations, and the
seconds from the moment we open the data to the first step.
"""
HALF_A_DIGIT = {"per_second": 0.5e-3, "runtime": 0.5e-4}
"""Half of the last digit: the Trainer rounds rates to 3 decimals and times to 4."""


@dataclass(frozen=True)
class EpochsJob(Part):
    """A job trains on `samples` in each of `epochs`, and evaluates `held_out` samples after each."""

    samples: int = key("training samples of an epoch", default=2048, least=1)
    held_out: int = key("held-out samples of the evaluation after each epoch; 0: none", default=1024, least=0)
    epochs: int = key("how often it trains on every sample", default=2, least=1)

    @property
    def trained(self) -> int:
        """The number of training samples in all epochs together."""
        return self.samples * self.epochs

    def steps(self, batch: int, gradient_accumulation: int) -> int:
        """Return the number of optimizer steps, as the Trainer counts them: the last step of an epoch may be smaller.
        `batch` is that of all devices together."""
        return ceil(ceil(self.samples / batch) / gradient_accumulation) * self.epochs

    def faults(self, devices: int, batch: int, gradient_accumulation: int, told: Mapping[str, float]) -> list[str]:
        """Return a sentence for each contradiction between the figures of a row (`told`). `batch` is that of a
        device."""
        together = devices * batch
        steps, total = self.steps(together, gradient_accumulation), together * gradient_accumulation
        exact = {
            "train_bs": (together, f"{devices} devices x {batch}"),
            "total_train_bs": (total, f"{devices} devices x {batch} x {gradient_accumulation} micro-batches"),
            "global_step": (steps, f"{self.samples} samples in steps of {total}, {self.epochs} epochs"),
        }
        products = {
            ("train_samples_per_second", "train_runtime"): (self.trained, "samples x epochs"),
            ("train_steps_per_second", "train_runtime"): (steps, "the optimizer steps"),
            ("eval_samples_per_second", "eval_runtime"): (self.held_out, "the held-out samples"),
            ("eval_steps_per_second", "eval_runtime"): (ceil(self.held_out / together), "the steps of an evaluation"),
        }
        contradictions = [
            f"{name} is {told[name]:g}, and {meaning} are {expected}"
            for name, (expected, meaning) in exact.items()
            if name in told and told[name] != expected
        ]
        for (rate, time), (expected, what) in products.items():
            if rate in told and time in told:
                product = told[rate] * told[time]
                # Both are rounded, so their product may differ from the exact one by so much.
                rounding = 1.01 * (HALF_A_DIGIT["per_second"] * told[time] + HALF_A_DIGIT["runtime"] * told[rate])
                if abs(product - expected) > rounding:
                    contradictions.append(f"{rate} x {time} is {product:.2f}, and {what} are {expected}")
        evaluated = self.epochs * told.get("eval_runtime", 0.0)
        whole = told.get("train_runtime", float("inf"))
        if evaluated >= whole:
            contradictions.append(f"{self.epochs} evaluations take {evaluated:g} s, and the whole job {whole:g} s")
        return contradictions


def figures(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return these values in the form that a record stores."""
    return [
        {"name": name, "unit": unit, "better": better, "at": None, "value": values[name]}
        for name, (unit, better) in FIGURES.items()
        if name in values
    ]

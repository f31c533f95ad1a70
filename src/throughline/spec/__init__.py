"""The specification of a run: everything that decides it, as frozen dataclasses.

The configuration makes specifications, and study/ validates them once. Launcher, ranks, frameworks, workloads, checks
and records use the same types. A rank reads its specification from JSON, in an environment without pydantic, so this
package imports the standard library only.
"""

from throughline.spec.job import EpochsJob
from throughline.spec.optimizer import Optimizer, Schedule
from throughline.spec.options import Options, Steps
from throughline.spec.part import Part, Value, changed, key, read, values
from throughline.spec.program import Accelerator, Program, Timing
from throughline.spec.run import NAME, Batch, DataIdentity, Precision, RunSpec, Scaling, canonical, cell_name, example
from throughline.spec.topology import Layout, StepSize, Topology

__all__ = [
    "NAME", "Accelerator", "Batch", "DataIdentity", "EpochsJob", "Layout", "Optimizer", "Options", "Part",
    "Precision", "Program", "RunSpec", "Scaling", "Schedule", "StepSize", "Steps", "Timing", "Topology", "Value",
    "canonical", "cell_name", "changed", "example", "key", "read", "values",
]  # fmt: skip

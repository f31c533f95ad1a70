"""What a program of somebody else trains, if the block names no model of ours: nothing is known but what it counts.

No block names it: it is the model of a block that measures programs alone. So it is no folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from throughline.spec import Part, RunSpec, key
from throughline.spec.program import DECIDES
from throughline.workloads import Values, Workload
from throughline.workloads.workload import Arrays


@dataclass(frozen=True)
class Parameters(Part):
    counts: str = key("what a step counts, in the plural", asked=False, stated=True)


class OfAProgram(Workload[Parameters]):
    models = (DECIDES,)
    parameters = Parameters
    libraries = {"program": frozenset({"devices", "nodes", "fp8"})}
    no_reference = "what a program of somebody else computes is not known"

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        return {"counts": values["counts"]}

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        return {}

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        return "the program states them"

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        return {"model": "the FLOPs that the configuration states for a step"}


WORKLOAD = OfAProgram()

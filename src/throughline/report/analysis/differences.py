"""Why two cells must not be compared: their surroundings differ, or an equivalence check forbids it."""

from typing import Any

from throughline.report.analysis import facts
from throughline.report.analysis.cells import Cell

OF_FRAMEWORK = tuple(
    f"environment.{name}" for name in ("framework", "packages.", "python", "code", "variables.", "mpi")
)
"""Parts of an environment that differ between frameworks for good reasons."""
NO_SPEED = ("environment.commit", "environment.variables.CUDA_VISIBLE_DEVICES")
"""Parts that differ without any effect on speed. Whether the measured code has changed is told by `code`."""
OF_PRECISION = ("environment.variables.NVIDIA_TF32_OVERRIDE",)
"""The variable that every precision but tf32 sets for its ranks on a GPU."""
NAMED, LONG = 3, 80
"""How many differences between two environments are named; how many characters a printed value has at most."""


def differences(first: Cell, second: Cell) -> list[str]:
    """Return which parts of device, environment and data are known of both cells, differ, and may decide the speed."""
    ignoring: tuple[str, ...] = NO_SPEED
    if first.framework != second.framework:
        ignoring += OF_FRAMEWORK
    if first.group.precision != second.group.precision:
        ignoring += OF_PRECISION
    if first.topology != second.topology:
        ignoring += facts.BY_TOPOLOGY
    return [_said(key, *values) for key, values in facts.differing(first.facts, second.facts, ignoring).items()]


def _said(key: str, *values: Any) -> str:
    """Return a difference in words, such as `torch is 2.12.0 and 2.13.0`."""
    part, _, rest = key.partition(".")
    if part == "data":
        return f"the data differ (content {' and '.join(str(value)[:12] for value in values)})"
    name = "device" if part == "device" else rest.removeprefix("framework.").removeprefix("packages.")
    texts = ["not set" if value is None else str(value) for value in values]
    is_long = any(isinstance(value, list) or len(text) > LONG for value, text in zip(values, texts, strict=True))
    return f"{name} differs" if is_long else f"{name.removeprefix('variables.')} is {' and '.join(texts)}"


def unlike(first: Cell, second: Cell) -> tuple[str, ...]:
    """Return why two cells must not be compared: a failed equivalence check, or different surroundings."""
    if first.framework != second.framework:
        barred = dict.fromkeys(f"{cell.framework} {cell.doubt}" for cell in (first, second) if cell.barred)
        if barred:
            return tuple(f"{text} (equivalence.json)" for text in barred)
    differing = differences(first, second)
    more = [f"{len(differing) - NAMED} more differences"] if len(differing) > NAMED else []
    return (*differing[:NAMED], *more)

"""What two environments differ in, by the names that people read, and why two cells must not be compared."""

from collections.abc import Mapping
from typing import Any

from throughline.records.compared import Difference
from throughline.report.analysis import facts
from throughline.report.analysis.cells import Cell

CARDS = "environment.gpus"
NAMES = {
    "environment.packages.": "package ",
    "environment.variables.": "variable ",
    "environment.": "",
    "data.content_digest": "data.content",
}
"""Map the beginnings of keys to what stands in their place; the first that fits counts."""
DIGESTS = ("data.content", "commit")
ORDER = (
    "device.", "power limit", "clock", "ecc", "mig", "driver", "cuda", "nccl", "cudnn", "framework", "options.",
    "optimizer.", "steps.", "python", "code", "commit", "data.", "cpu", "kernel", "os", "memory",
)  # fmt: skip
"""Beginnings of names, or words in them, from what matters most for the speed. Everything else comes last."""

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


def between(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Difference]:
    """Return the facts in which two environments differ, what matters most for the speed first."""
    found = facts.differing(_by_card(here), _by_card(there), ("environment.gpu_topology",))
    differing = [_difference(_name(key), *values) for key, values in found.items()]
    return sorted(differing, key=lambda fact: _rank(fact.name))


def _difference(name: str, *values: Any) -> Difference:
    here, there = (short(value)[: 12 if name in DIGESTS else None] for value in values)
    return Difference(name=name, here=here, there=there)


def _by_card(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with the settings of all GPUs: one value if all have the same, otherwise all values."""
    cards = known.get(CARDS) or []
    settings = {}
    for name in dict.fromkeys(name for card in cards for name in card):
        values = [card[name] for card in cards if name in card]
        different = [value for place, value in enumerate(values) if value not in values[:place]]
        settings[f"gpu {name.replace('_', ' ')}"] = different[0] if len(different) == 1 else different
    return {key: value for key, value in known.items() if key != CARDS} | settings


def _name(key: str) -> str:
    beginning = next((beginning for beginning in NAMES if key.startswith(beginning)), "")
    return NAMES.get(beginning, "") + key.removeprefix(beginning)


def _rank(name: str) -> int:
    places = (place for place, word in enumerate(ORDER) if name.startswith(word) or f" {word}" in f" {name}")
    return next(places, len(ORDER))


def short(value: Any) -> str:
    """Return a value as a text that fits a line."""
    text = "not set" if value is None else str(value)
    return text if len(text) <= LONG else f"{text[:LONG]}..."


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

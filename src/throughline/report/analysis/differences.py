"""What a run ran in and on, as facts with dotted keys; in which facts two runs differ, and which cells are unlike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from throughline.records import Data, Device, RunRecord
from throughline.records.compared import Difference

if TYPE_CHECKING:
    from throughline.report.analysis.cells import Cell, Group

UNLIKE_ANYWAY = ("tree_clean", "digest", "reasons", "binding")
"""Parts of an environment that say nothing about its speed, or that differ in every job, as the numbers of cores do."""
VARIABLES = "environment.variables."
BY_TOPOLOGY = (
    VARIABLES,
    *(
        f"environment.{name}"
        for name in ("packages.", "gpus", "gpu_topology", "commit", "cpu_cores", "cpu_quota_cores")
    ),
)
"""Facts that differ between topologies for good reasons: a cluster gives cores in proportion to devices. A commit in
between need not change what is measured."""
OF_FRAMEWORK = tuple(
    f"environment.{name}" for name in ("framework", "packages.", "python", "code", "variables.", "mpi")
)
"""Parts of an environment that differ between frameworks for good reasons."""
NO_SPEED = ("environment.commit", "environment.variables.CUDA_VISIBLE_DEVICES")
"""Parts that differ without any effect on speed. Whether the measured code has changed is told by `code`."""
OF_PRECISION = ("environment.variables.NVIDIA_TF32_OVERRIDE",)
"""The variable that every precision but tf32 sets for its ranks on a GPU."""
MEMORY = 0.02
"""Machines of one kind report sizes of memory that differ by up to this share."""
CARDS = "environment.gpus"
NAMES = {
    "environment.packages.": "package ",
    "environment.variables.": "variable ",
    "environment.": "",
    "data.content_digest": "data.content",
}
"""Map the beginnings of keys to what stands in their place; the first that fits counts."""
ORDER = (
    "device.", "power limit", "clock", "ecc", "mig", "driver", "cuda", "nccl", "cudnn", "framework", "options.",
    "optimizer.", "steps.", "python", "code", "commit", "data.", "cpu", "kernel", "os", "memory",
)  # fmt: skip
"""Beginnings of words in names, from what matters most for the speed. Everything else comes last."""
NAMED, LONG = 3, 80
"""How many differences between two environments are named; how many characters a printed value has at most."""


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested maps as one map with dotted keys."""
    result: dict[str, Any] = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        result |= flat(inner, f"{name}.") if isinstance(inner, Mapping) else {name: inner}
    return result


def of_run(run: RunRecord) -> dict[str, Any]:
    """Return the device, the environment and the data of a run, by dotted keys."""
    return by_key(run.device, run.environment, run.data)


def by_key(device: Device | None, environment: Mapping[str, Any], data: Data | None) -> dict[str, Any]:
    """Return a device, an environment and data by dotted keys."""
    return flat({
        "device": {"kind": device.kind, "name": device.name} if device else {},
        "environment": {key: value for key, value in environment.items() if key not in UNLIKE_ANYWAY},
        "data": {"content_digest": data.content_digest} if data else {},
    })  # fmt: skip


def differing(
    here: Mapping[str, Any], there: Mapping[str, Any], ignoring: tuple[str, ...] = ()
) -> dict[str, tuple[Any, Any]]:
    """Map each fact in which two environments differ to both of its values.

    A fact that one side does not know is no difference; a variable that one side does not have is one. ignoring: the
    beginnings of keys that are left out.
    """
    both = {key: (here.get(key), there.get(key)) for key in [*here, *there] if not key.startswith(ignoring)}
    return {key: values for key, values in both.items() if _differs(key, *values)}


def _differs(key: str, one: Any, other: Any) -> bool:
    if one is None or other is None:
        return bool(one != other) and key.startswith(VARIABLES)
    if key.endswith("memory_bytes") and all(isinstance(value, int | float) for value in (one, other)):
        return bool(abs(one - other) > MEMORY * max(one, other))
    return bool(one != other)


def between(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Difference]:
    """Return the facts in which two environments differ, what matters most for the speed first."""
    facts = differing(_by_card(here), _by_card(there), ("environment.gpu_topology",))
    found = [_difference(key, *values) for key, values in facts.items()]
    ranks = {one.name: [place for place, word in enumerate(ORDER) if f" {word}" in f" {one.name}"] for one in found}
    return sorted(found, key=lambda one: (ranks[one.name] or [len(ORDER)])[0])


def _difference(key: str, here: Any, there: Any) -> Difference:
    """Return a fact that differs, with its name and its values as texts."""
    start = next((start for start in NAMES if key.startswith(start)), "")
    name = NAMES.get(start, "") + key.removeprefix(start)
    digits = 12 if name in ("data.content", "commit") else None
    return Difference(name=name, here=short(here)[:digits], there=short(there)[:digits])


def _by_card(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with the settings of all GPUs: one value if all have the same, otherwise all values."""
    cards = known.get(CARDS) or []
    settings = {}
    for name in dict.fromkeys(name for card in cards for name in card):
        values = [card[name] for card in cards if name in card]
        different = [value for place, value in enumerate(values) if value not in values[:place]]
        settings[f"gpu {name.replace('_', ' ')}"] = different[0] if len(different) == 1 else different
    return {key: value for key, value in known.items() if key != CARDS} | settings


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
        ignoring += BY_TOPOLOGY
    facts = differing(first.facts, second.facts, ignoring)
    found = [_difference(key, *values) for key, values in facts.items()]
    return [f"{one.name} is {one.here} and {one.there}" for one in found]


def unlike(first: Cell, second: Cell) -> tuple[str, ...]:
    """Return why two cells must not be compared: a failed equivalence check, or different surroundings."""
    if first.framework != second.framework:
        barred = dict.fromkeys(f"{cell.framework} {cell.doubt}" for cell in (first, second) if cell.barred)
        if barred:
            return tuple(f"{text} (equivalence.json)" for text in barred)
    found = differences(first, second)
    return (*found[:NAMED], *([f"{len(found) - NAMED} more differences"] if len(found) > NAMED else []))


def derived(cell: Cell, extra: str, everything: Iterable[Group]) -> tuple[Cell | None, list[str]]:
    """Return the same cell in an extra's benchmark, and what differs; None if it was not measured there."""
    for group in everything:
        if (group.benchmark, group.name) == (f"{cell.group.benchmark}__{extra}", cell.group.name):
            there = group.cell(cell.framework, cell.topology)
            if there and there.ok:
                return there, differences(cell, there)
    return None, []

"""What differs between two measurements of one cell, in the order in which it is likely to matter for the speed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from throughline.records import RunRecord, Summary
from throughline.records.compared import Difference
from throughline.report.analysis import facts as known_facts
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.differences import LONG
from throughline.spec import values as json_values

ORDER = (
    "device.", "power limit", "clock", "ecc", "mig", "driver", "cuda", "nccl", "cudnn", "framework", "options.",
    "optimizer.", "steps.", "python", "code", "commit", "data.", "cpu", "kernel", "os", "memory",
)  # fmt: skip
"""Beginnings of names, or words in them, from what matters most. Everything else comes last."""
CARD = "environment.gpus"
SAME_WORK = ("model", "parameters", "scaling", "unit", "job")
"""The parts of a summary in which two sides have to agree. Otherwise they do different work."""


def work(ours: Summary, theirs: Summary) -> list[str]:
    """Return why two summaries do not state the speed of the same work; empty if they do."""
    pairs = ((name, _plain(getattr(ours, name)), _plain(getattr(theirs, name))) for name in SAME_WORK)
    return [f"{name} is {_short(here)} here and {_short(there)} there" for name, here, there in pairs if here != there]


def of_runs(ours: RunRecord, theirs: RunRecord) -> list[Difference]:
    """Return what differs in devices and software between two runs, as `between` does."""
    return between(*(dict(_named(known_facts.of_run(run))) for run in (ours, theirs)))


def between(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Difference]:
    """Return what differs between the facts of two sides, what matters most first.

    A fact that one side does not know is no difference. A variable that one side does not have is one.
    """
    differing = []
    for name in dict.fromkeys([*here, *there]):
        one, other = here.get(name), there.get(name)
        if one == other or not known_facts.differing({name: one}, {name: other}):
            continue
        if None in (one, other) and not name.startswith("variable "):
            continue
        differing.append(Difference(name=name, here=_short(one), there=_short(other)))
    return sorted(differing, key=lambda fact: _rank(fact.name))


def facts(cell: Cell) -> dict[str, Any]:
    """Return what may decide the speed of a cell: devices, software, options and data."""
    return dict(_facts(cell))


def _facts(cell: Cell) -> Iterator[tuple[str, Any]]:
    yield from _named(cell.facts)
    summary = cell.group.summary
    for part in ("options", "optimizer", "steps"):
        for name, value in known_facts.flat(_plain(getattr(summary, part))).items():
            yield f"{part}.{name}", value
    if summary.global_batch:  # then the options state no accumulation, and each topology has its own
        yield "options.gradient_accumulation", cell.size.gradient_accumulation


def _named(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield facts about a machine and its software by the names that people read."""
    for key, value in facts.items():
        name = key.removeprefix("environment.")
        if key.startswith(CARD) and isinstance(value, list):
            yield from _cards(value)
        elif name.startswith("packages."):
            yield f"package {name.removeprefix('packages.')}", value
        elif name.startswith("variables."):
            yield f"variable {name.removeprefix('variables.')}", value
        elif key == "data.content_digest":
            yield "data.content", str(value)[:12]
        elif name == "commit":
            yield name, value and str(value)[:12]
        elif not name.startswith("gpu_topology"):
            yield name, value


def _cards(cards: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a run's GPUs: one value if all have the same, otherwise all values."""
    values: dict[str, list[Any]] = {}
    for card in cards:
        for name, value in card.items():
            known = values.setdefault(name, [])
            if value not in known:
                known.append(value)
    for name, known in values.items():
        yield f"gpu {name.replace('_', ' ')}", known[0] if len(known) == 1 else known


def _rank(name: str) -> int:
    beginnings = (place for place, word in enumerate(ORDER) if name.startswith(word) or f" {word}" in f" {name}")
    return next(beginnings, len(ORDER))


def _plain(value: Any) -> Any:
    return json_values(value) if hasattr(value, "__dataclass_fields__") else value


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= LONG else f"{text[:LONG]}..."

"""What may explain that a device or a node is slow: facts in its records that its peers do not share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from throughline import statistics
from throughline.acceptance.explanations import FACTS, THROTTLES, Fact, Part
from throughline.acceptance.measured import Run
from throughline.numbers import reading
from throughline.records.acceptance import DifferingFact

Value = float | str | frozenset[str]
MAJORITY = 0.75
"""A value differs from the peers' only if this share of them have the same text, or a better number."""
FAR = 3 * 1.4826
"""A number differs only if it is so many median absolute deviations from the peers' median: 3 standard deviations."""


def different(
    here: Sequence[Run],
    peers: Sequence[Sequence[Run]],
    node: int,
    of_peers: Sequence[int],
    alike: Sequence[bool],
    parts: frozenset[Part],
    when: str = "",
) -> list[DifferingFact]:
    """Return the facts that differ here from the peers: first those that explain a figure, what explains most first.

    here: the runs of the slow place; peers: those of each other place; node, of_peers: the node of each place, whose
    part of a record is asked; alike: whether each other place is a device with the same index; parts: what the figure
    needs, so no other facts are reasons; when: words about the time of the telemetry.
    """
    own = _facts([_of(run, node) for run in here])
    others = [_facts([_of(run, other) for run in runs]) for runs, other in zip(peers, of_peers, strict=True)]
    same = [values for values, is_alike in zip(others, alike, strict=True) if is_alike]
    found = []
    for fact in sorted(FACTS, key=lambda fact: fact.part not in parts):
        difference = _difference(fact, own, same if fact.same_index else others)
        if difference:
            named = f"{difference.fact}{when}" if fact.of.startswith("telemetry") else difference.fact
            why = difference.why if fact.part in parts else None
            found.append(difference.model_copy(update={"fact": named, "why": why}))
    return found


def _of(run: Run, node: int) -> dict[str, Value]:
    """Return all known facts of a node in one record, by the fact's place and key."""
    index = run.nodes.index(node)
    record = run.record
    values: dict[str, Value] = {}
    for observed in record.telemetry:
        if observed.node == index:
            values |= _telemetry([device.model_dump() for device in observed.devices], observed.machine)
    for hardware in record.hardware or ():
        if hardware.node == index:
            machine = hardware.model_dump()["machine"]
            values |= {f"hardware.machine.{name}": value for name, value in _plain(_with_links(machine))}
            values |= {f"hardware.device.{name}": value for name, value in _worst(hardware.devices)}
    if len(run.measurement.place.nodes) == 1:
        software = record.environment.get("framework")
        values |= {f"software.{name}": value for name, value in _plain(software if isinstance(software, dict) else {})}
    return values


def _telemetry(devices: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> dict[str, Value]:
    """Return the means over the window. Of several devices, the worst one counts."""
    means = [
        {name: part["mean"] for name, part in device.items() if isinstance(part, dict) and "mean" in part}
        for device in devices
    ]
    values: dict[str, Value] = {f"telemetry.device.{name}": value for name, value in _worst(means)}
    reasons = [device["throttle_reasons"] for device in devices if device.get("throttle_reasons") is not None]
    if reasons:
        named = frozenset(THROTTLES[name] for names in reasons for name in names if name in THROTTLES)
        values["telemetry.device.throttle_reasons"] = named
    for name in ("cpu_others_share", "cpu_steal_share"):
        if machine.get(name) is not None:
            values[f"telemetry.machine.{name}"] = 100 * machine[name].mean
    return values


def _with_links(machine: dict[str, Any]) -> dict[str, Any]:
    """Add the speeds of a node's network as numbers: the sums of its interfaces, and of its active ports."""
    speeds = [card["gbit_per_s"] for card in machine.get("network") or () if card["gbit_per_s"]]
    ports = [port for port in machine.get("infiniband") or () if is_active(port["state"])]
    rates = [port["gbit_per_s"] for port in ports if port["gbit_per_s"]]
    return machine | {
        "network_gbit_per_s": sum(speeds) or None,
        "infiniband_gbit_per_s": sum(rates) or None,
        "infiniband_ports": len(ports) if machine.get("infiniband") else None,
    }


def is_active(state: str | None) -> bool:
    """Return whether a port of InfiniBand can carry data."""
    return state == "active"


def _plain(values: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Yield the values that can be compared. A truth value becomes a word, and a list of them counts the true ones."""
    for name, value in values.items():
        if isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, int | float):
            yield name, float(value)
        elif isinstance(value, str):
            yield name, value
        elif isinstance(value, list) and value and all(isinstance(one, bool) for one in value):
            yield name, float(sum(value))


def _worst(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Value]]:
    """Yield the facts of one device; of several devices, the worst number, and a text that all share."""
    plain = [dict(_plain(device)) for device in devices]
    high = {fact.key for fact in FACTS if fact.bad == "high"}
    for name in dict.fromkeys(name for device in plain for name in device):
        values = [device[name] for device in plain if name in device]
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) == len(values):
            yield name, (max if name in high else min)(numbers)
        elif len(set(values)) == 1:
            yield name, values[0]


def _facts(repeats: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """Return the median of each number over the repeats, the most frequent text, and what half of the sets have."""
    facts: dict[str, Value] = {}
    for name in dict.fromkeys(name for values in repeats for name in values):
        values = [one[name] for one in repeats if name in one]
        numbers = [value for value in values if isinstance(value, float)]
        sets = [value for value in values if isinstance(value, frozenset)]
        middle = statistics.median(numbers)
        if sets:
            facts[name] = _in(sets, 0.5)
        else:
            facts[name] = middle if middle is not None and len(numbers) == len(values) else _usual(values)[0]
    return facts


def _in(sets: Sequence[frozenset[str]], share: float) -> frozenset[str]:
    """Return what at least this share of the sets have."""
    counted = Counter(one for names in sets for one in names)
    return frozenset(one for one, count in counted.items() if count >= share * len(sets))


def _usual(values: Iterable[Value]) -> tuple[Value, float]:
    """Return the most frequent value and its share."""
    counted = Counter(values)
    value, count = counted.most_common(1)[0]
    return value, count / counted.total()


def _difference(fact: Fact, own: Mapping[str, Value], others: Sequence[Mapping[str, Value]]) -> DifferingFact | None:
    """Return how a fact differs from that of most peers; None if it does not, or if it is not known."""
    name = f"{fact.of}.{fact.key}"
    here, theirs = own.get(name), [values[name] for values in others if name in values]
    if here is None or not theirs:
        return None
    if isinstance(here, frozenset):
        return _more_reasons(fact, here, [value for value in theirs if isinstance(value, frozenset)])
    if fact.bad == "other":
        usual, share = _usual(theirs)
        if here == usual or share < MAJORITY:
            return None
        return DifferingFact(fact=fact.words, here=_text(here, fact), others=_text(usual, fact), why=fact.why)
    numbers = [value for value in theirs if isinstance(value, float)]
    middle = statistics.median(numbers)
    if not isinstance(here, float) or middle is None or not _is_worse(fact, here, numbers, middle):
        return None
    return DifferingFact(fact=fact.words, here=_text(here, fact), others=_text(middle, fact), why=fact.why)


def _is_worse(fact: Fact, here: float, theirs: Sequence[float], middle: float) -> bool:
    """Return whether most peers have a better number, from which this one is far away. One odd peer hides nothing."""
    better = sum((here > one) if fact.bad == "high" else (here < one) for one in theirs)
    usual = FAR * (statistics.median_absolute_deviation(theirs) or 0.0)
    least = fact.least if fact.absolute else fact.least * abs(middle)
    return better >= MAJORITY * len(theirs) and abs(here - middle) >= max(least, usual)


def _more_reasons(fact: Fact, here: frozenset[str], theirs: Sequence[frozenset[str]]) -> DifferingFact | None:
    """Return the reasons for a lower clock that most peers do not have."""
    more = [reason for reason in sorted(here) if sum(reason not in one for one in theirs) >= MAJORITY * len(theirs)]
    if not more:
        return None
    own, others = ", ".join(more), ", ".join(sorted(_in(theirs, 0.5))) or "none"
    return DifferingFact(fact=fact.words, here=own, others=others, why=own)


def _text(value: Value, fact: Fact) -> str:
    if not isinstance(value, float):
        return str(value)
    if fact.unit == "bytes":
        return f"{value / 2**30:,.0f} GiB"
    whole: Callable[[float], str] = lambda number: f"{number:,.0f}"  # noqa: E731
    number = whole(value) if value == round(value) or abs(value) >= 100 else reading(value)
    return f"{number} {fact.unit}".strip()

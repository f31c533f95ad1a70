"""What figures should be: what `accept.expected` and `accept.published` say, and what the hardware can reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from throughline import gpus, statistics
from throughline.acceptance import facts
from throughline.acceptance.measured import FigureKey, Measured, Spot, Values
from throughline.numbers import reading
from throughline.records.acceptance import NAMES, ExpectedEntry, FigureEntry
from throughline.study.accept_section import Expectation
from throughline.study.acceptance import FIGURES, Acceptance

NVLINK = "all NVLinks of a device in one direction, from its datasheet; sums within a switch (SHARP) can exceed it"
LITTLE = 0.5
"""If usual pairs reach less than this share of their network, the result says so."""
LINK = "the speed of the nodes' network, as the system states it"


def expected(asked: Acceptance, values: Values) -> list[ExpectedEntry]:
    """Compare what is expected with the slowest place that it is about."""
    return [_compared(one, values, asked.tolerance) for one in asked.expected]


def published(asked: Acceptance, values: Values) -> list[ExpectedEntry]:
    """Set what is published beside the slowest place that it is about. Nothing falls short of it."""
    return [_compared(one, values, None) for one in asked.published]


def _compared(one: Expectation, values: Values, tolerance: float | None) -> ExpectedEntry:
    """Compare one figure with the slowest place. tolerance: None if the figure is only published."""
    figure = one.figure or next(iter(FIGURES[one.what]), "samples_per_s")
    found = [
        key
        for key in values
        if (key.what, key.figure, key.kind) == (one.what, figure, one.at) and one.size in (None, key.size)
    ]
    key = max(found, key=lambda key: key.size or 0, default=None)
    asked: dict[str, object] = {
        "what": one.what,
        "at": one.at,
        "figure": figure,
        "expected": one.value,
        "unit": one.unit,
        "source": one.source,
    }
    kind = "published" if tolerance is None else "expected"
    wanted = f"{reading(one.value)} {one.unit} ({one.source})"
    about = f"{NAMES.get((one.what, figure), f'{one.what}: {figure}')}, {_at(one.at)}:"
    if key is None or key.unit != one.unit:
        why = "was not measured" if key is None else f"is measured in {key.unit}"
        sentence = f"{about} {wanted} is {kind}, and the figure {why}."
        rest: dict[str, object] = {"size": one.size, "place": None, "reached": None, "share": None, "short": False}
        return ExpectedEntry.model_validate({**asked, **rest, "sentence": sentence})
    spot, reached = _slowest(values[key], key.less)
    share = one.value / reached if key.less else reached / one.value
    verb = "below" if share < 1 else "above"
    beside = f"{100 * share:.1f} % of" if tolerance is None else f"{100 * abs(share - 1):.1f} % {verb}"
    found_at: dict[str, object] = {
        "size": key.size,
        "place": str(spot),
        "reached": reached,
        "share": share,
        "short": tolerance is not None and share < 1 - tolerance,
        "sentence": f"{about} {reading(reached)} {key.unit} at the slowest ({spot}), {beside} the {kind} {wanted}.",
    }
    return ExpectedEntry.model_validate({**asked, **found_at})


def _at(kind: str) -> str:
    return {"device": "each device", "node": "each node", "pair": "each pair", "all": "all nodes together"}[kind]


def _slowest(places: Mapping[Spot, Mapping[int, float]], less: bool) -> tuple[Spot, float]:
    """Return the place with the worst median, and this median."""
    medians = {spot: statistics.median(list(values.values())) or 0.0 for spot, values in places.items()}
    spot = (max if less else min)(medians, key=medians.__getitem__)
    return spot, medians[spot]


def of_hardware(key: FigureKey, measured: Measured) -> tuple[float, str] | None:
    """Return what the hardware can reach at most, in the figure's unit, and who says so; None if nobody does."""
    if key.kind in ("pair", "link", "all"):
        return _network(key, measured)
    gpu = gpus.find(measured.device) if measured.device else None
    if gpu and gpu.nvlink_bytes_per_s and (key.kind, key.figure) == ("node", "bus_bandwidth"):
        return gpu.nvlink_bytes_per_s / 1e9, NVLINK
    if gpu is None or key.kind != "device":
        return None
    if key.figure == "matmul":
        precision = next(run.measurement.spec.precision for run in measured.runs if run.measurement.what == key.what)
        peak = gpu.peak_flops_per_s.get(precision)
        return (peak / 1e12, f"dense peak in {precision}, {gpu.source}") if peak else None
    if key.figure == "vector_memory" and gpu.memory_bytes_per_s:
        return gpu.memory_bytes_per_s / 1e9, f"memory bandwidth, {gpu.source}"
    return None


def _network(key: FigureKey, measured: Measured) -> tuple[float, str] | None:
    """Return the bandwidth of a usual node's network: of its active InfiniBand ports, or of its fastest interface.

    It is the median of the nodes, so a node whose network has become slow does not lower what is expected of all. A
    ring of all-reduce sends over a node's network what its bus bandwidth counts. Simulated nodes have no network
    between them.
    """
    if key.figure != "bus_bandwidth":
        return None
    speeds: dict[int, list[float]] = {}
    for run in measured.runs:
        place = run.measurement.place
        if place.kind not in ("pair", "all") or run.measurement.spec.hosts == "simulated":
            continue
        for hardware in run.record.hardware or ():
            active = [port for port in hardware.interfaces("infiniband") if facts.is_active(port.state)]
            ports = [port.gbit_per_s for port in active if port.gbit_per_s]
            cards = [card.gbit_per_s for card in hardware.interfaces("network") if card.gbit_per_s]
            if ports or cards:
                speeds.setdefault(run.nodes[hardware.node], []).append(sum(ports) or max(cards))
    usual = statistics.median([statistics.median(of_node) or 0.0 for of_node in speeds.values()])
    return (usual / 8, LINK) if usual else None


def remarks(figures: Sequence[FigureEntry]) -> Iterator[str]:
    """Yield a sentence if even a usual pair of nodes reaches much less than its network: then no pair stands out."""
    for figure in figures:
        middle = statistics.median([one.median for one in figure.standings])
        if (figure.kind, figure.judged, figure.limit_source) != ("pair", True, LINK) or not middle or not figure.limit:
            continue
        if middle < LITTLE * figure.limit:
            yield (
                f"the pairs of nodes reach {100 * middle / figure.limit:.0f} % of their network's speed (median "
                f"{reading(middle)} of {reading(figure.limit)} {figure.unit}): look whether the exchange takes the "
                "interface that it should"
            )

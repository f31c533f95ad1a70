"""What figures should be: what `accept.expected` and `accept.published` say, and what the hardware can reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from throughline import gpus, statistics
from throughline.acceptance.facts import active_ports
from throughline.acceptance.measured import Measured
from throughline.numbers import reading
from throughline.records.acceptance import ExpectedFigure, FleetFigure, Standing, name_of
from throughline.study.accept_section import FIGURES, Expectation

NVLINK = "all NVLinks of a device in one direction, from its datasheet; sums within a switch (SHARP) can exceed it"
LITTLE = 0.5
"""If usual pairs reach less than this share of their network, the result says so."""
LINK = "the speed of the nodes' network, as the system states it"
AT = {"device": "each device", "node": "each node", "pair": "each pair", "all": "all nodes together"}


def compare(wanted: Expectation, figures: Sequence[FleetFigure], tolerance: float | None) -> ExpectedFigure:
    """Compare what is wanted with the slowest place that it is about. tolerance: None if it is only published."""
    name = wanted.figure or FIGURES[wanted.what][0]
    sizes = {
        figure.size or 0: figure
        for figure in figures
        if (figure.what, figure.figure, figure.kind) == (wanted.what, name, wanted.at)
    }
    figure = sizes.get(wanted.size or max(sizes, default=0))
    kind = "published" if tolerance is None else "expected"
    value = f"{reading(wanted.value)} {wanted.unit} ({wanted.source})"
    outcome: dict[str, Any] = {"size": wanted.size}
    if figure is None or figure.unit != wanted.unit:
        why = f"is measured in {figure.unit}" if figure else "was not measured"
        sentence = f"{value} is {kind}, and the figure {why}."
    else:
        slowest = (max if figure.better == "less" else min)(figure.standings, key=lambda standing: standing.median)
        share = share_of(wanted.value, slowest, figure)
        side = "below" if share < 1 else "above"
        beside = f"{100 * share:.1f} % of" if tolerance is None else f"{100 * abs(share - 1):.1f} % {side}"
        reached = f"{reading(slowest.median)} {figure.unit} at the slowest ({slowest.place})"
        sentence = f"{reached}, {beside} the {kind} {value}."
        is_short = tolerance is not None and share < 1 - tolerance
        outcome = {"size": figure.size, "place": str(slowest.place), "reached": slowest.median}
        outcome |= {"share": share, "short": is_short}
    return ExpectedFigure(
        what=wanted.what,
        at=wanted.at,
        figure=name,
        expected=wanted.value,
        unit=wanted.unit,
        source=wanted.source,
        sentence=f"{name_of(wanted.what, name)}, {AT[wanted.at]}: {sentence}",
        **outcome,
    )


def share_of(wanted: float, standing: Standing, figure: FleetFigure) -> float:
    """Return the speed of a place over the speed that is wanted."""
    return wanted / standing.median if figure.better == "less" else standing.median / wanted


def of_hardware(figure: FleetFigure, measured: Measured) -> tuple[float, str] | None:
    """Return what the hardware can reach at most, in the figure's unit, and who says so; None if nobody does."""
    if figure.kind in ("pair", "link", "all"):
        return _network(measured) if figure.figure == "bus_bandwidth" else None
    gpu = gpus.find(measured.device) if measured.device else None
    if gpu and gpu.nvlink_bytes_per_s and (figure.kind, figure.figure) == ("node", "bus_bandwidth"):
        return gpu.nvlink_bytes_per_s / 1e9, NVLINK
    if gpu is None or figure.kind != "device":
        return None
    if figure.figure == "matmul":
        precision = next(run.measurement.spec.precision for run in measured.runs if run.measurement.what == "matmul")
        peak = gpu.peak_flops_per_s.get(precision)
        return (peak / 1e12, f"dense peak in {precision}, {gpu.source}") if peak else None
    if figure.figure == "vector_memory" and gpu.memory_bytes_per_s:
        return gpu.memory_bytes_per_s / 1e9, f"memory bandwidth, {gpu.source}"
    return None


def _network(measured: Measured) -> tuple[float, str] | None:
    """Return the bandwidth of a usual node's network: of its active InfiniBand ports, or of its fastest interface.

    It is the median of the nodes, so a node whose network has become slow does not lower what is expected of all. A
    ring of all-reduce sends over a node's network what its bus bandwidth counts. Simulated nodes have no network
    between them.
    """
    speeds: dict[int, list[float]] = {}
    for run in measured.runs:
        if run.place.kind not in ("pair", "all") or run.measurement.spec.hosts == "simulated":
            continue
        for hardware in run.record.hardware or ():
            ports = [port.gbit_per_s for port in active_ports(hardware) if port.gbit_per_s]
            cards = [card.gbit_per_s for card in hardware.interfaces("network") if card.gbit_per_s]
            if ports or cards:
                speeds.setdefault(run.nodes[hardware.node], []).append(sum(ports) or max(cards))
    usual = statistics.median([statistics.median(of_node) or 0.0 for of_node in speeds.values()])
    return (usual / 8, LINK) if usual else None


def remarks(figures: Sequence[FleetFigure]) -> Iterator[str]:
    """Yield a sentence if even a usual pair of nodes reaches much less than its network: then no pair stands out."""
    for figure in figures:
        if (figure.kind, figure.judged, figure.limit_source) != ("pair", True, LINK) or not figure.limit:
            continue
        usual = statistics.median([standing.median for standing in figure.standings]) or 0.0
        if usual < LITTLE * figure.limit:
            yield (
                f"The pairs of nodes reach {100 * usual / figure.limit:.0f} % of their network's speed (median "
                f"{reading(usual)} of {reading(figure.limit)} {figure.unit}): look whether the exchange takes the "
                "interface that it should"
            )

"""Each figure of a fleet with all of its places, each of them beside its peers. outliers.py decides who is slow.

What figures should be stands beside them: what `accept.expected` and `accept.published` say, and what the hardware can
reach.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from throughline import gpus, outliers, statistics
from throughline.acceptance.facts import active_ports
from throughline.acceptance.measured import FIGURE, Measured
from throughline.numbers import reading
from throughline.records.acceptance import ExpectedFigure, FleetFigure, Standing, name_of
from throughline.study.accept_section import FIGURES, Expectation
from throughline.study.acceptance import Place, PlaceKind

NVLINK = "all NVLinks of a device in one direction, from its datasheet; sums within a switch (SHARP) can exceed it"
LITTLE = 0.5
"""If usual pairs reach less than this share of their network, the result says so."""
LINK = "the speed of the nodes' network, as the system states it"
AT = {"device": "each device", "node": "each node", "pair": "each pair", "all": "all nodes together"}
Family = dict[int, outliers.Peers[Place]]
Outcomes = dict[int, dict[Place, outliers.Standing]]


def judge(measured: Measured, tolerance: float) -> list[FleetFigure]:
    """Return every figure. The figures of peers are judged as one family, and the others only have distances."""
    bare = list(_bare(measured, tolerance))
    compared = of_peers([figure for figure, _ in bare])
    family = {number: peers for number, (figure, peers) in enumerate(bare) if figure in compared}
    outcomes = _in_two_looks(family, {number: bare[number][0].kind for number in family})
    figures = []
    for number, (figure, peers) in enumerate(bare):
        judged = number in family and len(peers.values) >= outliers.LEAST_PARTS
        places = outcomes.get(number) or outliers.judge({number: peers})[number]
        standings = [_standing(place, peers, places[place], judged) for place in sorted(places)]
        figures.append(figure.model_copy(update={"judged": judged, "standings": standings}))
    return figures


def _bare(measured: Measured, tolerance: float) -> Iterator[tuple[FleetFigure, outliers.Peers[Place]]]:
    """Yield each figure without its places, and their values by repeat."""
    for names, lines in measured.values().groupby(FIGURE, sort=False):
        key: dict[str, Any] = dict(zip(FIGURE, names, strict=True))
        figure = FleetFigure.model_validate(key | {"size": int(key["size"]) or None})
        limit, source = of_hardware(figure, measured) or (None, None)
        values: dict[Place, dict[int, float]] = {}
        for place, repeat, value in zip(lines.place, lines.repeat, lines.value, strict=True):
            values.setdefault(place, {})[int(repeat)] = float(value)
        peers = outliers.Peers(values, figure.better == "less", figure.tolerance(tolerance))
        yield figure.model_copy(update={"limit": limit, "limit_source": source}), peers


def largest(figures: Sequence[FleetFigure]) -> list[FleetFigure]:
    """Return the figures that are compared: of an all-reduce, the bandwidth of the largest message and the latency."""
    sizes: dict[PlaceKind, int] = {}
    for figure in figures:
        if figure.figure == "bus_bandwidth":
            sizes[figure.kind] = max(figure.size or 0, sizes.get(figure.kind, 0))
    return [figure for figure in figures if figure.figure != "bus_bandwidth" or figure.size == sizes[figure.kind]]


def of_peers(figures: Sequence[FleetFigure]) -> list[FleetFigure]:
    """Return the figures whose places are peers, by name."""
    peers = [figure for figure in largest(figures) if figure.kind != "all"]
    return sorted(peers, key=lambda figure: (figure.what, figure.figure, str(figure.size), figure.kind))


def _in_two_looks(family: Family, kinds: Mapping[int, PlaceKind]) -> Outcomes:
    """Judge all figures as one family, then once more with pairs of sound nodes only, if a node is slow.

    The pairs of a slow node are slow because of it. Of four nodes they are half of all pairs, and hide a slow link. A
    pair is slow if one of both looks says so. If it is the network of a node that is slow, none of its pairs is. With
    equal nodes there is no second look, so it gives no alarm of its own.
    """
    first = outliers.judge(family)
    slow: dict[PlaceKind, set[int]] = {"link": set(), "device": set(), "node": set(), "pair": set()}
    for number, places in first.items():
        slow[kinds[number]] |= {place.nodes[0] for place, standing in places.items() if standing.slow}
    away = slow["link"] | slow["device"] | slow["node"]
    if not away:
        return first
    pairs = [number for number in family if kinds[number] == "pair"]
    sound = {
        number: replace(peers, values={place: of for place, of in peers.values.items() if not away & set(place.nodes)})
        for number, peers in family.items()
        if number in pairs
    }
    second = outliers.judge(family | sound)
    for number, places in second.items():
        for place, standing in first[number].items():
            is_explained = number in pairs and bool(slow["link"] & set(place.nodes))
            again = places.get(place, standing)
            first[number][place] = replace(again, slow=not is_explained and (standing.slow or again.slow))
    return first


def _standing(place: Place, peers: outliers.Peers[Place], outcome: outliers.Standing, judged: bool) -> Standing:
    values = vars(outcome) | {
        "place": place,
        "repeats": {str(repeat): value for repeat, value in sorted(peers.values[place].items())},
        "verdict": "not judged" if not judged else "slow" if outcome.slow else "as its peers",
        "because": None,
    }
    values |= {} if judged else {"p": None, "p_holm": None}
    return Standing.model_validate({name: values[name] for name in Standing.model_fields})


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

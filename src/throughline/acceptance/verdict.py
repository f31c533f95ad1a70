"""Judge an acceptance: from its records to the content of results/acceptance.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from throughline import outliers, records
from throughline.acceptance import broken, dates, findings, limits, summary, undecided
from throughline.acceptance.measured import UNSUPPORTED, FigureKey, Measured, Spot, Values, judged, read
from throughline.acceptance.slow import Standings, slow_nodes
from throughline.outliers import Peers, Standing
from throughline.records.acceptance import (
    NAMES,
    Acceptance,
    AcceptanceVerdict,
    Away,
    FigureEntry,
    StandingEntry,
    first_of,
    unsure,
)
from throughline.study import acceptance as study

STATUS: dict[AcceptanceVerdict, int] = {"fit": 0, "outliers": 1, "not measured": 2}
"""The exit statuses."""
STARTS = (
    "not certain", "slow ones", "some places", "the runs", "the pairs", "the devices", "the figures", "these figures"
)  # fmt: skip
"""How sentences begin that are no sentences about a place: `node 3` keeps its small letter."""


def judge(asked: study.Acceptance, folder: Path = Path(), away: Mapping[int, str] = MappingProxyType({})) -> Acceptance:
    """Judge what was measured. folder: the one above results/; away: why nodes cannot be measured now, by number."""
    measured = read(asked, folder, away)
    values = measured.values()
    standings = _standings(values, asked.tolerance)
    found = [*broken.find(measured.broken, len(asked.fleet.nodes)), *findings.find(measured, standings)]
    expected = limits.expected(asked, values)
    slow_nodes = {finding.place.nodes[0] for finding in found if finding.place.kind != "pair"}
    unjudged = list(undecided.differences(standings, values, asked.tolerance, slow_nodes))
    if not summary.compared(standings) and not any(one.reached for one in expected):
        unjudged.append(summary.NO_PEERS)
    figures = [_figure(key, places, values, standings, measured) for key, places in values.items()]
    behind = [one for figure in figures if figure.kind != "link" for one in unsure(figure, found, asked.tolerance)]
    absent = [
        Away(node=node, reason=away[node], figures_of=dates.of_node(measured.runs, node)) for node in sorted(away)
    ]
    gaps = list(summary.gaps(measured.missing, absent, unjudged, behind, expected))
    short = [one for one in expected if one.short]
    verdict: AcceptanceVerdict = "outliers" if found or short else "not measured" if gaps else "fit"
    is_fit = verdict == "fit"
    outcome = summary.fit(asked.fleet, standings) if is_fit else summary.other(asked.fleet, found, short, gaps)
    starts = sorted(run.record.started for run in measured.runs)
    return Acceptance(
        schema_=records.SCHEMA,
        asked=json.loads(asked.text),
        tolerance=asked.tolerance,
        nodes=list(asked.fleet.nodes),
        devices=asked.fleet.devices,
        device=measured.device,
        started=next(iter(starts), None),
        ended=max((run.record.ended for run in measured.runs), default=None),
        verdict=verdict,
        summary=outcome,
        findings=found,
        expected=expected,
        published=limits.published(asked, values),
        missing=measured.missing,
        away=absent,
        unjudged=unjudged,
        remarks=[*_remarks(standings, measured), *limits.remarks(figures)],
        figures=figures,
    )


def _standings(values: Values, tolerance: float) -> dict[FigureKey, dict[Spot, Standing]]:
    """Judge all figures as one family, then once more with pairs of sound nodes only, if a node is slow.

    The pairs of a slow node are slow because of it. Of four nodes they are half of all pairs, and hide a slow link. A
    pair is slow if one of both looks says so. If it is the network of a node that is slow, none of its pairs is. With
    equal nodes there is no second look, so it gives no alarm of its own.
    """
    family = {key: Peers(values[key], key.less) for key in sorted(judged(values), key=str)}
    first = outliers.judge(family, tolerance)
    network = slow_nodes(first, "link")
    away = network | slow_nodes(first, "device", "node")
    if not away:
        return first
    second = outliers.judge(
        {
            key: Peers({spot: one for spot, one in peers.values.items() if not away & set(spot.nodes)}, peers.less)
            if key.kind == "pair"
            else peers
            for key, peers in family.items()
        },
        tolerance,
    )
    return {
        key: {
            spot: _of_both(before, second[key].get(spot), key.kind == "pair" and bool(network & set(spot.nodes)))
            for spot, before in places.items()
        }
        for key, places in first.items()
    }


def _of_both(first: Standing, second: Standing | None, explained: bool) -> Standing:
    """Return the outcome of two looks at a place. explained: a slow network of one of its nodes explains it."""
    return replace(second or first, slow=not explained and (first.slow or bool(second and second.slow)))


def _remarks(standings: Standings, measured: Measured) -> list[str]:
    """Say what limits the verdict: few places, few repeats, and records from different software."""
    remarks = [*undecided.limits(standings), *_without_peers(standings), *_models(measured)]
    counts = [len(standing.repeats) for places in standings.values() for standing in places.values()]
    if counts and min(counts) < 3:
        remarks.append("some places have fewer than 3 repeats: a short disturbance may look like a slow device")
    digests = {str(run.record.environment.get("code")) for run in measured.runs}
    if len(digests) > len({run.measurement.what for run in measured.runs}):
        remarks.append("the runs were made by different versions of Throughline's code")
    if apart := dates.apart(measured.runs):
        remarks.append(apart)
    return remarks


def _models(measured: Measured) -> Iterator[str]:
    """Yield which nodes have which devices, if these differ: they are compared all the same."""
    nodes: dict[str, set[int]] = {}
    for run in measured.runs:
        place = run.measurement.place
        if len(place.nodes) == 1 and run.record.device and run.record.device.name:
            nodes.setdefault(run.record.device.name, set()).add(place.nodes[0])
    if len(nodes) > 1:
        told = (f"{name} in {first_of(f'node {node}' for node in sorted(of))}" for name, of in sorted(nodes.items()))
        yield f"the devices are of different models, and a slower model looks like a slow device: {'; '.join(told)}"


def _without_peers(standings: Standings) -> Iterator[str]:
    """Yield which figures were not compared, if others were."""
    alone = [
        f"{NAMES.get((key.what, key.figure), key.what)} ({undecided.KINDS[key.kind]})"
        for key, places in standings.items()
        if key.kind in undecided.KINDS and not any(one.others for one in places.values())
    ]
    if alone and summary.compared(standings):
        yield f"these figures were not compared, because nothing else of their kind was measured: {', '.join(alone)}"


def _figure(
    key: FigureKey,
    places: Mapping[Spot, Mapping[int, float]],
    values: Values,
    standings: Standings,
    measured: Measured,
) -> FigureEntry:
    """Return a figure with all of its places. If it is not judged, its distances are known all the same."""
    known = standings.get(key) or outliers.judge({key: Peers(places, key.less)})[key]
    limit = limits.of_hardware(key, measured)
    return FigureEntry(
        what=key.what,
        figure=key.figure,
        size=key.size,
        kind=key.kind,
        unit=key.unit,
        better="less" if key.less else "more",
        judged=key in standings and len(places) >= outliers.LEAST_PARTS,
        limit=limit[0] if limit else None,
        limit_source=limit[1] if limit else None,
        standings=[
            _standing(spot, places[spot], standing, key in standings) for spot, standing in sorted(known.items())
        ],
    )


def _standing(spot: Spot, repeats: Mapping[int, float], standing: Standing, is_judged: bool) -> StandingEntry:
    low, high = standing.others_range or (None, None)
    return StandingEntry(
        place=spot.entry,
        repeats={str(repeat): value for repeat, value in sorted(repeats.items())},
        median=standing.median,
        low=standing.interval[0],
        high=standing.interval[1],
        coverage=standing.coverage,
        others=standing.others,
        others_median=standing.others_median,
        others_low=low,
        others_high=high,
        distance=standing.distance,
        p=standing.p if is_judged else None,
        p_holm=standing.p_holm if is_judged else None,
        slow=standing.slow and is_judged,
    )


def status(acceptance: Acceptance) -> int:
    """Return the exit status: 0 fit, 1 outliers, 2 not measured."""
    return STATUS[acceptance.verdict]


def can_be_measured(acceptance: Acceptance) -> bool:
    """True if another call may measure something that is missing now. What is not supported stays missing."""
    return any(not one.reason.startswith(UNSUPPORTED) for one in acceptance.missing) or bool(acceptance.away)


def lines(acceptance: Acceptance) -> Iterable[str]:
    """Yield the verdict as a terminal shows it."""
    yield acceptance.summary
    yield from (finding.sentence for finding in acceptance.findings)
    yield from (one.sentence for one in acceptance.expected if one.short or one.reached is None)
    yield from acceptance.unjudged
    yield from acceptance.away_in_words()
    yield from acceptance.missing_in_words()
    yield from acceptance.unsure_in_words()
    yield from acceptance.remarks


def paragraph(acceptance: Acceptance) -> str:
    """Return the verdict as one paragraph for an administrator or a vendor. It names no machine."""
    repeats = max((len(one.repeats) for figure in acceptance.figures for one in figure.standings), default=0)
    nodes, devices = summary.counted(len(acceptance.nodes), "node"), summary.counted(acceptance.devices, "device")
    each = " each" if len(acceptance.nodes) > 1 else ""
    name = f"{acceptance.devices} x {acceptance.device}" if acceptance.device else devices
    how = (
        f"Measured {acceptance.started or 'never'} to {acceptance.ended or 'never'} on {nodes} "
        f"with {name}{each}, {summary.counted(repeats, 'repeat')}; a place is called slow if it is more than "
        f"{100 * acceptance.tolerance:g} % slower than its peers and stands out among all places and figures."
    )
    sentences = (f"{one[0].upper()}{one[1:]}" if one.startswith(STARTS) else one for one in [how, *lines(acceptance)])
    return " ".join(one if one.endswith(".") else f"{one}." for one in sentences)

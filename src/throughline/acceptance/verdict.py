"""Judge an acceptance: from its records to results/acceptance.json, and to sentences about it or one of its nodes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from throughline import records
from throughline.acceptance import figures, findings, undecided
from throughline.acceptance.measured import UNSUPPORTED, Measured, read
from throughline.files import UserError
from throughline.numbers import counted
from throughline.records.acceptance import DISKS_DIFFER, STATUS, Acceptance, Away, FleetFigure, Missing, first_of
from throughline.study import acceptance as study

NO_PEERS = "no figure has peers: an acceptance compares at least three devices, nodes or pairs"


def judge(asked: study.Plan, folder: Path = Path(), away: Mapping[int, str] = MappingProxyType({})) -> Acceptance:
    """Judge what was measured. folder: the one above results/; away: why nodes cannot be measured now, by number."""
    measured = read(asked, folder, away)
    judged = figures.judge(measured, asked.tolerance)
    peers = figures.of_peers(judged)
    outliers = [*findings.refused(measured.broken, len(asked.fleet.nodes)), *findings.find(measured, peers)]
    if asked.quick:
        outliers.extend(findings.odd(measured, {node for one in outliers for node in one.place.nodes}))
    expected = [figures.compare(wanted, judged, asked.tolerance) for wanted in asked.expected]
    slow_nodes = {finding.place.nodes[0] for finding in outliers if finding.place.kind != "pair"}
    unjudged = list(undecided.differences(peers, asked.tolerance, slow_nodes))
    if not any(map(undecided.has_peers, peers)) and not any(figure.reached for figure in expected):
        unjudged.append(NO_PEERS)
    started = min((run.record.started for run in measured.runs), default=None)
    outcome = Acceptance(
        schema_=records.SCHEMA,
        asked=json.loads(asked.text),
        tolerance=asked.tolerance,
        nodes=list(asked.fleet.nodes),
        devices=asked.fleet.devices,
        device=measured.device,
        started=started,
        ended=max((run.record.ended for run in measured.runs), default=None),
        verdict="fit",
        summary=_fit(asked.fleet, peers),
        findings=outliers,
        expected=expected,
        published=[figures.compare(wanted, judged, None) for wanted in asked.published],
        missing=measured.missing,
        away=[Away(node=node, reason=away[node], figures_of=_days(measured, node)) for node in sorted(away)],
        unjudged=unjudged,
        remarks=[*undecided.remarks(peers, measured), *figures.remarks(judged)],
        figures=[undecided.with_doubts(figure, outliers, asked.tolerance) for figure in judged],
    )
    if asked.quick:  # nobody measures a pair of a node that has not passed
        bad = not_passed(outcome).keys()
        gaps_left = [run for run in outcome.missing if len(run.place.nodes) == 1 or not bad & set(run.place.nodes)]
        outcome = outcome.model_copy(update={"missing": gaps_left})
    gaps = list(_gaps(outcome))
    is_unfit = bool(outliers) or any(figure.short for figure in expected)
    verdict = "outliers" if is_unfit else "inconclusive" if gaps else "fit"
    changed = {} if verdict == "fit" else {"verdict": verdict, "summary": _not_fit(outcome, gaps)}
    return outcome.model_copy(update=changed)


def _days(measured: Measured, node: int) -> str | None:
    """Return the days of a node's own figures, such as `2026-11-01`; None if it has none."""
    days = sorted({run.record.ended[:10] for run in measured.runs if run.place.nodes == (node,)})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else None


def _fit(fleet: study.Fleet, peers: Sequence[FleetFigure]) -> str:
    """Return in one sentence that a fleet is fit, and of what nobody knows it, because it has no peers."""
    compared = {"link" if figure.kind == "pair" else figure.kind for figure in peers if undecided.has_peers(figure)}
    kinds = [*(["device"] if fleet.kind != "cpu" else []), "node", *(["link"] if len(fleet.nodes) > 1 else [])]
    equal = [kind for kind in kinds if kind in compared]
    either = " or ".join(filter(None, [", ".join(equal[:-1]), *equal[-1:]]))
    equally = f"no {either} is slow" if equal else "what is expected is reached"
    lacking = " and ".join(f"{kind}s" for kind in kinds if kind not in compared)
    which = f"The {len(fleet.nodes)} nodes are" if len(fleet.nodes) > 1 else "The node is"
    return f"{which} fit: {equally}{f'; {lacking} were not compared' if lacking else ''}."


def _not_fit(outcome: Acceptance, gaps: Sequence[str]) -> str:
    """Return in one sentence that a fleet is not fit, or that the verdict is inconclusive. gaps: why."""
    nodes, short = counted(len(outcome.nodes), "node"), sum(figure.short for figure in outcome.expected)
    parts = []
    kinds: dict[str, list[str]] = {"broken": [], "slow": [], "unlike the others": []}
    for finding in outcome.findings:
        how = "slow" if finding.slow else "unlike the others" if finding.facts else "broken"
        kinds[how].append(str(finding.place).replace(",", ""))
    for how, places in kinds.items():
        if places:
            parts.append(f"{how}: {', '.join(dict.fromkeys(places))}")
    if short:
        parts.append(f"{counted(short, 'figure')} {'is' if short == 1 else 'are'} below what is expected")
    if not parts:
        return f"The verdict on {nodes} is inconclusive: {'; '.join(gaps)}."
    return f"Not fit ({nodes}): {'; '.join([*parts, *gaps])}."


def _gaps(outcome: Acceptance) -> Iterator[str]:
    """Yield why a verdict is inconclusive."""
    if count := len(outcome.missing):
        places = first_of(run.place for run in outcome.missing)
        yield f"{counted(count, 'run')} {'is' if count == 1 else 'are'} missing ({places})"
    if away := outcome.away:
        yield f"{first_of(f'node {node.node}' for node in away)} {'are' if len(away) > 1 else 'is'} away"
    if outcome.unjudged:
        yield NO_PEERS if NO_PEERS in outcome.unjudged else "places differ, and nobody can tell which ones are slow"
    if doubts := _doubts(outcome):
        yield f"it is not certain whether these are slow: {first_of(place for _, place, _ in doubts)}"
    if any(figure.reached is None for figure in outcome.expected):
        yield "not everything that is expected was measured"


def _doubts(outcome: Acceptance) -> list[tuple[float, str, str]]:
    """Return the share behind, the place and the figure of all that is not certain, the farthest first.

    The links of nodes are left out, because their pairs are named.
    """
    doubts = [
        (standing.behind, str(standing.place), figure.words)
        for figure in outcome.figures
        for standing in figure.standings
        if standing.verdict == "not certain" and figure.kind != "link"
    ]
    return sorted(doubts, key=lambda doubt: -doubt[0])


def named(outcome: Acceptance) -> list[int]:
    """Return the numbers of the nodes that are slow, broken, away, missing or in doubt."""
    places = [finding.place for finding in outcome.findings]
    places += [run.place for run in outcome.missing]
    places += [place.place for each in outcome.figures for place in each.standings if place.verdict == "not certain"]
    nodes = {node for place in places if place.kind != "all" for node in place.nodes}
    return sorted(nodes | {away.node for away in outcome.away})


def lines(outcome: Acceptance) -> Iterator[str]:
    """Yield the verdict as a terminal shows it."""
    yield outcome.summary
    yield from (finding.sentence for finding in outcome.findings)
    yield from (figure.sentence for figure in outcome.expected if figure.short or figure.reached is None)
    yield from notes(outcome)


def notes(outcome: Acceptance) -> Iterator[str]:
    """Yield what keeps the verdict inconclusive, and what limits it."""
    yield from outcome.unjudged
    yield from away(outcome.away)
    yield from missing(outcome.missing)
    if doubts := _doubts(outcome):
        far = first_of(f"{place} by {100 * behind:.0f} % ({figure})" for behind, place, figure in doubts)
        yield f"Not certain: {far} lie behind, but the repeats or the others differ too much; more repeats would tell"
    yield from outcome.remarks


def away(nodes: Sequence[Away]) -> Iterator[str]:
    """Yield a sentence for each node that is away and has figures; the others are among what is missing."""
    for node in nodes:
        if node.figures_of:
            yield f"node {node.node} is away, because {node.reason}; its figures are of {node.figures_of}"


def missing(runs: Sequence[Missing]) -> Iterator[str]:
    """Yield a sentence for each reason why runs are missing: where, and which."""
    for reason in dict.fromkeys(run.reason for run in runs):
        alike = [run for run in runs if run.reason == reason]
        whats = list(dict.fromkeys(run.what for run in alike))
        verb, places = "are" if len(whats) > 1 else "is", first_of(run.place for run in alike)
        yield f"{places}: {', '.join(whats)} {verb} missing ({counted(len(alike), 'run')}): {reason}"


def can_be_measured(outcome: Acceptance) -> bool:
    """Return whether another call may measure something that is missing now. What is not supported stays missing."""
    return any(not run.reason.startswith(UNSUPPORTED) for run in outcome.missing) or bool(outcome.away)


def paragraph(outcome: Acceptance) -> str:
    """Return the verdict as one paragraph for an administrator or a vendor. It names no machine."""
    repeats = max((len(place.repeats) for figure in outcome.figures for place in figure.standings), default=0)
    nodes, devices = counted(len(outcome.nodes), "node"), counted(outcome.devices, "device")
    disks = f" (a disk: {100 * DISKS_DIFFER:g} %)" * any(figure.what == "disk" for figure in outcome.figures)
    each = " each" if len(outcome.nodes) > 1 else ""
    name = f"{outcome.devices} x {outcome.device}" if outcome.device else devices
    how = (
        f"Measured {outcome.started or 'never'} to {outcome.ended or 'never'} on {nodes} with {name}{each}, "
        f"{counted(repeats, 'repeat')}; a place is called slow if it is more than {100 * outcome.tolerance:g} % "
        f"slower than its peers{disks} and stands out among all places and figures."
    )
    return " ".join(line if line.endswith(".") else f"{line}." for line in [how, *lines(outcome)])


def not_passed(outcome: Acceptance) -> dict[int, str]:
    """Map the nodes that have not passed to the reason: they are slow or broken, away, or were not measured alone.

    If half of the nodes were not measured, it is not their fault.
    """
    away = {node.node: f"it is away, because {node.reason}" for node in outcome.away}
    alone = [run for run in reversed(outcome.missing) if len(run.place.nodes) == 1]
    missing = {run.place.nodes[0]: f"{run.what} is missing: {run.reason}" for run in alone} | away
    if 2 * len(missing.keys() - away) >= len(outcome.nodes) - len(away):
        missing = away
    named = {
        node: finding.sentence
        for finding in reversed(outcome.findings)
        if finding.place.kind != "pair"
        for node in finding.place.nodes
    }
    return dict(sorted((missing | named | away).items()))  # an earlier measurement of a node that is away may be old


def node_number(name: str, names: Mapping[int, str]) -> int:
    """Return the number of the node with this name, which may lack its domain. Raise UserError if it is not known.

    names: by number, each of which may be `user@host`.
    """
    hosts = {node: host.rpartition("@")[2] for node, host in names.items()}
    same = [node for node, host in hosts.items() if host == name]
    alike = same or [node for node, host in hosts.items() if host.partition(".")[0] == name.partition(".")[0]]
    if len(alike) != 1:
        raise UserError(
            f"the acceptance knows {'several nodes' if alike else 'no node'} of this name",
            why=f"the names of {len(names)} nodes are known",
            next_step="name a node as results/acceptance.local.json does, or measure it with snakemake accept",
        )
    return alike[0]


def of_node(acceptance: Acceptance, node: int) -> tuple[int, list[str]]:
    """Return the exit status for a node, and what to print: 1 if a finding names it or a pair with it, or if a figure
    of its own is below what is expected; 2 if that cannot be told; otherwise 0."""
    findings = [finding.sentence for finding in acceptance.findings if node in finding.place.nodes]
    if wrong := [*findings, *_below(acceptance, node)]:
        return STATUS["outliers"], wrong
    if unknown := list(_inconclusive(acceptance, node)):
        return STATUS["inconclusive"], unknown
    return STATUS["fit"], [f"node {node} is fit"]


def _below(acceptance: Acceptance, node: int) -> Iterator[str]:
    """Yield where the node, or one of its devices, is below what is expected by more than the tolerance."""
    short = [figure for figure in acceptance.expected if figure.short]
    expected = {(figure.what, figure.figure, figure.at, figure.size): figure.expected for figure in short}
    for figure in acceptance.figures:
        value = expected.get((figure.what, figure.figure, figure.kind, figure.size))
        for standing in figure.standings if value else ():
            if value and standing.place.nodes == (node,):
                share = figures.share_of(value, standing, figure)
                if share < 1 - acceptance.tolerance:
                    yield f"{standing.place}: {figure.words} is {100 * share:.1f} % of what is expected"


def _inconclusive(acceptance: Acceptance, node: int) -> Iterator[str]:
    """Yield why nobody can tell whether the node is fit. A pair that is missing may be missing for its other node."""
    if node not in acceptance.nodes:
        yield f"node {node} was not asked for"
    yield from missing([run for run in acceptance.missing if run.place.nodes == (node,)])
    yield from away([away for away in acceptance.away if away.node == node])
    for figure in acceptance.figures:
        for standing in figure.standings:
            if standing.verdict == "not certain" and standing.place.nodes == (node,):
                behind = f"{100 * standing.behind:.1f} % behind the others"
                yield f"{standing.place}: {figure.words} is {behind}, which may be chance"
    yield from acceptance.unjudged

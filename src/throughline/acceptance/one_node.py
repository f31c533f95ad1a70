"""What a verdict on a fleet says about one of its nodes, for a prolog that asks about the node it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from throughline.acceptance.verdict import STATUS
from throughline.files import UserError
from throughline.records.acceptance import Acceptance, unsure


def number(name: str, names: Mapping[int, str]) -> int:
    """Return the number of the node with this name, which may lack its domain. Raise UserError if it is not known.

    names: by number, each of which may be `user@host`.
    """
    hosts = {node: host.rpartition("@")[2] for node, host in names.items()}
    same = [node for node, host in hosts.items() if host == name]
    found = same or [node for node, host in hosts.items() if _short(host) == _short(name)]
    if len(found) != 1:
        raise UserError(
            f"the acceptance knows {'several nodes' if found else 'no node'} of this name",
            why=f"the names of {len(names)} nodes are known",
            next_step="name a node as results/acceptance.local.json does, or measure it with snakemake accept",
        )
    return found[0]


def _short(host: str) -> str:
    return host.partition(".")[0]


def told(acceptance: Acceptance, node: int) -> tuple[int, list[str]]:
    """Return the exit status for a node, and what to print: 1 if a finding names it or a pair with it, or if a figure
    of its own is below what is expected; 2 if that cannot be told; otherwise 0."""
    if wrong := [*_named(acceptance, node), *_below(acceptance, node)]:
        return STATUS["outliers"], wrong
    if unknown := list(_open(acceptance, node)):
        return STATUS["not measured"], unknown
    return STATUS["fit"], [f"node {node} is fit"]


def _named(acceptance: Acceptance, node: int) -> Iterator[str]:
    yield from (finding.sentence for finding in acceptance.findings if node in finding.place.nodes)


def _below(acceptance: Acceptance, node: int) -> Iterator[str]:
    """Yield where the node, or one of its devices, is below what is expected by more than the tolerance."""
    short = {(one.what, one.figure, one.at, one.size): one for one in acceptance.expected if one.short}
    for figure in acceptance.figures:
        one = short.get((figure.what, figure.figure, figure.kind, figure.size))
        if one is None:
            continue
        for standing in (standing for standing in figure.standings if standing.place.nodes == [node]):
            speeds = (one.expected, standing.median) if figure.better == "less" else (standing.median, one.expected)
            share = speeds[0] / speeds[1]
            if share < 1 - acceptance.tolerance:
                yield f"{standing.place.words}: {figure.words} is {100 * share:.1f} % of what is expected"


def _open(acceptance: Acceptance, node: int) -> Iterator[str]:
    """Yield why nobody can tell whether the node is fit. A pair that is missing may be missing for its other node."""
    if node not in acceptance.nodes:
        yield f"node {node} was not asked for"
    own = [one for one in acceptance.missing if one.place.nodes == [node]]
    away = [one for one in acceptance.away if one.node == node]
    part = acceptance.model_copy(update={"missing": own, "away": away})
    yield from part.missing_in_words()
    yield from part.away_in_words()
    for figure in acceptance.figures:
        for standing in unsure(figure, acceptance.findings, acceptance.tolerance):
            if standing.place.nodes == [node]:
                yield f"{standing.place.words}: {figure.words} lies behind the others, and it may be chance"
    yield from acceptance.unjudged

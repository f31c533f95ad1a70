"""What a verdict on a fleet says about one of its nodes, for a prolog that asks about the node it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from throughline.acceptance import limits, verdict
from throughline.files import UserError
from throughline.records.acceptance import STATUS, Acceptance


def number(name: str, names: Mapping[int, str]) -> int:
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


def answer(acceptance: Acceptance, node: int) -> tuple[int, list[str]]:
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
                share = limits.share_of(value, standing, figure)
                if share < 1 - acceptance.tolerance:
                    yield f"{standing.place}: {figure.words} is {100 * share:.1f} % of what is expected"


def _inconclusive(acceptance: Acceptance, node: int) -> Iterator[str]:
    """Yield why nobody can tell whether the node is fit. A pair that is missing may be missing for its other node."""
    if node not in acceptance.nodes:
        yield f"node {node} was not asked for"
    yield from verdict.missing([run for run in acceptance.missing if run.place.nodes == (node,)])
    yield from verdict.away([away for away in acceptance.away if away.node == node])
    for figure in acceptance.figures:
        for standing in figure.standings:
            if standing.verdict == "not certain" and standing.place.nodes == (node,):
                behind = f"{100 * standing.behind:.1f} % behind the others"
                yield f"{standing.place}: {figure.words} is {behind}, which may be chance"
    yield from acceptance.unjudged

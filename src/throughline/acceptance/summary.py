"""The verdict in one sentence: what is slow, or why nobody can say it, and what was compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from throughline.acceptance.slow import Standings
from throughline.records.acceptance import Away, ExpectedEntry, Finding, Missing, PlaceKind, StandingEntry, first_of
from throughline.study.acceptance import Fleet

NO_PEERS = "no figure has peers: an acceptance compares at least three devices, nodes or pairs"


def compared(standings: Standings) -> set[PlaceKind]:
    """Return the kinds of places that were compared with peers. Pairs of nodes show their links."""
    kinds = {key.kind for key, places in standings.items() if any(one.others for one in places.values())}
    return {"link" if kind == "pair" else kind for kind in kinds}


def fit(fleet: Fleet, standings: Standings) -> str:
    """Return in one sentence that a fleet is fit, and of what nobody knows it, because it has no peers."""
    kinds: list[PlaceKind] = [] if fleet.kind == "cpu" else ["device"]
    kinds += ["node", "link"] if len(fleet.nodes) > 1 else ["node"]
    with_peers = compared(standings)
    equal = [kind for kind in kinds if kind in with_peers]
    told = f"no {_either(equal)} is slow" if equal else "what is expected is reached"
    lacking = " and ".join(f"{kind}s" for kind in kinds if kind not in with_peers)
    which = f"The {len(fleet.nodes)} nodes are" if len(fleet.nodes) > 1 else "The node is"
    return f"{which} fit: {told}{f'; {lacking} were not compared' if lacking else ''}."


def counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _either(words: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def other(fleet: Fleet, found: Sequence[Finding], short: Sequence[ExpectedEntry], gaps: Sequence[str]) -> str:
    """Return in one sentence that a fleet is not fit, or that the verdict is inconclusive. gaps: why."""
    nodes = counted(len(fleet.nodes), "node")
    if not found and not short:
        return f"The verdict on {nodes} is inconclusive: {'; '.join(gaps)}."
    names = {
        "broken": [finding.place.words for finding in found if not finding.slow],
        "slow": [finding.place.words for finding in found if finding.slow],
    }
    parts = [f"{how}: {', '.join(dict.fromkeys(places))}" for how, places in names.items() if places]
    figures = "1 figure is" if len(short) == 1 else f"{len(short)} figures are"
    parts += [f"{figures} below what is expected"] if short else []
    return f"Not fit ({nodes}): {'; '.join([*parts, *gaps])}."


def gaps(
    missing: Sequence[Missing],
    away: Sequence[Away],
    unjudged: Sequence[str],
    behind: Sequence[StandingEntry],
    expected: Sequence[ExpectedEntry],
) -> Iterator[str]:
    """Yield why a verdict is inconclusive. behind: places that may be slow."""
    if missing:
        yield _runs_missing(missing)
    if away:
        yield f"{first_of(f'node {one.node}' for one in away)} {'are' if len(away) > 1 else 'is'} away"
    if unjudged:
        yield NO_PEERS if NO_PEERS in unjudged else "places differ, and nobody can tell which ones are slow"
    if behind:
        worst = sorted(behind, key=lambda one: one.distance or 0.0)
        yield f"it is not certain whether these are slow: {first_of(one.place.words for one in worst)}"
    if any(one.reached is None for one in expected):
        yield "not everything that is expected was measured"


def _runs_missing(missing: Sequence[Missing]) -> str:
    places = first_of(one.place.words for one in missing)
    return f"{len(missing)} run{'s are' if len(missing) > 1 else ' is'} missing ({places})"

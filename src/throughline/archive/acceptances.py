"""Compare the present acceptance with that of an archive: what got slower, everywhere or at one node, device or link?

Every kind of place is compared as a whole. Single places are compared if both sides call the same nodes by the same
numbers. The numbers of another cluster say nothing, nor do those from before acceptance.local.json was removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import variance
from typing import Any

from throughline import ratios, records, statistics
from throughline.archive import accepted, differing
from throughline.archive.opening import validated
from throughline.files import UserError
from throughline.ratios import Tested
from throughline.records import RunRecord
from throughline.records.acceptance import Acceptance, FigureEntry, PlaceEntry, PlaceKind, StandingEntry
from throughline.records.compared import ComparedAcceptance, ComparedPlace
from throughline.report.analysis.judged_pairs import Pair, adjusted
from throughline.report.analysis.values import Value
from throughline.study import acceptance as study

Key = tuple[str, str, int | None, PlaceKind]
Spot = tuple[tuple[int, ...], int | None]
Test = Callable[[Sequence[float], Sequence[float]], Tested | None]
PLURAL = {"device": "devices", "node": "nodes", "pair": "pairs", "link": "links of nodes"}
"""What the places of a kind are called. Kind `all` has one place."""
SETTINGS = {
    "benchmark", "binding", "device", "framework", "hosts", "network", "optimizer", "options", "protocol", "repeat",
    "seed", "sizes", "steps", "threads", "decode_workers", "min_seconds",
}  # fmt: skip
"""The keys of a specification that do not change the work of a measurement. A size is a part of its figure."""


@dataclass(frozen=True)
class Accepted:
    """One side: its acceptance, and the folder above results/ that it lies in."""

    acceptance: Acceptance
    folder: Path

    @cached_property
    def figures(self) -> dict[Key, FigureEntry]:
        """The figures that are compared. Of an all-reduce that is the bandwidth of the largest message."""
        every = self.acceptance.figures
        largest = {one.kind: max(_sizes(every, one.kind)) for one in every if one.figure == "bus_bandwidth"}
        return {
            (one.what, one.figure, one.size, one.kind): one
            for one in every
            if one.figure != "bus_bandwidth" or one.size == largest[one.kind]
        }

    @cached_property
    def asked(self) -> study.Acceptance:
        try:
            return accepted.asked_of(self.acceptance)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{study.RESULT} does not say what was asked for", why=str(error)) from None

    @property
    def numbering(self) -> str | None:
        return self.asked.fleet.numbering

    def work(self, key: Key) -> dict[str, Any]:
        """Return what decides the work of a figure, by the keys of a specification."""
        what, _, _, kind = key
        fleet = self.asked.fleet
        nodes = {"pair": 2, "link": 2, "all": len(fleet.nodes)}.get(kind, 1)
        devices = 1 if kind == "device" else fleet.devices
        spec = next(spec for of, spec in self.asked.specs if of == what)
        values = {name: value for name, value in spec.changed().items() if name not in SETTINGS}
        return values | {"topology": f"{nodes}n{devices}g"}

    def protocol(self, what: str) -> int:
        return next(spec.protocol for of, spec in self.asked.specs if of == what)

    def first_run(self) -> RunRecord | None:
        """Return a run that tells the devices and the software; None if no record can be read."""
        for measured in self.asked.measurements():
            try:
                return records.read_run_of(self.folder / measured.record, measured.spec)
            except UserError:
                continue
        return None


def _sizes(figures: Iterable[FigureEntry], kind: PlaceKind) -> list[int]:
    return [one.size or 0 for one in figures if one.figure == "bus_bandwidth" and one.kind == kind]


def of(path: Path) -> Accepted | None:
    """Return the acceptance of a file results/acceptance.json; None if there is no such file."""
    return Accepted(validated(path, records.read_acceptance), path.parent.parent) if path.exists() else None


@dataclass(frozen=True)
class Row:
    """One line of the comparison, with a test that does not count the other lines yet.

    ours, theirs: as they were measured, so of a latency in microseconds.
    """

    place: str
    whole: bool
    figure: FigureEntry
    ours: Sequence[float]
    theirs: Sequence[float]
    pair: Pair

    def entry(self, pair: Pair) -> ComparedPlace:
        """Return the line as results/compare.json has it. pair: with the test that counts the other lines."""
        return ComparedPlace(
            what=self.figure.what,
            figure=self.figure.figure,
            size=self.figure.size,
            kind=self.figure.kind,
            place=self.place,
            whole=self.whole,
            unit=self.figure.unit,
            ours=list(self.ours),
            theirs=list(self.theirs),
            **pair.values(),
        )


def compare(here: Accepted, there: Accepted, name: str) -> ComparedAcceptance:
    """Compare two acceptances. name: that of the archive."""
    both = [key for key in here.figures if key in there.figures]
    numbered = here.numbering is not None and here.numbering == there.numbering
    rows = [row for key in both for row in _rows(here, there, key, numbered, name)]
    pairs = adjusted([row.pair for row in rows])
    ours, theirs = ([one.words for one in _places(side, both)] for side in (here, there))
    now, then = here.first_run(), there.first_run()
    return ComparedAcceptance(
        started=there.acceptance.started,
        started_here=here.acceptance.started,
        numbered=numbered,
        differs=differing.of_runs(now, then) if now and then else [],
        places=[row.entry(pair) for row, pair in zip(rows, pairs, strict=True)],
        only_here=[place for place in ours if place not in theirs] if numbered else [],
        only_there=[place for place in theirs if place not in ours] if numbered else [],
    )


def _places(side: Accepted, keys: Iterable[Key]) -> list[PlaceEntry]:
    """Return the places of some figures, each once."""
    every = [standing.place for key in keys for standing in side.figures[key].standings]
    return list({place.words: place for place in every}.values())


def _rows(here: Accepted, there: Accepted, key: Key, numbered: bool, name: str) -> Iterator[Row]:
    """Yield the lines of one figure: all places as a whole, then place by place if their numbers mean the same."""
    figure, barred = here.figures[key], tuple(_barred(here, there, key))
    ours, theirs = ({_spot(one): one for one in side.figures[key].standings} for side in (here, there))
    margin = min(here.acceptance.tolerance, there.acceptance.tolerance)

    def row(place: str, whole: bool, one: Sequence[float], other: Sequence[float], test: Test, paired: bool) -> Row:
        before, after = (_speeds(figure, values) for values in (other, one))
        pair = Pair(
            what=f"here over {name}",
            where=place,
            base=Value(name, statistics.median(before) or 0.0, tuple(before)),
            other=Value("here", statistics.median(after) or 0.0, tuple(after)),
            kind="acceptances",
            unlike=barred,
            tested=None if barred else test(before, after),
            in_rounds=paired,
            family=name,
            margin=margin,
        )
        return Row(place, whole, figure, one, other, pair)

    both = [spot for spot in ours if spot in theirs] if numbered else []
    if figure.kind in PLURAL and min(len(ours), len(theirs)) > 1:
        paired = len(both) > 1
        one, other = ([side[spot].median for spot in (both or side)] for side in (ours, theirs))
        as_a_whole = partial(ratios.tested, paired=paired)
        yield row(_all(figure.kind, len(one), len(other)), True, one, other, as_a_whole, paired)
    alone = len(ours) == len(theirs) == 1  # then it is the same place, whatever its number is
    alike = [*zip(ours.values(), theirs.values(), strict=True)] if alone else [(ours[one], theirs[one]) for one in both]
    test = _test_of_one([[*side.repeats.values()] for sides in alike for side in sides])
    for now, then in alike:
        yield row(now.place.words, False, [*now.repeats.values()], [*then.repeats.values()], test, False)


def _test_of_one(sides: Sequence[Sequence[float]]) -> Test:
    """Return the test of a single place: Welch's if there is one, otherwise one that knows the noise of all of them.

    sides: the repeats of each place, here and there.
    """
    logs = [[math.log(value) for value in side] for side in sides if len(side) > 1]
    if len(sides) <= 2 or not logs:
        return partial(ratios.tested, paired=False)
    squares = sum((len(side) - 1) * variance(side) for side in logs)
    return partial(ratios.moderated, usual=squares / sum(len(side) - 1 for side in logs))


def _spot(standing: StandingEntry) -> Spot:
    return tuple(standing.place.nodes), standing.place.device


def _all(kind: PlaceKind, here: int, there: int) -> str:
    """Return what all places of a kind are called."""
    if here == there:
        return f"all {here} {PLURAL[kind]}"
    return f"{here} {PLURAL[kind]} here, {there} there"


def _speeds(figure: FigureEntry, values: Sequence[float]) -> list[float]:
    """Return values of which more is better."""
    return [1 / value for value in values] if figure.better == "less" else list(values)


def _barred(here: Accepted, there: Accepted, key: Key) -> Iterator[str]:
    """Yield why a figure of the two sides must not be compared."""
    ours, theirs = here.work(key), there.work(key)
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            yield f"{name} is {ours.get(name)} here and {theirs.get(name)} there"
    protocols = here.protocol(key[0]), there.protocol(key[0])
    if protocols[0] != protocols[1]:
        yield f"the runs were measured in different ways (protocol {protocols[0]} here, {protocols[1]} there)"
    if (
        "simulated" in {here.asked.fleet.hosts, there.asked.fleet.hosts}
        and here.asked.fleet.hosts != there.asked.fleet.hosts
    ):
        yield "the nodes of one side are simulated"

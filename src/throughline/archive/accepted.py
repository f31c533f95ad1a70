"""The acceptance of an archive: its files, its verdict and tables made again from its records, and what has changed.

Two acceptances are compared by kinds of measurement, with the places that lost most. Places are matched if both sides
call the same nodes by the same numbers. The numbers of another cluster say nothing, nor do those from before
acceptance.local.json was removed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from throughline import ratios, records
from throughline.acceptance import figures, verdict
from throughline.archive.differences import FAULTS, Difference, Differences, between
from throughline.files import UserError, read_json, write_json, write_text
from throughline.launch import fleet
from throughline.records.acceptance import Acceptance, FleetFigure, Standing, unfinished
from throughline.records.compared import ComparedAcceptance, ComparedKind, ComparedPlace
from throughline.report.analysis import differences
from throughline.report.analysis.comparison import Comparison, adjusted
from throughline.report.render import acceptance as shown
from throughline.spec import canonical
from throughline.study import acceptance as study

MOST = 1_000_000
"""The most measurements that the acceptance of an archive may ask for."""
TEXT, PAGE = "results/acceptance.txt", "results/acceptance.html"
TEXTS = (TEXT, study.STANDINGS, study.PAIRS)
"""The files that follow from the verdict."""


def asked_of(acceptance: Acceptance) -> study.Plan:
    """Return what was asked for. One of FAULTS if it is not valid, or if it is more than anybody can have measured.

    The numbers of nodes are parts of the names of files.
    """
    asked = study.read_plan(canonical(acceptance.asked))
    nodes, devices = asked.fleet.nodes, asked.fleet.devices
    if not all(isinstance(number, int) and number >= 0 for number in (*nodes, devices, asked.repeats, asked.rounds)):
        raise ValueError("its nodes, devices, repeats and rounds are no whole numbers")
    places = len(nodes) * (devices + 1 + min(asked.rounds, len(nodes)))
    if places * max(1, asked.repeats) * max(1, len(asked.specs)) > MOST:
        raise ValueError(f"it asks for more than {MOST:,} measurements")
    return asked


def _asked(folder: Path) -> study.Plan | None:
    """Return what was asked for. None without an acceptance, or if it cannot be read: `judge` names the fault."""
    try:
        return asked_of(records.read_acceptance(folder / study.RESULT))
    except FAULTS:
        return None


def measured(folder: Path) -> list[study.Measurement]:
    """Return the measurements of an archive's acceptance that have a record."""
    asked = _asked(folder)
    every = asked.measurements() if asked else ()
    return [measurement for measurement in every if (folder / measurement.record).exists()]


def files(result: Path) -> Iterator[Path]:
    """Yield the files that belong to an acceptance: its verdict, and what was measured for it."""
    asked = study.read_plan(canonical(records.read_acceptance(result).asked))
    folder = result.parent.parent
    yield from (folder / name for name in (study.RESULT, TEXT, PAGE, study.STANDINGS, study.PAIRS))
    for name, visit in asked.visits.items():
        yield from (file for file in (folder / name, unfinished(folder / name)) if file.exists())
        for measurement in visit:
            if (folder / measurement.record).exists():
                record = folder / measurement.record
                yield from (record, record.with_suffix(".log"), record.with_suffix(".telemetry.csv"))


def names() -> str:
    """Return the names of the nodes, in the order of their numbers, as the variable THROUGHLINE_NODES has them.

    A number without a name, or with one such as `node3` that tells nobody anything, has a dot.
    """
    by_number = fleet.node_names()
    named = {number: name for number, name in by_number.items() if not re.fullmatch(r"node\d+", name)}
    return " ".join(named.get(number, ".") for number in range(max(named, default=-1) + 1))


def judge(folder: Path, output: Path) -> None:
    """Judge the acceptance of an archive, unpacked into `folder`, once more. Write `output`, and TEXTS beside it."""
    kept, scratch = records.read_acceptance(folder / study.RESULT), output.parent.parent
    away = {node.node: node.reason for node in kept.away}  # no record says it
    derived = verdict.judge(asked_of(kept), folder, away)
    write_json(output, derived.model_dump(by_alias=True))
    write_text(scratch / TEXT, verdict.paragraph(derived) + "\n")
    shown.write(derived, scratch / study.STANDINGS, scratch / study.PAIRS)


def strange(folder: Path) -> Differences:
    """Yield records that the acceptance does not ask for, and node jobs that name others than were asked for."""
    runs, asked = sorted((folder / study.FOLDER).glob("**/run*.json")), _asked(folder)
    if runs and not (folder / study.RESULT).exists():
        yield Difference(study.RESULT, "", "the archive lacks the verdict on its acceptance")
    if asked is None:
        return
    visits = asked.visits
    asked_for = {measurement.record for visit in visits.values() for measurement in visit}
    for name in (path.relative_to(folder).as_posix() for path in runs):
        if name not in asked_for:
            yield Difference(name, "", "the acceptance does not ask for this record")
    for name, visit in visits.items():
        wanted = [measurement.record for measurement in visit]
        if (folder / name).exists():
            value: Any = read_json(folder / name)
            yield from between(name, value.get("records"), wanted, "records")
        begun = unfinished(name)
        if (folder / begun).exists():
            begun_job = records.read_unfinished(folder / begun)
            if {*begun_job.records, *begun_job.failed} - {*wanted}:
                yield Difference(str(begun), "records", "the acceptance does not ask for some of them")


Key = tuple[str, str, int | None, study.PlaceKind]
WORST = 3
"""So many places of a kind are named: those that lost most."""
PLURAL = {"device": "devices", "node": "nodes", "pair": "pairs", "link": "links of nodes"}
SETTINGS = {
    "benchmark", "binding", "device", "framework", "hosts", "network", "optimizer", "options", "repeat", "seed",
    "sizes", "steps", "threads", "decode_workers", "min_seconds",
}  # fmt: skip
"""The keys of a specification that do not change the work of a measurement. A size is a part of its figure."""


@dataclass(frozen=True)
class Side:
    """An acceptance, and the folder above results/ that it lies in."""

    acceptance: Acceptance
    folder: Path

    @cached_property
    def figures(self) -> dict[Key, FleetFigure]:
        compared = figures.largest(self.acceptance.figures)
        return {(figure.what, figure.figure, figure.size, figure.kind): figure for figure in compared}

    @cached_property
    def asked(self) -> study.Plan:
        try:
            return asked_of(self.acceptance)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{study.RESULT} does not say what was asked for", why=str(error)) from None

    def work(self, key: Key) -> dict[str, Any]:
        """Return what decides the work of a figure, mostly by the keys of a specification."""
        what, _, _, kind = key
        fleet = self.asked.fleet
        nodes = {"pair": 2, "link": 2, "all": len(fleet.nodes)}.get(kind, 1)
        spec = next(spec for name, spec in self.asked.specs if name == what)
        values = {name: value for name, value in spec.changed().items() if name not in SETTINGS}
        topology = f"{nodes}n{1 if kind == 'device' else fleet.devices}g"
        is_simulated = fleet.hosts == "simulated"
        return values | {"topology": topology, "protocol": spec.protocol, "simulated": is_simulated}

    def first_run(self) -> records.RunRecord | None:
        """Return a run that tells the devices and the software; None if no record can be read."""
        for measured in self.asked.measurements():
            try:
                return records.read_run_of(self.folder / measured.record, measured.spec)
            except UserError:
                continue
        return None


def read(path: Path) -> Side | None:
    """Return the acceptance of a file results/acceptance.json; None if there is no such file."""
    return Side(records.read_acceptance(path), path.parent.parent) if path.exists() else None


class Kind(NamedTuple):
    """All places of a kind in one figure: in words, and their values on both sides. alike: the places on both sides."""

    key: Key
    places: str
    ours: list[float]
    theirs: list[float]
    alike: list[tuple[Standing, Standing]]


def compare(here: Side, there: Side, name: str) -> ComparedAcceptance:
    """Compare two acceptances. name: that of the archive."""
    numbering = here.asked.fleet.numbering
    numbered = numbering is not None and numbering == there.asked.fleet.numbering
    both = [key for key in here.figures if key in there.figures]
    kinds = [kind for key in both if (kind := _kind(here, there, key, numbered))]
    comparisons = adjusted([_comparison(here, there, kind, name) for kind in kinds])
    ours, theirs = (
        {str(standing.place): None for key in both for standing in side.figures[key].standings}
        for side in (here, there)
    )
    now, then = here.first_run(), there.first_run()
    return ComparedAcceptance(
        started=there.acceptance.started,
        started_here=here.acceptance.started,
        numbered=numbered,
        differs=differences.between(differences.of_run(now), differences.of_run(then)) if now and then else [],
        kinds=[_entry(here.figures[kind.key], kind, pair) for kind, pair in zip(kinds, comparisons, strict=True)],
        only_here=[place for place in ours if place not in theirs] if numbered else [],
        only_there=[place for place in theirs if place not in ours] if numbered else [],
    )


def _kind(here: Side, there: Side, key: Key, numbered: bool) -> Kind | None:
    """Return the places of a figure: several by their medians, and a single one by its repeats.

    None if one side has a single place and nobody knows which one it is there.
    """
    ours, theirs = ({standing.place: standing for standing in side.figures[key].standings} for side in (here, there))
    alike = [(ours[place], theirs[place]) for place in ours if place in theirs] if numbered else []
    if len(ours) == len(theirs) == 1:  # then it is the same place, whatever its number is
        alike = [*zip(ours.values(), theirs.values(), strict=True)]
    if len(alike) == 1:
        ((place, before),) = alike
        return Kind(key, str(place.place), [*place.repeats.values()], [*before.repeats.values()], alike)
    sides = [*zip(*alike, strict=True)] if alike else [[*ours.values()], [*theirs.values()]]
    now, then = ([standing.median for standing in side] for side in sides)
    plural = PLURAL.get(key[3], "")
    words = f"all {len(now)} {plural}" if len(now) == len(then) else f"{len(now)} {plural} here, {len(then)} there"
    return Kind(key, words, now, then, alike) if min(len(now), len(then)) > 1 else None


def _comparison(here: Side, there: Side, kind: Kind, name: str) -> Comparison:
    """Return the comparison of a kind. Its test does not count the other kinds yet."""
    figure, now, then = here.figures[kind.key], here.work(kind.key), there.work(kind.key)
    before, after = ([_speed(value, figure) for value in values] for values in (kind.theirs, kind.ours))
    unlike = tuple(
        f"{key} is {now.get(key)} here and {then.get(key)} there"
        for key in dict.fromkeys([*now, *then])
        if now.get(key) != then.get(key)
    )
    by_place = len(kind.alike) > 1
    return Comparison(
        before=before,
        after=after,
        unlike=unlike,
        tested=None if unlike else ratios.tested(before, after, paired=by_place),
        in_rounds=by_place,
        family=name,
        margin=min(here.acceptance.tolerance, there.acceptance.tolerance),
    )


def _speed(value: float, figure: FleetFigure) -> float:
    """Return a value of which more is better."""
    return 1 / value if figure.better == "less" else value


def _entry(figure: FleetFigure, kind: Kind, comparison: Comparison) -> ComparedKind:
    places = [
        ComparedPlace(
            place=str(now.place),
            ours=now.median,
            theirs=then.median,
            ratio=_speed(now.median, figure) / _speed(then.median, figure),
        )
        for now, then in kind.alike
    ]
    return ComparedKind(
        what=figure.what,
        figure=figure.figure,
        size=figure.size,
        kind=figure.kind,
        places=kind.places,
        unit=figure.unit,
        ours=kind.ours,
        theirs=kind.theirs,
        worst=sorted(places, key=lambda place: place.ratio)[:WORST] if len(places) > 1 else [],
        **comparison.values(),
    )

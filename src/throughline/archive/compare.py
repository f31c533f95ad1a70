"""Compare the present results with archives: every cell that both have, with its ratio, interval and verdict.

The two sides were measured at different times and perhaps on different machines. So their repeats share no rounds: the
test is Welch's, and the A/A runs of both sides say how much two measurements of one configuration differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from throughline import files, ratios, records
from throughline.archive import acceptances, apart, differing
from throughline.archive.acceptances import Accepted
from throughline.archive.opening import Archive, as_json, looked_into, validated
from throughline.files import UserError
from throughline.records import Summary
from throughline.records.compared import Compared, ComparedAcceptance, ComparedArchive, ComparedCell
from throughline.report.analysis import cells, judged_pairs, noise
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.noise import Twice
from throughline.report.analysis.sides import Side
from throughline.study import acceptance as study

Key = tuple[str, int, str, str, str]


@dataclass(frozen=True)
class Results:
    """One side: its summaries, and a function that returns the value of a JSON file. `name` is that of its file."""

    name: str
    groups: Sequence[Group]
    json: Callable[[str], Any]

    @cached_property
    def sides(self) -> dict[Key, Side]:
        """Map benchmark, batch, precision, framework and topology to the measured rows, without A/A runs."""
        return {
            (group.benchmark, group.batch, group.precision, row.framework, _topology(row)): Side(group, row)
            for group in self.groups
            if not group.benchmark.endswith(noise.AA)
            for row in group.measured
        }

    @cached_property
    def failed(self) -> dict[Key, str]:
        """Map the cells without a figure to the reason."""
        return {
            (group.benchmark, group.batch, group.precision, row.framework, _topology(row)): cells.STATUS_MEANINGS[
                status
            ]
            for group in self.groups
            for row in group.rows
            if (status := row.status) in cells.STATUS_MEANINGS
        }

    @cached_property
    def again(self) -> list[Twice]:
        return list(noise.measured_twice(self.groups))

    @property
    def started(self) -> str | None:
        starts = [cell.started for group in self.groups for row in group.measured if (cell := row.cell)]
        return min((start for start in starts if start), default=None)

    @cached_property
    def protocols(self) -> dict[Key, int | None]:
        """Map each cell to the way of measuring of its first run; None if its record cannot be read."""
        return {key: self._protocol(side) for key, side in self.sides.items()}

    def _protocol(self, side: Side) -> int | None:
        group, cell = side.group, side.row.cell
        if not cell or not cell.logs:
            return None
        path = Path("results", group.benchmark, group.name, cell.logs[0]).with_suffix(".json")
        try:
            protocol = self.json(path.as_posix())["spec"]["protocol"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return protocol if isinstance(protocol, int) else None

    @cached_property
    def facts(self) -> dict[Key, Mapping[str, Any]]:
        """Map each cell to everything that may decide its speed."""
        return {key: differing.facts(side) for key, side in self.sides.items()}


def compare(summaries: Sequence[Path], archives: Sequence[Path], output: Path, acceptance: Path | None = None) -> None:
    """Write results/compare.json. UserError if an archive cannot be opened, or has nothing in common with our results.

    UserError as well if a file of an archive was changed. Whether its figures follow from its raw values takes longer,
    and is asked by `throughline check`. acceptance: ours, if there is one.
    """
    ours = Results("here", cells.groups([records.read_summary(path) for path in summaries]), _here)
    accepted = acceptances.of(acceptance) if acceptance else None
    compared = [_with_archive(ours, accepted, path) for path in archives]
    if not any(archive.cells or archive.acceptance for archive in compared):
        there = [*compared[0].only_there[:3], *compared[0].unreadable[:1]]
        raise UserError(
            f"no cell of {', '.join(map(str, archives))} is also in the present results",
            why=f"present: {_named(ours.sides)}; there: {', '.join(there) or 'nothing'}",
            next_step="measure a benchmark of the same name, batch, precision, framework and topology",
        )
    files.write_json(
        output, Compared(schema_=records.SCHEMA, started=ours.started, archives=compared).model_dump(by_alias=True)
    )


def _with_archive(ours: Results, accepted: Accepted | None, path: Path) -> ComparedArchive:
    with looked_into(path) as archive:
        readable, unreadable = _summaries(archive)
        theirs = Results(path.name, cells.groups(readable), archive.json)
        both = [key for key in ours.sides if key in theirs.sides]
        pairs = judged_pairs.adjusted([_pair(ours, theirs, key) for key in both])
        differs = {key: differing.between(ours.facts[key], theirs.facts[key]) for key in both}
        nodes = _acceptances(accepted, archive) if accepted else None
    lacking = [key for key in theirs.sides if key not in ours.sides]
    everywhere = [text for text in next(iter(differs.values()), []) if all(text in of for of in differs.values())]
    return ComparedArchive(
        name=path.name,
        sha256=files.sha256(path),
        version=archive.contents.version,
        started=theirs.started,
        differs=everywhere,
        cells=[
            _cell(key, pair, [text for text in differs[key] if text not in everywhere])
            for key, pair in zip(both, pairs, strict=True)
        ],
        only_here=[_name(key) for key in ours.sides if key not in theirs.sides],
        only_there=[_name(key) for key in lacking],
        **apart.of([(ours.sides[key], theirs.sides[key]) for key in both]),
        failed={_name(key): why for key in lacking if (why := ours.failed.get(key))},
        unreadable=unreadable,
        acceptance=nodes,
    )


def _here(name: str) -> Any:
    return as_json(Path(name))


def _summaries(archive: Archive) -> tuple[list[Summary], list[str]]:
    """Return the summaries of an archive, and why others cannot be read."""
    readable, unreadable = [], []
    for name in archive.summaries:
        try:
            readable.append(validated(archive.unpacked(name), records.read_summary))
        except UserError as error:
            own = str(archive.folder / name)
            why = error.what.replace(own, "it") if error.what.startswith(own) else error.why or error.what
            unreadable.append(f"{name} of the archive cannot be read: {why}")
    return readable, unreadable


def _acceptances(ours: Accepted, archive: Archive) -> ComparedAcceptance | None:
    """Compare the acceptances of both sides; None if the archive has none."""
    if study.RESULT not in archive:
        return None
    for name in archive.contents.files:
        if name.startswith(f"{study.FOLDER}/") and name.endswith(".json"):
            archive.unpacked(name)
    there = acceptances.of(archive.unpacked(study.RESULT))
    return acceptances.compare(ours, there, archive.path.name) if there else None


def _pair(ours: Results, theirs: Results, key: Key) -> Pair:
    """Return the comparison of one cell. Its test does not count the other cells yet."""
    base, other = theirs.sides[key], ours.sides[key]
    before, after = base.value, other.value
    assert before and after
    assert base.group.summary
    assert other.group.summary
    again = [*ours.again, *theirs.again]
    barred = tuple(_barred(ours, theirs, key))
    found = noise.noise_of((base, other), again)
    return Pair(
        what=f"here over {theirs.name}",
        where=_name(key),
        base=before,
        other=after,
        floor=noise.floor_of((base, other), again),
        kind="archives",
        sides=(base, other),
        unlike=barred,
        tested=None if barred else ratios.tested(before.repeats, after.repeats, paired=False, noise=found),
        family=theirs.name,
        margin=min(base.group.summary.margin, other.group.summary.margin),
    )


def _barred(ours: Results, theirs: Results, key: Key) -> Iterable[str]:
    """Yield why a cell of the two sides must not be compared."""
    here, there = ours.sides[key], theirs.sides[key]
    assert here.group.summary
    assert there.group.summary
    yield from differing.work(here.group.summary, there.group.summary)
    for side, where in ((here, "here"), (there, "there")):
        if side.row.unequal:
            yield f"{side.row.framework} {where} {side.row.doubt} (equivalence.json)"
    if here.row.topology.simulated != there.row.topology.simulated:
        yield "the nodes of one side are simulated"
    protocols = ours.protocols[key], theirs.protocols[key]
    if None not in protocols and protocols[0] != protocols[1]:
        yield f"the runs were measured in different ways (protocol {protocols[0]} here, {protocols[1]} there)"


def _cell(key: Key, pair: Pair, differs: list[str]) -> ComparedCell:
    benchmark, batch, precision, framework, topology = key
    assert pair.sides
    return ComparedCell(
        benchmark=benchmark,
        batch=batch,
        precision=precision,
        framework=framework,
        topology=topology,
        unit=pair.sides[1].group.unit,
        ours=list(pair.other.repeats),
        theirs=list(pair.base.repeats),
        differs=differs,
        **pair.values(),
    )


def _topology(row: Row) -> str:
    """Return the name of a topology, without the mark of simulated nodes."""
    return str(replace(row.topology, simulated=False))


def _name(key: Key) -> str:
    benchmark, batch, precision, framework, topology = key
    return f"{benchmark} bz{batch} {precision} {framework} {topology}"


def _named(sides: Mapping[Key, Side]) -> str:
    return ", ".join([_name(key) for key in sides][:3]) or "nothing"

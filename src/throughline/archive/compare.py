"""Compare the present results with archives and folders: each cell that both have, and what each machine costs.

Two sides were measured at different times and perhaps on different machines. So their repeats share no rounds: the
test is Welch's, and the A/A runs of both sides say how much two measurements of one configuration differ. A folder is
the folder `results/` of another workflow, or a copy of it. Nothing in it is written or made again.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from throughline import files, records
from throughline.archive import accepted
from throughline.archive.contents import Archive, looked_into
from throughline.files import UserError, read_json
from throughline.records.compared import Compared, ComparedArchive, ComparedCell
from throughline.report.analysis import cells, judged_pairs, machines
from throughline.report.analysis.cells import Cell, Group, in_rounds
from throughline.report.analysis.comparison import Pair
from throughline.report.analysis.differences import between, flat, short
from throughline.spec import Batch, cell_name, values
from throughline.study import acceptance as study
from throughline.study.result_sections import Price

DAY_S = 86_400
SAME_WORK = ("model", "parameters", "scaling", "unit", "job")
"""The parts of a summary in which two sides have to agree. Otherwise they do different work."""
NEXT = (
    "copy the folder results/ of a finished workflow of that machine again, or make the file again on that machine; "
    "this workflow only reads the folder"
)


class Key(NamedTuple):
    """What a cell is called on both sides. Simulated nodes have the topology of real ones, and are refused later."""

    benchmark: str
    batch: Batch
    precision: str
    framework: str
    topology: str

    @classmethod
    def of(cls, cell: Cell) -> Self:
        topology = str(replace(cell.topology, simulated=False))
        return cls(cell.group.benchmark, cell.group.batch, cell.group.precision, cell.framework, topology)

    def __str__(self) -> str:
        return cell_name(*self)


@dataclass(frozen=True)
class Results:
    """The results of one side, in a folder.

    acceptance: None without one. sha256, version: of an archive. unreadable: summaries that were left out, with the
    reason.
    """

    name: str
    folder: Path
    groups: Sequence[Group]
    acceptance: accepted.Side | None = None
    sha256: str | None = None
    version: str | None = None
    unreadable: Sequence[str] = ()

    @cached_property
    def cells(self) -> dict[Key, Cell]:
        """Map the keys of measured cells to them, without A/A runs."""
        groups = [group for group in self.groups if not group.benchmark.endswith(judged_pairs.AA)]
        return {Key.of(cell): cell for group in groups for cell in group.measured}

    @cached_property
    def failed(self) -> dict[Key, str]:
        """Map the cells without a figure to the reason."""
        every = [cell for group in self.groups for cell in group.cells]
        return {Key.of(cell): why for cell in every if (why := cells.STATUS_MEANINGS.get(cell.status))}

    @cached_property
    def again(self) -> list[Pair]:
        return list(judged_pairs.measured_twice(self.groups))

    @property
    def started(self) -> str | None:
        starts = [cell.record.started for group in self.groups for cell in group.measured]
        return min((start for start in starts if start), default=None)

    def protocol(self, key: Key) -> int | None:
        """Return the way of measuring of a cell's first run; None if its record cannot be read.

        A name in an archive may lead out of the folder: nothing there is read.
        """
        group, logs = self.cells[key].group, self.cells[key].record.logs
        path = self.folder / group.benchmark / group.name / (logs or [""])[0]
        if not (logs and path.resolve().is_relative_to(self.folder.resolve())):
            return None
        try:
            protocol = read_json(path.with_suffix(".json"))["spec"]["protocol"]
        except (UserError, LookupError, TypeError):
            return None
        return protocol if isinstance(protocol, int) else None


def present(summaries: Sequence[Path], acceptance: Path | None) -> Results:
    """Return the present results."""
    groups = cells.groups([records.read_summary(path) for path in summaries])
    return Results(machines.HERE, Path("results"), groups, accepted.read(acceptance) if acceptance else None)


@contextmanager
def opened(path: Path) -> Iterator[Results]:
    """Open an archive, or a folder of results. UserError as from `looked_into` and `read_folder`."""
    if path.is_dir():
        groups = cells.groups(read_folder(path))
        yield Results(_name(path), path, groups, accepted.read(path / Path(study.RESULT).name))
        return
    with looked_into(path) as archive:
        readable, unreadable = _summaries(archive)
        groups, acceptance = cells.groups(readable), accepted.read(archive.folder / study.RESULT)
        digest, version = files.sha256(path), archive.contents.version
        yield Results(_name(path), archive.folder / "results", groups, acceptance, digest, version, unreadable)


def names(paths: Sequence[Path]) -> Mapping[str, Path]:
    """Map the name of each archive and folder to its path. UserError if two have the same name."""
    named = {machines.HERE: Path("results")}
    for path in paths:
        if _name(path) in named:
            raise UserError(
                f"{named[_name(path)]} and {path} are both called {_name(path)}",
                why="the page calls a machine by the name of its archive or folder",
                next_step="rename one of them",
            )
        named[_name(path)] = path
    del named[machines.HERE]
    return named


def _name(path: Path) -> str:
    """Return the name of an archive's file, or of a folder; of a folder `results`, that of the folder around it."""
    whole = Path(os.path.abspath(path))
    return whole.parent.name if path.is_dir() and whole.name == "results" else whole.name


def _summaries(archive: Archive) -> tuple[list[records.Summary], list[str]]:
    """Return the summaries of an archive, and why others cannot be read."""
    readable, unreadable = [], []
    for name in archive.summaries:
        try:
            readable.append(records.read_summary(archive.folder / name))
        except UserError as error:
            why = ": ".join(filter(None, [error.what.replace(str(archive.folder / name), "it"), error.why]))
            unreadable.append(f"{name} of the archive cannot be read: {why}")
    return readable, unreadable


def read_folder(folder: Path) -> list[records.Summary]:
    """Return the summaries in a folder of results.

    UserError if the folder is this workflow's own, if a summary or a record in it is invalid or of another version,
    or if a summary does not have the throughput of its records. Records may be missing.
    """
    where, own = f"compare.against: {folder}", Path("results")
    if own.is_dir() and folder.samefile(own):
        raise UserError(
            f"{where} is the folder in which this workflow writes its own results",
            next_step="take it out of compare.against: the comparison has these results anyway",
        )
    paths = sorted(folder.glob("*/bz*_*.json"))
    if not paths:
        raise UserError(
            f"{where} has no results",
            why="a folder of results has summaries, such as bert/bz32_fp32.json",
            next_step="name the folder results/ of a finished workflow, not the folder around it",
        )
    try:
        return list(map(_checked, paths))
    except UserError as error:
        raise UserError(f"compare.against: {error.what}", why=error.why, next_step=NEXT) from None


def _checked(path: Path) -> records.Summary:
    """Return a summary whose records, as far as they are there, are valid and have its throughputs."""
    summary = records.read_summary(path)
    expected = f"{summary.benchmark}/bz{summary.batch}_{summary.precision}.json"
    if not path.as_posix().endswith("/" + expected):
        raise UserError(f"{path} is the summary of other runs", why=f"its content belongs at {expected}")
    for file in sorted(path.with_suffix("").glob("*/*/run*.json")):
        record = records.read_run(file)
        series = summary.frameworks.get(record.spec.framework, {})
        cell, number = series.get(str(record.spec.topology)), record.spec.repeat
        if cell is None or not record.samples_per_s or any(number in part.repeats for part in cell.left_out):
            continue
        stated = cell.values[number - 1] if number <= len(cell.values) else None
        if stated != record.samples_per_s:
            raise UserError(
                f"{path} does not fit its record {file}",
                why=f"repeat {number} has {record.samples_per_s:g} {record.unit}, and the summary says {stated}",
            )
    return summary


def compare(
    summaries: Sequence[Path],
    against: Sequence[Path],
    output: Path,
    acceptance: Path | None = None,
    prices: Mapping[str, Price] | None = None,
) -> None:
    """Write results/compare.json. Without summaries, only the machines of archives and folders are compared.

    UserError if an archive or a folder cannot be read, or has nothing in common with our results. UserError as well if
    a file of an archive was changed. Whether its figures follow from its raw values takes longer, and is asked by
    `throughline check`. acceptance: ours, if there is one.
    """
    ours = present(summaries, acceptance)
    compared, groups = [], {ours.name: ours.groups} if ours.groups else {}
    for name, path in names(against).items():
        with opened(path) as theirs:
            compared.append(_beside(ours, theirs))
            groups[name] = theirs.groups
    over_machines = machines.compare(groups, prices or {})
    if ours.groups and len({(cell.device, cell.price_per_device_hour) for cell in over_machines}) < 2:
        over_machines = []
    if not (over_machines or any(side.cells or side.acceptance for side in compared)):
        there = [*compared[0].only_there[:3], *compared[0].unreadable[:1]]
        raise UserError(
            f"no cell of {', '.join(map(str, against))} is also in the present results",
            why=f"present: {', '.join(map(str, list(ours.cells)[:3])) or 'nothing'}; "
            f"there: {', '.join(there) or 'nothing'}",
            next_step="measure a benchmark of the same name, batch, precision, framework and topology",
        )
    found = Compared(schema_=records.SCHEMA, started=ours.started, archives=compared, machines=over_machines)
    files.write_json(output, found.model_dump(by_alias=True))


def _beside(ours: Results, theirs: Results) -> ComparedArchive:
    both = [key for key in ours.cells if key in theirs.cells]
    again = [*ours.again, *theirs.again]
    pairs = judged_pairs.tested([_pair(ours, theirs, key) for key in both], again, elsewhere=True)
    differs = {key: between(_facts(ours.cells[key]), _facts(theirs.cells[key])) for key in both}
    everywhere = [fact for fact in next(iter(differs.values()), []) if all(fact in those for those in differs.values())]
    lacking = [key for key in theirs.cells if key not in ours.cells]
    acceptance = None
    if ours.acceptance and theirs.acceptance:
        acceptance = accepted.compare(ours.acceptance, theirs.acceptance, theirs.name)
    return ComparedArchive(
        name=theirs.name,
        sha256=theirs.sha256,
        version=theirs.version,
        started=theirs.started,
        differs=everywhere,
        cells=[
            ComparedCell(
                **key._asdict(),
                unit=pair.other.group.unit,
                ours=list(pair.other.repeats),
                theirs=list(pair.base.repeats),
                differs=[fact for fact in differs[key] if fact not in everywhere],
                **pair.values(),
            )
            for key, pair in zip(both, pairs, strict=True)
        ],
        only_here=[str(key) for key in ours.cells if key not in theirs.cells],
        only_there=list(map(str, lacking)),
        **_apart([(ours.cells[key], theirs.cells[key]) for key in both]),
        failed={str(key): why for key in lacking if (why := ours.failed.get(key))},
        unreadable=list(theirs.unreadable),
        acceptance=acceptance,
    )


def _pair(ours: Results, theirs: Results, key: Key) -> Pair:
    """Return the comparison of one cell, without a test."""
    what = f"here over {theirs.name}"
    pair = judged_pairs.untested(theirs.cells[key], ours.cells[key], "archives", what, str(key), theirs.name)
    return replace(pair, unlike=tuple(_barred(ours, theirs, key)))


def _barred(ours: Results, theirs: Results, key: Key) -> Iterable[str]:
    """Yield why a cell of the two sides must not be compared."""
    here, there = ours.cells[key], theirs.cells[key]
    for part in SAME_WORK:
        one, other = (getattr(cell.group.summary, part) for cell in (here, there))
        if one != other:
            texts = [short(values(value) if is_dataclass(value) else value) for value in (one, other)]
            yield f"{part} is {texts[0]} here and {texts[1]} there"
    for cell, where in ((here, "here"), (there, "there")):
        if cell.barred:
            yield f"{cell.framework} {where} {cell.doubt} (equivalence.json)"
    if here.topology.simulated != there.topology.simulated:
        yield "the nodes of one side are simulated"
    protocols = ours.protocol(key), theirs.protocol(key)
    if None not in protocols and protocols[0] != protocols[1]:
        yield f"the runs were measured in different ways (protocol {protocols[0]} here, {protocols[1]} there)"


def _facts(cell: Cell) -> dict[str, Any]:
    """Return what may decide the speed of a cell: devices, software, options and data."""
    summary = cell.group.summary
    parts = {part: values(getattr(summary, part)) for part in ("options", "optimizer", "steps")}
    known = cell.facts | flat(parts)
    if summary.global_batch:  # then the options state no accumulation, and each topology has its own
        known["options.gradient_accumulation"] = cell.size.gradient_accumulation
    return known


def _apart(pairs: Sequence[tuple[Cell, Cell]]) -> dict[str, Any]:
    """Return `days_apart` and `together` of `ComparedArchive`: one after the other, at the same time, or in turn."""
    starts = [(one.record.starts, other.record.starts) for one, other in pairs]
    if pairs and all(here and here == there for here, there in starts):
        return {"days_apart": 0.0, "together": "the same runs"}
    if pairs and all(len(here) > 1 and in_rounds(pair) for (here, _), pair in zip(starts, pairs, strict=True)):
        return {"days_apart": 0.0, "together": "in turn"}
    times = [sorted(time for pair in pairs for time in _times(pair[number])) for number in (0, 1)]
    if not all(times):
        return {}
    older, newer = sorted((side[0], side[-1]) for side in times)
    gap = (newer[0] - older[1]).total_seconds()
    return {"days_apart": 0.0, "together": "at the same time"} if gap < 0 else {"days_apart": gap / DAY_S}


def _times(cell: Cell) -> Iterator[datetime]:
    """Yield the start of the first and the end of the last run, as far as the summary tells."""
    for text in (cell.record.started, cell.record.ended):
        try:
            time = datetime.fromisoformat(text or "")
        except ValueError:
            continue
        if time.tzinfo:  # the other side's times have a zone
            yield time

"""One side of a comparison: the present results, those of an archive, or those in a folder of another machine.

A folder is the folder `results/` of another workflow, or a copy of it. Nothing in it is written or made again.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from throughline import files, records
from throughline.archive import compare_acceptance
from throughline.archive.opening import Archive, looked_into
from throughline.files import UserError, read_json
from throughline.report.analysis import cells, judged_pairs, machines
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Pair
from throughline.spec import Batch, cell_name
from throughline.study import acceptance as study

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
    acceptance: compare_acceptance.Side | None = None
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
    accepted = compare_acceptance.read(acceptance) if acceptance else None
    return Results(machines.HERE, Path("results"), groups, accepted)


@contextmanager
def opened(path: Path) -> Iterator[Results]:
    """Open an archive, or a folder of results. UserError as from `looked_into` and `read_folder`."""
    if path.is_dir():
        groups = cells.groups(read_folder(path).values())
        yield Results(_name(path), path, groups, compare_acceptance.read(path / Path(study.RESULT).name))
        return
    with looked_into(path) as archive:
        readable, unreadable = _summaries(archive)
        groups, accepted = cells.groups(readable), compare_acceptance.read(archive.folder / study.RESULT)
        digest, version = files.sha256(path), archive.contents.version
        yield Results(_name(path), archive.folder / "results", groups, accepted, digest, version, unreadable)


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


def read_folder(folder: Path, own: Path = Path("results")) -> dict[Path, records.Summary]:
    """Return the summaries in a folder of results, by path.

    UserError if the folder is this workflow's `own`, if a summary or a record in it is invalid or of another version,
    or if a summary does not have the throughput of its records. Records may be missing.
    """
    where = f"compare.against: {folder}"
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
        return {path: _checked(path) for path in paths}
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

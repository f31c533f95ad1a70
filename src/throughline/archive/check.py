"""Check an archive: derive every figure again from the raw values in it, and say what differs.

Digests come first: what is not the file that archive.json names is not looked at any further. Then raw.py derives the
figures of every record, and again.py makes in a scratch folder what the rules make of records. Plots in files of their
own are held by their digests alone, because their bytes depend on the version of the library that drew them.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from throughline import __version__, records
from throughline.archive import accepted, again, pack, raw
from throughline.archive.contents import NAME, Archive, opened, rules
from throughline.archive.differences import FAULTS, Difference, Differences, between, reason, safely
from throughline.files import UserError, read_json
from throughline.report.analysis import cells
from throughline.report.topic import Scope
from throughline.study import acceptance as study
from throughline.study.config import block_name

RUN = re.compile(r"(?P<cell>results/[^/]+/(?P<size>bz[^/]+)/(?P<framework>[^/]+)/(?P<topology>[^/]+))/run(\d+)\.json")
OF_RULES = re.compile(
    r"predictions\.json.*redicted\[|acceptance.*(\.|, )(limit\w*|p|p_holm|others_low\w*|others_high\w*|coverage): "
)
"""Figures that another version may define otherwise: the model of a step, and the test of an acceptance."""
Runs = Mapping[str, records.RunRecord]
"""The records by their names in the archive."""


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    notes: differences that other rules explain, if another version made the summaries. doubts: figures that follow from
    their raw values and are not plausible, such as a speedup over more devices than there are.
    """

    differences: list[Difference]
    notes: list[Difference]
    doubts: list[Difference]
    counts: Mapping[str, int]
    same_rules: bool
    version: str


def check(path: Path) -> Verdict:
    """Check an archive. UserError if it is no archive, or one that we refuse to open."""
    with opened(path) as archive:
        same, runs, doubts = archive.contents.rules == rules(), dict[str, records.RunRecord](), list[Difference]()
        differences = [Difference(name, "", why) for name, why in archive.changes()]
        if not differences:
            differences = [
                *_records(archive, runs),
                *safely(archive.folder, NAME, _left_out(archive, runs)),
                *safely(archive.folder, study.RESULT, accepted.strange(archive.folder)),
                *again.check(archive, same),
            ]
            doubts = [*_doubts(archive), *safely(archive.folder, NAME, _absent(archive, runs))]
        # A word may follow from a rule that has changed. A figure may not.
        excused = {item for item in differences if not same and (item.word or OF_RULES.search(str(item)))}
        return Verdict(
            differences=[item for item in differences if item not in excused],
            notes=[item for item in differences if item in excused],
            doubts=doubts,
            counts={"files": len(archive.digests), "records": len(runs), "summaries": len(archive.summaries)},
            same_rules=same,
            version=archive.contents.version,
        )


def _records(archive: Archive, runs: dict[str, records.RunRecord]) -> Differences:
    """Yield what is wrong with runs. runs: gets the records by their names, but for those that cannot be read."""
    folder, manifest_at = archive.folder, cache(read_json)
    measured = {measurement.record: measurement for measurement in accepted.measured(folder)}
    for name in sorted({*filter(RUN.fullmatch, archive.digests), *measured}):
        measurement, path = measured.get(name), folder / name
        try:
            run = records.read_run_of(path, measurement.spec) if measurement else records.read_run(path)
        except UserError as error:
            yield Difference(name, "", reason(error, folder))
            continue
        runs[name] = run
        yield from raw.check(folder, path, run, manifest_at, measurement.visit if measurement else run.spec.record)


def _left_out(archive: Archive, runs: Runs) -> Differences:
    """Yield repeats that were left out, and another configuration than that of the records.

    The records keep the configuration that they were made with. So a run that was left out is found, even if everything
    was derived again without it.
    """
    contents = archive.contents
    yield from between(NAME, contents.configuration, _configuration(runs), "configuration")
    for benchmark, made in contents.benchmarks.items():
        block, failed = _block(runs, benchmark), made.terms.get("failed", {})
        asked = block.get("repeats", made.repeats)
        if asked != made.repeats:
            what = f"benchmarks.{benchmark}.repeats"
            yield Difference(NAME, what, f"it states {made.repeats}, and the latest record was made for {asked}")
        repeats = defaultdict[str, set[int]](set)
        for match in _names(archive.digests, benchmark):
            repeats[match["cell"]].add(int(match[5]))
        for cell, numbers in repeats.items():  # every repeat has a record, whatever its outcome was, or has failed
            if len(numbers) >= (block.get("enough") or math.inf):
                numbers |= {number for number in range(1, made.repeats + 1) if f"{cell}/run{number}.json" in failed}
            expected = range(1, max(made.repeats, *numbers) + 1)  # as large as somebody likes
            if lacking := [*islice((number for number in expected if number not in numbers), 10)]:
                lacking_names = ", ".join(f"run{number}" for number in lacking)
                yield Difference(cell, lacking_names, f"the archive lacks this repeat, and has {len(numbers)}")


def _absent(archive: Archive, runs: Runs) -> Differences:
    """Yield what the configuration of the records asks for and has no record of.

    The configuration may have become smaller since, so this is a doubt. So is a repeat that is said to have failed.
    """
    for benchmark, made in archive.contents.benchmarks.items():
        for name, why in made.terms.get("failed", {}).items():
            yield Difference(str(name), "", f"it has no record; the archive says that it failed: {why}")
        block, there = _block(runs, benchmark), _names(runs, benchmark)
        batches = block.get("batch", {}).items()
        asked = {
            "framework": block.get("frameworks"),
            "topology": block.get("topologies"),
            "size": [f"bz{size}_{precision}" for precision, sizes in batches for size in sizes],
        }
        for kind, names in asked.items():
            measured = {match[kind] for match in there}
            for name in names if there and isinstance(names, list) else ():
                if name not in measured:
                    text = f"the configuration asks for this {kind}, and no record has it"
                    yield Difference(f"results/{benchmark}", str(name), text)


def _names(names: Iterable[str], benchmark: str) -> list[re.Match[str]]:
    """Return the names of a benchmark's records."""
    return [match for name in names if (match := RUN.fullmatch(name)) and name.split("/")[1] == benchmark]


def _configuration(runs: Runs, benchmark: str | None = None) -> dict[str, Any] | None:
    """Return the configuration of the latest record, or of the latest of a benchmark."""
    ours = [name for name in runs if RUN.fullmatch(name) and benchmark in (None, name.split("/")[1])]
    return pack.latest((runs[name].started, runs[name].configuration) for name in sorted(ours, key=Path))


def _block(runs: Runs, benchmark: str) -> dict[str, Any]:
    """Return a benchmark's part of the configuration of its latest record; empty if no record has one."""
    configuration = _configuration(runs, benchmark)
    block: dict[str, Any] = configuration["benchmarks"][block_name(benchmark)] if configuration else {}
    return block


def _doubts(archive: Archive) -> Differences:
    """Yield figures that the rules of plausibility doubt. The same rules doubt published rows."""
    for benchmark, made in archive.contents.benchmarks.items():
        try:
            doubts = list(Scope(cells.groups([again.read_summary(archive, name) for name in made.summaries])).doubts)
        except FAULTS:  # then the summary does not follow from its records, and is named
            continue
        for doubt in doubts:
            what = f"{doubt.row.framework}, {doubt.row.devices} devices"
            yield Difference(f"results/{benchmark}", what, f"{doubt.rule}: {doubt.text}")


def lines(verdict: Verdict, path: Path) -> Iterator[str]:
    """Yield what to print about an archive."""
    kinds = {"differs": verdict.differences, "note": verdict.notes, "implausible": verdict.doubts}
    for kind, items in kinds.items():
        yield from (f"{kind}: {item}" for item in items)
    if not verdict.same_rules:
        yield (
            f"version {verdict.version} made the summaries with other rules than those of this program, version "
            f"{__version__}. Words and tables may differ for that reason; figures may not."
        )
    if verdict.differences:
        yield f"{path}: {len(verdict.differences)} things differ"
    else:
        held = ", ".join(f"{count} {name}" for name, count in verdict.counts.items())
        yield f"{path}: {held}: every figure follows from the raw values"

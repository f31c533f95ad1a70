"""Check an archive: derive every figure again from the raw values in it, and say what differs.

Digests come first: what is not the file that archive.json names is not looked at any further. Then records, summaries,
equivalence checks, verdicts, tables and the page are derived from one another. Plots in files of their own are held by
their digests alone, because their bytes depend on the version of the library that drew them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from throughline import __version__, files, records, temporary
from throughline.archive import accepted, asked, page, proofs, raw, samples, tables
from throughline.archive.contents import NAME, Contents, Made, rules
from throughline.archive.differences import Difference, Found, between
from throughline.archive.opening import as_json, opened
from throughline.archive.reading import FAULTS, read, read_summary, safely
from throughline.comparables import exports
from throughline.files import UserError
from throughline.records import RunRecord, Summary
from throughline.report.analysis import cells, predictions, summary
from throughline.report.topic import Scope
from throughline.report.topics import write_tables
from throughline.study import acceptance as study

MANIFEST = re.compile("data/.*/manifest[.]json")
RECORD = "bz*_*/*/*/run*.json"


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

    def __str__(self) -> str:
        held = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{held}: every figure follows from the raw values"


def check(path: Path) -> Verdict:
    """Check an archive. UserError if it is no archive, or one that we refuse to open."""
    with opened(path) as (folder, contents):
        found, doubts = list(digests(folder, contents)), list[Difference]()
        if not found:
            runs: dict[str, RunRecord] = {}
            found = [
                *_records(folder, contents, runs),
                *asked.check(contents, runs),
                *_summaries(folder, contents),
                *safely(folder, "results", _predictions(folder, contents)),
                *safely(folder, study.RESULT, accepted.check(folder)),
                *_checks(folder),
                *safely(folder, "results", _tables(folder, contents)),
                *safely(folder, page.NAME, page.check(folder, contents)),
            ]
            doubts = [*_doubts(folder, contents), *asked.absent(contents, runs)]
        same = contents.rules == rules()
        # A word may follow from a rule that has changed. A figure may not.
        notes = [difference for difference in found if difference.word and not same]
        wrong = [difference for difference in found if same or not difference.word]
        counts = {
            "files": len(contents.files),
            "records": sum(1 for _ in _paths(folder, contents, RECORD)) + len(accepted.measured(folder)),
            "summaries": sum(len(made.summaries) for made in contents.benchmarks.values()),
        }
        return Verdict(wrong, notes, doubts, counts, same, contents.version)


def digests(folder: Path, contents: Contents) -> Found:
    """Yield files that are not those that archive.json names."""
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {NAME}
    for name in sorted(there | contents.files.keys()):
        if name not in there:
            yield Difference(name, "", f"{NAME} names this file, and the archive lacks it")
        elif name not in contents.files:
            yield Difference(name, "", f"{NAME} does not name this file")
        elif files.sha256(folder / name) != contents.files[name].sha256:
            yield Difference(name, "", f"its SHA-256 is not the one in {NAME}: the file was changed")


def _paths(folder: Path, contents: Contents, pattern: str) -> Iterator[Path]:
    for benchmark in contents.benchmarks:
        yield from sorted((folder / "results" / benchmark).glob(pattern))


def _records(folder: Path, contents: Contents, runs: dict[str, RunRecord]) -> Found:
    """Yield records whose figures do not follow from their windows, ranks and telemetry, and logs of other runs.

    runs: gets the records of the benchmarks by their names, but for those that cannot be read.
    """
    manifests = {name: read(folder, folder / name, as_json)[0] for name in contents.files if MANIFEST.fullmatch(name)}
    for path in _paths(folder, contents, RECORD):
        run, faults = read(folder, path, records.read_run)
        yield from faults
        if isinstance(run, RunRecord):
            runs[path.relative_to(folder).as_posix()] = run
            yield from _record(folder, path, run, manifests, run.spec.record)
    for one in accepted.measured(folder):
        path = folder / one.record
        run, faults = read(folder, path, partial(records.read_run_of, spec=one.spec))
        yield from faults
        if isinstance(run, RunRecord):
            yield from _record(folder, path, run, manifests, one.visit)


def _record(folder: Path, path: Path, run: RunRecord, manifests: Mapping[str, Any], made: str) -> Found:
    """Yield what is wrong with one record. manifests: those of all data; made: the file that its command makes."""
    name = path.relative_to(folder).as_posix()
    yield from safely(folder, name, raw.record(name, run))
    yield from safely(folder, name, asked.rows(name, run, manifests))
    table = Path(samples.table_name(str(path)))
    if table.exists():
        yield from safely(folder, name, samples.telemetry(name, run, table))
    elif any(node.samples for node in run.telemetry):
        yield Difference(name, "telemetry", "the archive lacks the samples behind it")
    yield from _log(folder, path.with_suffix(".log"), run, made)


def _log(folder: Path, path: Path, run: RunRecord, made: str) -> Found:
    """Yield a log that is missing, of another run, or that states another outcome than the record.

    made: the file that the command in its first line makes.
    """
    name = path.relative_to(folder).as_posix()
    if not path.exists():
        yield Difference(name, "", "the archive lacks the log of this run")
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    first = text.partition("\n")[0]
    if _numberless(made) not in _numberless(first) and f"--record {made}" not in text:
        yield Difference(name, "", "it is the log of another run: its first line does not name this record")
    printed = re.findall(r"^outcome: ([\d.]+) \S+ over", text, re.M)
    if run.samples_per_s and printed and printed[-1] != f"{run.samples_per_s:.1f}":
        yield Difference(name, "", f"it prints {printed[-1]}, and the record states {run.samples_per_s:.1f}")


def _numberless(text: str) -> str:
    """Return a text without the numbers of nodes: masking a node that is really called node3 changes its number."""
    return re.sub(r"\bnode\d+", "node", text)


def _summaries(folder: Path, contents: Contents) -> Found:
    for made in contents.benchmarks.values():
        for name in made.summaries:
            stated, faults = read_summary(folder, name)
            yield from faults
            if stated:
                yield from safely(folder, name, _summary(folder, folder / name, stated, made))


def _summary(folder: Path, path: Path, stated: Summary, made: Made) -> Found:
    """Yield what a summary states otherwise than its records."""
    name, cell = path.relative_to(folder).as_posix(), path.with_suffix("")
    there = {run.relative_to(cell).with_suffix(".log").as_posix(): run for run in cell.glob("*/*/run*.json")}
    named = [log for _, _, series in stated.cells() for log in series.logs]
    for log in sorted(set(named) ^ there.keys()):
        lacking = "the archive lacks this record, which the summary counts"
        told = lacking if log in named else "the summary leaves this record out"
        yield Difference(name, f"{cell.name}/{log.removesuffix('.log')}.json", told)
    if set(named) != there.keys():
        return
    proof = path.with_name("equivalence.json")
    try:
        equal = records.read_equivalence(proof) if made.equivalence and proof.exists() else None
        terms = summary.Terms.model_validate(made.terms)
        derived = summary.summarize([there[log] for log in named], made.repeats, made.remarks, equal, terms)
    except (UserError, ValueError, RecursionError) as error:
        yield Difference(name, "", f"it cannot be derived: {error}".replace(f"{folder}/", ""))
        return
    yield from between(name, as_json(path), derived.model_dump(by_alias=True))


def _predictions(folder: Path, contents: Contents) -> Found:
    """Yield predictions that do not follow from the summaries."""
    for benchmark, made in contents.benchmarks.items():
        path = folder / "results" / benchmark / "predictions.json"
        if made.predict is None:
            continue
        name = path.relative_to(folder).as_posix()
        stated, faults = read(folder, path, records.read_predictions)
        yield from faults
        there = [[part for part in names if (folder / part).exists()] for names in (made.summaries, made.compared)]
        if stated is None or not there[0]:
            continue
        try:
            own, extras = ({part: folder / part for part in names} for names in there)
            derived = predictions.derive(own, extras, predictions.Asked.model_validate(made.predict))
        except (UserError, ValueError, RecursionError) as error:
            yield Difference(name, "", f"it cannot be derived: {error}".replace(f"{folder}/", ""))
            continue
        for difference in between(name, as_json(path), derived.model_dump(by_alias=True)):
            of_model = "redicted[" in difference.what  # another version may have another model of a step
            yield replace(difference, word=difference.word or of_model)


def _checks(folder: Path) -> Found:
    """Yield verdicts of equivalence checks, convergence checks and searches that their raw values do not bear out."""
    kinds: dict[str, tuple[Callable[[Path], Any], Callable[[str, Any, Path], Found]]] = {
        "equivalence.json": (records.read_equivalence, proofs.of_proof),
        "max_*_*.json": (records.read_max_batch, lambda name, search, _: proofs.of_search(name, search)),
        "convergence_*.json": (records.read_verdict, lambda name, verdict, inner: _curve(folder, name, verdict, inner)),
    }
    for pattern, (reader, derive) in kinds.items():
        for path in sorted(folder.glob(f"results/*/{pattern}")):
            value, faults = read(folder, path, reader)
            yield from faults
            if value:
                name = path.relative_to(folder).as_posix()
                yield from safely(folder, name, derive(name, value, path.with_suffix("")))


def _curve(folder: Path, name: str, verdict: Any, inner: Path) -> Found:
    path = inner / "curve.json"
    curve, faults = read(folder, path, records.read_curve) if path.exists() else (None, [])
    yield from faults or proofs.of_curve(name, verdict, curve)


def _tables(folder: Path, contents: Contents) -> Found:
    """Yield the tables of benchmarks that are not those that their summaries give."""
    for benchmark, made in contents.benchmarks.items():
        kept = folder / "results" / benchmark / "tables"
        there = [read_summary(folder, name)[0] for name in (*made.summaries, *made.compared)]
        usable = [value for value in there if value]
        if len(usable) < len(there) or not kept.is_dir():
            continue
        groups = cells.groups(usable, [])
        own = [group for group in groups if group.benchmark == benchmark]
        predicted = None
        if made.predict is not None:
            predicted = read(folder, kept.with_name("predictions.json"), records.read_predictions)[0]
        with temporary.folder() as again:
            write_tables(Scope(own, groups, predictions=predicted), again)
            exports.write([group.summary for group in own if group.summary], again)
            yield from tables.folders(kept, again, f"results/{benchmark}/tables")


def _doubts(folder: Path, contents: Contents) -> Found:
    """Yield figures that the rules of plausibility doubt. The same rules doubt published rows."""
    for benchmark, made in contents.benchmarks.items():
        there = [read_summary(folder, name)[0] for name in made.summaries]
        try:
            doubts = list(Scope(cells.groups([value for value in there if value])).doubts)
        except FAULTS:  # then the summary does not follow from its records, and is named
            continue
        for doubt in doubts:
            row = doubt.row
            yield Difference(
                f"results/{benchmark}", f"{row.framework}, {row.devices} devices", f"{doubt.rule}: {doubt.text}"
            )


def lines(verdict: Verdict, path: Path) -> Iterator[str]:
    """Yield what to print about an archive."""
    for difference in verdict.differences:
        yield f"differs: {difference}"
    for note in verdict.notes:
        yield f"note: {note}"
    for doubt in verdict.doubts:
        yield f"implausible: {doubt}"
    if not verdict.same_rules:
        yield (
            f"version {verdict.version} made the summaries with other rules than those of this program, version "
            f"{__version__}. Words and tables may differ for that reason; figures may not."
        )
    held = f"{path}: {len(verdict.differences)} things differ" if verdict.differences else f"{path}: {verdict}"
    yield held

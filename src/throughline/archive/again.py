"""Make the files of an archive again that follow from others, and compare: with the functions that the rules call.

Each file is made from the archive's own files, as its rule makes it: a summary from the records, tables from the
summaries that the archive holds. So a fault is named where it is, and not again in all that follows from it.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from throughline import files, records, temporary
from throughline.archive import accepted, pack
from throughline.archive.contents import Archive, Made
from throughline.archive.differences import Difference, Differences, of_file, safely
from throughline.checks import convergence_check, equivalence
from throughline.comparables import exports
from throughline.records.checks import Comparison
from throughline.report.analysis import cells, predictions, summary
from throughline.report.topic import Scope
from throughline.report.topics import write_tables
from throughline.spec import Topology
from throughline.study import acceptance as study

PLAIN = re.compile(r"(?!\.)[\w.@+-]+")
"""The name of a framework, a benchmark, a precision or a topology. We use it as a part of a file's name."""
MOST_REPEATS = 10_000
"""The most repeats of a cell: a summary has a place for each, also for those without a record."""


def check(archive: Archive, same_rules: bool) -> Differences:
    """Yield what the files of an archive state otherwise than the files that they follow from.

    same_rules: this program's rules made the archive. Otherwise its page is another one in any case.
    """
    with temporary.folder() as scratch:
        for name, make in _makers(archive, same_rules):
            yield from safely(archive.folder, name, _compared(archive, scratch, name, make))
    page = archive.folder / pack.PAGE
    text = page.read_text(encoding="utf-8", errors="replace") if page.exists() else ""
    for name in archive.summaries:
        if base64.b64encode((archive.folder / name).read_bytes()).decode() not in text:
            yield Difference(pack.PAGE, name, "the page does not hold this summary as it is")
    if not same_rules:
        yield Difference(pack.PAGE, "", "the rest of the page was not compared, because other rules made it", word=True)


def _compared(archive: Archive, scratch: Path, name: str, make: Callable[[Path], object]) -> Differences:
    make(scratch / name)
    found = [(root, path) for root in (scratch, archive.folder) for path in (root / name, *(root / name).rglob("*"))]
    made = {path.relative_to(root) for root, path in found if path.is_file()}
    if name == study.RESULT:
        made |= set(map(Path, accepted.TEXTS))
    with_plots = archive.contents.drawn_with == pack.LIBRARY
    for path in sorted(made):
        yield from of_file(path.as_posix(), archive.folder / path, scratch / path, with_plots)


def _makers(archive: Archive, same_rules: bool) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Yield the name of what each rule makes, a file or a folder, and a function that makes it at another path."""
    folder, contents = archive.folder, archive.contents
    for benchmark, made in contents.benchmarks.items():
        for name in made.summaries:
            yield name, partial(_summary, archive, name, made)
        if made.predict is not None:
            yield f"results/{benchmark}/predictions.json", partial(_predictions, archive, made)
        yield f"results/{benchmark}/tables", partial(_tables, archive, benchmark, made)
    for pattern, derive in OF_CHECKS.items():
        for path in sorted(folder.glob(f"results/*/{pattern}")):
            yield path.relative_to(folder).as_posix(), partial(_derived, path, derive)
    if (folder / study.RESULT).exists():
        yield study.RESULT, partial(accepted.judge, folder)
    if same_rules:
        page = partial(pack.page, folder, contents.benchmarks, archive.digests)
        yield pack.PAGE, lambda output: files.write_text(output, page())


def read_summary(archive: Archive, name: str) -> records.Summary:
    """Return a summary. ValueError if a name in it, which is a part of the names of files, is none."""
    kept = records.read_summary(archive.folder / name)
    _require_names(*kept.frameworks, kept.benchmark, kept.precision)
    return kept


def _require_names(*names: str) -> None:
    if odd := [name for name in names if not PLAIN.fullmatch(name)]:
        raise ValueError(f"{odd[0][:80]!r} is no name")


def _summary(archive: Archive, name: str, made: Made, output: Path) -> None:
    order, path = list(read_summary(archive, name).frameworks), archive.folder / name  # as in the configuration
    runs = sorted(path.with_suffix("").glob("*/*/run*.json"))
    if max([made.repeats, *(int(run.stem.removeprefix("run")) for run in runs)]) > MOST_REPEATS:
        raise ValueError(f"a cell has more than {MOST_REPEATS:,} repeats")
    runs.sort(key=lambda run: order.index(run.parts[-3]) if run.parts[-3] in order else len(order))
    check = path.with_name("equivalence.json") if made.equivalence else None
    terms = summary.Terms.model_validate(made.terms)
    summary.write(runs, output, made.repeats, made.remarks, equivalence=check, terms=terms)


def _predictions(archive: Archive, made: Made, output: Path) -> None:
    own, extras = ({part: archive.folder / part for part in names} for names in (made.summaries, made.compared))
    derived = predictions.derive(own, extras, predictions.Asked.model_validate(made.predict))
    files.write_json(output, derived.model_dump(by_alias=True))


def _tables(archive: Archive, benchmark: str, made: Made, output: Path) -> None:
    groups = cells.groups([read_summary(archive, name) for name in (*made.summaries, *made.compared)], [])
    of_benchmark = [group for group in groups if group.benchmark == benchmark]
    path = archive.folder / "results" / benchmark / "predictions.json"
    predicted = records.read_predictions(path) if made.predict is not None else None
    write_tables(Scope(of_benchmark, groups, predictions=predicted), output)
    exports.write([group.summary for group in of_benchmark if group.summary], output)


def _derived(path: Path, derive: Callable[[Path], dict[str, Any]], output: Path) -> None:
    files.write_json(output, derive(path))


def equivalence_of(path: Path) -> dict[str, Any]:
    """Return an equivalence check with the comparisons that follow from the records of its runs.

    The folder beside it, of its own name, has these records.
    """
    check, folder = records.read_equivalence(path), path.with_suffix("")
    for kept in (check.frameworks, check.precisions):
        _require_names(*kept, *(name for names in kept.values() for name in names))
    derived, references = check.model_dump(by_alias=True), check.reference_loss
    # With a layout over several devices, the only reference has fewer replicas than there are ranks.
    only = next(iter(references.values())) if len(references) == 1 else None
    for framework, by_topology in check.frameworks.items():
        for topology, compared in by_topology.items():
            expected = references.get(str(Topology.parse(topology).world), only)
            follows = _comparison(compared, folder / f"{framework}_{topology}.json", expected, check.tolerance)
            derived["frameworks"][framework][topology] |= follows
    for framework, by_precision in check.precisions.items():
        for precision, compared in by_precision.items():
            record = next(folder.glob(f"{framework}_*_{precision}.json"), folder / f"{framework}__{precision}.json")
            in_fp32 = check.frameworks[framework].get(record.stem.split("_")[-2])
            expected = in_fp32.loss if in_fp32 and not compared.skipped_steps else None  # no other reference is kept
            follows = _comparison(compared, record, expected, check.tolerance)
            derived["precisions"][framework][precision] |= follows
    return derived


def _comparison(
    compared: Comparison, record: Path, expected: list[float] | None, tolerance: float
) -> Mapping[str, Any]:
    """Return what follows from the losses in a record. There are none if the reason says why nothing was compared."""
    if not compared.loss:
        return {}
    losses = equivalence.means(files.read_json(record))
    if not expected or compared.verdict not in ("equal", "different"):
        return {"loss": losses[: len(compared.loss)]}
    judged = equivalence.judged(losses, expected[: len(losses)], compared.tolerance or tolerance)
    updates = compared.updates
    off = updates and (updates.verdict == "different" or any(tensor.excess > 1 for tensor in updates.tensors.values()))
    figures = judged.model_dump(include={"loss", "difference", "largest_difference", "at_step"})
    return figures | {"verdict": "different" if off else judged.verdict}


def search_of(path: Path) -> dict[str, Any]:
    """Return a search for the largest batch, or most classes, with the sizes that follow from its tries."""
    search = records.read_max_batch(path)
    derived = search.model_dump(by_alias=True)
    size, largest = ("batch", "largest_batch_per_device") if search.quantity == "batch" else ("size", "largest_size")
    for framework, result in search.frameworks.items():
        if result.status == "ok":
            fits, oom = (
                [getattr(attempt, size) for attempt in result.tries if attempt.status == status]
                for status in ("fits", "oom")
            )
            sizes = {largest: max(fits, default=None), "smallest_out_of_memory": min(oom, default=None)}
            derived["frameworks"][framework] |= sizes
    return derived


def convergence_of(path: Path) -> dict[str, Any]:
    """Return the verdict on a curve, beside the stated curve that the verdict in this file holds."""
    verdict = records.read_verdict(path)
    curve = records.read_curve(path.with_suffix("") / "curve.json")
    expected = {name: [(int(step), value) for step, value in points] for name, points in verdict.stated.items()}
    derived = convergence_check.compare(curve, expected, verdict.tolerance, verdict.against, verdict.against_sha256)
    return derived.model_dump(by_alias=True, mode="json")


OF_CHECKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "equivalence.json": equivalence_of, "convergence_*.json": convergence_of, "max_*_*.json": search_of,
}  # fmt: skip
"""The files of checks of a benchmark, and what follows for them from the records, tries and curves behind them."""

"""Compare the present results with archives and folders: each cell that both have, and what each machine costs.

Two sides were measured at different times and perhaps on different machines. So their repeats share no rounds: the
test is Welch's, and the A/A runs of both sides say how much two measurements of one configuration differ.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from throughline import files, records
from throughline.archive import compare_acceptance, results
from throughline.archive.results import Key, Results
from throughline.records.compared import Compared, ComparedArchive, ComparedCell, Difference
from throughline.report.analysis import judged_pairs, machines
from throughline.report.analysis.cells import Cell, in_rounds
from throughline.report.analysis.comparison import Pair
from throughline.report.analysis.differences import between, flat, short
from throughline.spec import values
from throughline.study.result_sections import Price

DAY_S = 86_400
SAME_WORK = ("model", "parameters", "scaling", "unit", "job")
"""The parts of a summary in which two sides have to agree. Otherwise they do different work."""


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
    ours = results.present(summaries, acceptance)
    compared, groups = [], {ours.name: ours.groups} if ours.groups else {}
    for name, path in results.names(against).items():
        with results.opened(path) as theirs:
            compared.append(_beside(ours, theirs))
            groups[name] = theirs.groups
    over_machines = machines.compare(groups, prices or {})
    if ours.groups and len({(cell.device, cell.price_per_device_hour) for cell in over_machines}) < 2:
        over_machines = []
    if not (over_machines or any(side.cells or side.acceptance for side in compared)):
        there = [*compared[0].only_there[:3], *compared[0].unreadable[:1]]
        raise files.UserError(
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
        acceptance = compare_acceptance.compare(ours.acceptance, theirs.acceptance, theirs.name)
    return ComparedArchive(
        name=theirs.name,
        sha256=theirs.sha256,
        version=theirs.version,
        started=theirs.started,
        differs=everywhere,
        cells=[
            _cell(key, pair, [fact for fact in differs[key] if fact not in everywhere])
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


def _cell(key: Key, pair: Pair, differs: list[Difference]) -> ComparedCell:
    return ComparedCell(
        **key._asdict(),
        unit=pair.other.group.unit,
        ours=list(pair.other.repeats),
        theirs=list(pair.base.repeats),
        differs=differs,
        **pair.values(),
    )


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

"""The acceptance of an archive: its files, and its verdict and tables made again from its records."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughline import records
from throughline.acceptance import verdict
from throughline.archive.differences import FAULTS, Difference, Differences, between
from throughline.files import read_json, write_json, write_text
from throughline.launch import fleet
from throughline.records.acceptance import Acceptance, unfinished
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
    for name, visit in asked.visits().items():
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
    visits = asked.visits()
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

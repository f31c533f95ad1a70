"""The acceptance of an archive: its files, and a check that derives its verdict and texts again from its records."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from throughline import records, temporary
from throughline.acceptance import verdict
from throughline.archive.differences import Difference, Found, between
from throughline.archive.opening import as_json
from throughline.files import UserError
from throughline.launch import fleet
from throughline.records.acceptance import Acceptance
from throughline.records.visit import unfinished
from throughline.report.render import acceptance as shown
from throughline.spec import canonical
from throughline.study import acceptance as study
from throughline.study.acceptance import Measurement

MOST = 1_000_000
"""The most measurements that the acceptance of an archive may ask for."""
TEXT, PAGE = "results/acceptance.txt", "results/acceptance.html"
OF_RULES = (".limit", ".p", ".p_holm", ".others_low", ".others_high", ".coverage")
"""The ends of the names of figures that a later version may define otherwise: not the speeds themselves."""
FAULTS = (UserError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a file of a stranger may raise when it is read."""


def measured(folder: Path) -> list[Measurement]:
    """Return the measurements of an archive's acceptance that have a record; none if the acceptance is not readable."""
    path = folder / study.RESULT
    try:
        asked = _asked(path) if path.exists() else None
    except FAULTS:  # the check of the acceptance names the fault
        return []
    return [one for one in asked.measurements() if (folder / one.record).exists()] if asked else []


def asked_of(acceptance: Acceptance) -> study.Acceptance:
    """Return what was asked for. One of FAULTS if it is not valid: the numbers of nodes are parts of files' names."""
    asked = study.read_acceptance(canonical(acceptance.asked))
    numbers = (*asked.fleet.nodes, asked.fleet.devices, asked.repeats, asked.rounds)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError("its nodes, devices, repeats and rounds are no whole numbers")
    return asked


def _asked(path: Path) -> study.Acceptance:
    """Return what was asked for. One of FAULTS if the file is not valid, or asks for what nobody can have measured."""
    as_json(path)  # `read` would not survive deep nesting
    asked = asked_of(records.read_acceptance(path))
    fleet = asked.fleet
    places = len(fleet.nodes) * (fleet.devices + 1 + min(asked.rounds, len(fleet.nodes)))
    if places * max(1, asked.repeats) * max(1, len(asked.specs)) > MOST:
        raise ValueError(f"it asks for more than {MOST:,} measurements")
    return asked


def files(result: Path) -> Iterator[Path]:
    """Yield the files that belong to an acceptance: its verdict, and what was measured for it."""
    asked = study.read_acceptance(canonical(records.read_acceptance(result).asked))
    folder = result.parent.parent
    yield from (folder / name for name in (study.RESULT, TEXT, PAGE, study.STANDINGS, study.PAIRS))
    for name, visit in asked.visits().items():
        yield from (file for file in (folder / name, unfinished(folder / name)) if file.exists())
        for one in visit:
            if (folder / one.record).exists():
                record = folder / one.record
                yield from (record, record.with_suffix(".log"), record.with_suffix(".telemetry.csv"))


def names() -> str:
    """Return the names of the nodes, in the order of their numbers, as the variable THROUGHLINE_NODES has them.

    A number without a name, or with one such as `node3` that tells nobody anything, has a dot.
    """
    known = fleet.node_names()
    told = {number: name for number, name in known.items() if not re.fullmatch(r"node\d+", name)}
    return " ".join(told.get(number, ".") for number in range(max(told, default=-1) + 1))


def check(folder: Path) -> Found:
    """Yield what an acceptance states otherwise than its records."""
    path = folder / study.RESULT
    if not path.exists():
        if (folder / study.FOLDER).exists():
            yield Difference(study.RESULT, "", "the archive lacks the verdict on its acceptance")
        return
    try:
        asked = _asked(path)
        away = {one.node: one.reason for one in records.read_acceptance(path).away}  # no record says it
        derived = verdict.judge(asked, folder, away)
    except FAULTS as error:
        yield Difference(study.RESULT, "", f"it cannot be derived: {error}".replace(f"{folder}/", ""))
        return
    for difference in between(study.RESULT, as_json(path), derived.model_dump(by_alias=True)):
        yield replace(difference, word=difference.word or difference.what.endswith(OF_RULES))
    yield from _strange(folder, asked)
    yield from _texts(folder, derived)


def _strange(folder: Path, asked: study.Acceptance) -> Found:
    """Yield records that the acceptance does not ask for, and node jobs that name others than were asked for."""
    visits = asked.visits()
    known = {one.record for visit in visits.values() for one in visit}
    for path in sorted((folder / study.FOLDER).glob("**/run*.json")):
        name = path.relative_to(folder).as_posix()
        if name not in known:
            yield Difference(name, "", "the acceptance does not ask for this record")
    for name, visit in visits.items():
        if (folder / name).exists():
            value: Any = as_json(folder / name)
            stated = value.get("records") if isinstance(value, dict) else None
            yield from between(name, stated, [one.record for one in visit], "records")
        begun = unfinished(name)
        if (folder / begun).exists():
            told = records.read_unfinished(folder / begun)
            if {*told.records, *told.failed} - {one.record for one in visit}:
                yield Difference(str(begun), "records", "the acceptance does not ask for some of them")


def _texts(folder: Path, derived: Acceptance) -> Found:
    """Yield the paragraph and the tables if others follow from the records."""
    with temporary.folder() as again:
        tables = {study.STANDINGS: again / "standings.csv", study.PAIRS: again / "pairs.csv"}
        shown.write(derived, *tables.values())
        texts = {name: path.read_text(encoding="utf-8") for name, path in tables.items()}
    for name, text in {TEXT: verdict.paragraph(derived) + "\n", **texts}.items():
        path = folder / name
        if not path.exists():
            yield Difference(name, "", "the archive lacks this file", word=True)
        elif path.read_text(encoding="utf-8", errors="replace") != text:
            yield Difference(name, "", "another text follows from the records", word=True)

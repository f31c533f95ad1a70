"""A visit of an acceptance: everything is measured once at one place, and every measurement is a run of its own.

A measurement that fails does not stop the others. The visit then fails at its end, and its file is not written; the
next visit measures only what is missing. A note beside the file (`.visit<k>.done.json`) says what is there already.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from throughline import files, records
from throughline.files import UserError, now
from throughline.launch import launcher
from throughline.launch.fleet import known
from throughline.launch.request import RunRequest
from throughline.study.acceptance import Measurement


def visit(
    measurements: Sequence[Measurement], output: Path, pythons: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Make the measurements of one visit, and return what its file holds. Raise UserError if one of them failed.

    pythons: the interpreter of a framework's ranks, by framework, if it is not this one.
    """
    started, note = now(), output.with_name(f".{output.stem}.done.json")
    done, failed = _done(note), dict[str, UserError]()
    for number, measured in enumerate(measurements, 1):
        where = f"{measured.place}, {measured.what} ({number} of {len(measurements)})"
        if done.get(measured.record) == measured.spec.canonical and _is_there(measured):
            print(f"{where}: measured already", flush=True)
            continue
        done.pop(measured.record, None)
        Path(measured.record).unlink(missing_ok=True)
        try:
            record = launcher.run(request_of(measured, output, pythons or {}))
        except launcher.Stopped:
            raise
        except UserError as error:
            failed[measured.record] = error
            print(f"{where}: failed: {error}", file=sys.stderr, flush=True)
            continue
        done[measured.record] = measured.spec.canonical
        files.write_json(note, done)
        print(f"{where}: {record['status']}", flush=True)
    if failed:
        first, reason = next(iter(failed.items()))
        more = f", and so did {len(failed) - 1} more" if len(failed) > 1 else ""
        raise UserError(
            f"{first} failed{more}; {len(measurements) - len(failed)} of {len(measurements)} measurements are there",
            why=reason.what,
            next_step=f"read {Path(first).with_suffix('.log')}; the same command measures only what is missing",
        )
    note.unlink(missing_ok=True)
    places = dict.fromkeys(str(measured.place) for measured in measurements)
    return {
        "schema": records.SCHEMA,
        "places": list(places),
        "repeat": measurements[0].spec.repeat,
        "records": [measured.record for measured in measurements],
        "started": started,
        "ended": now(),
    }


def request_of(measured: Measurement, output: Path, pythons: Mapping[str, str]) -> RunRequest:
    """Return what the launcher has to do for a measurement. Hosts behind ssh are looked up by their numbers."""
    by_ssh = measured.spec.hosts == "ssh"
    return RunRequest(
        measured.spec,
        Path(measured.record),
        Path(measured.log),
        python=pythons.get(measured.spec.framework, sys.executable),
        hosts=_names(measured.place.nodes) if by_ssh else (),
        part_of=str(output),
        visible=measured.visible,
        side_by_side=by_ssh,
    )


def _names(nodes: Sequence[int]) -> list[str]:
    names = known()
    if missing := [node for node in nodes if node not in names]:
        raise UserError(
            f"nobody knows the name of node {missing[0]}",
            why="results/acceptance.local.json does not have it",
            next_step="run snakemake accept again: it numbers the nodes",
        )
    return [names[node] for node in nodes]


def _done(note: Path) -> dict[str, str]:
    """Map the records that an earlier start of this visit has made to their specifications."""
    with suppress(OSError, ValueError):
        value = json.loads(note.read_text(encoding="utf-8"))
        if isinstance(value, dict):
            return value
    return {}


def _is_there(measured: Measurement) -> bool:
    with suppress(UserError):
        records.read_run_of(measured.record, measured.spec)
        return True
    return False

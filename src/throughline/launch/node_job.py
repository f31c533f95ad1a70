"""A node job of an acceptance: everything is measured once at one place, and every measurement is a run of its own.

A measurement that fails does not stop the others, but then the file of the node job is not written. Another file beside
it (`Unfinished` in records/acceptance.py) says what was measured and why the rest was not, and the next node job
measures only the rest, and what is old: so a node job has figures of one time.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from throughline import files, records
from throughline.files import UserError, now
from throughline.launch import launcher
from throughline.launch.fleet import node_names
from throughline.launch.request import RunRequest
from throughline.launch.supervision import Unfit
from throughline.launch.survey import TooFewGpus
from throughline.records.acceptance import Broken, Failure, Unfinished, unfinished
from throughline.study.acceptance import Measurement, Place

AGAIN = ("oom", "invalid")
"""Outcomes of a run that another try may change. A run that is not supported stays so."""
OLD = timedelta(hours=12)
MOST = 300
"""The most characters of a reason: a rank's last line of output may be long."""


def measure_all(
    measurements: Sequence[Measurement],
    output: Path,
    pythons: Mapping[str, str] | None = None,
    hang_after_s: float | None = None,
) -> dict[str, Any]:
    """Make the measurements of one node job, and return what its file holds. Raise UserError if one of them failed.

    pythons: the interpreter of a framework's ranks, by framework, if it is not this one; hang_after_s: when a run
    without progress is ended, if it is not the usual time. Then nothing else is measured after a failure.
    """
    started, note = now(), unfinished(output)
    made, failed = list[str](), dict[str, Failure]()
    with suppress(UserError):  # an earlier start of this node job has made some
        made = records.read_unfinished(note).records
    for number, measured in enumerate(measurements, 1):
        where = f"{measured.place}, {measured.what} ({number} of {len(measurements)})"
        if measured.record in made and _is_there(measured):
            print(f"{where}: measured already", flush=True)
            continue
        made = [record for record in made if record != measured.record]
        Path(measured.record).unlink(missing_ok=True)
        request = replace(request_of(measured, output, pythons or {}), hang_after_s=hang_after_s)
        failure = _measure(measured, request, where)
        if failure:
            failed[measured.record] = failure
        else:
            made.append(measured.record)
        unended = Unfinished(schema_=records.SCHEMA, records=made, failed=failed)
        files.write_json(note, unended.model_dump(by_alias=True))
        if failure and hang_after_s:
            break
    if failed:
        first, failure = next(iter(failed.items()))
        more = f", and so did {len(failed) - 1} more" if len(failed) > 1 else ""
        raise UserError(
            f"{first} failed{more}; {len(measurements) - len(failed)} of {len(measurements)} measurements are there",
            why=failure.reason,
            next_step=f"read {Path(first).with_suffix('.log')}; the same command measures only what is missing",
        )
    note.unlink(missing_ok=True)
    places = dict.fromkeys(str(measured.place) for measured in measurements)
    return {
        "schema": records.SCHEMA,
        "places": list(places),
        "nodes": in_order(measurements[0].place),
        "repeat": measurements[0].spec.repeat,
        "records": [measured.record for measured in measurements],
        "started": started,
        "ended": now(),
    }


def _measure(measured: Measurement, request: RunRequest, where: str) -> Failure | None:
    """Make one measurement, and say on the terminal how it ended. Return why it failed; None if it did not."""
    try:
        record = launcher.run(request)
    except launcher.Stopped:
        raise
    except UserError as error:
        print(f"{where}: failed: {measured.place.renumbered(str(error))}", file=sys.stderr, flush=True)
        return failure(measured, error)
    print(f"{where}: {record['status']}", flush=True)
    if record["status"] not in AGAIN:
        return None
    return failure(measured, UserError(f"{record['status']}: {record['reason']}"))


def request_of(measured: Measurement, output: Path, pythons: Mapping[str, str]) -> RunRequest:
    """Return what the launcher has to do for a measurement. Hosts behind ssh are looked up by their numbers."""
    spec, by_ssh = measured.spec, measured.spec.hosts == "ssh"
    names = node_names() if by_ssh else {}
    for node in measured.place.nodes if by_ssh else ():
        if node not in names:
            raise UserError(
                f"nobody knows the name of node {node}",
                why="results/acceptance.local.json does not have it",
                next_step="run snakemake accept again: it numbers the nodes",
            )
    return RunRequest(
        spec,
        Path(measured.record),
        Path(measured.log),
        python=pythons.get(spec.framework, sys.executable),
        hosts=[names[node] for node in measured.place.nodes] if by_ssh else (),
        part_of=str(output),
        visible=measured.visible,
        side_by_side=by_ssh,
    )


def _is_there(measured: Measurement) -> bool:
    """True if a measurement has a record of its own specification that is not OLD."""
    with suppress(UserError):
        ended = records.read_run_of(measured.record, measured.spec).ended
        return datetime.now(UTC) - datetime.fromisoformat(ended) < OLD
    return False


def failure(measured: Measurement, error: UserError) -> Failure:
    """Return why a measurement failed, and which parts of the machine are broken according to that."""
    place, nodes, only = measured.place, in_order(measured.place), measured.place.device
    broken: list[Broken] = []
    if isinstance(error, Unfit) and error.node < len(nodes):
        broken = [
            Broken(node=nodes[error.node], device=fault.gpu or 0 if only is None else only, fault=fault.broken)
            for fault in error.faults
            if fault.broken
        ]
    if isinstance(error, TooFewGpus) and place.kind == "node":
        fault = f"lacks a GPU: there are {error.gpus}, and {error.ranks} are to be measured"
        broken = [Broken(node=nodes[0], device=None, fault=fault)]
    what = error.what.removeprefix(f"{measured.visit}: ")
    text = files.scrub(f"{what} ({error.why})" if error.why and not broken else what)
    text = place.renumbered(" ".join(text.split()), nodes)
    if only is not None:
        text = re.sub(r"\bGPU \d+\b", f"GPU {only}", text)
    return Failure(reason=text[:MOST], broken=broken)


def in_order(place: Place) -> list[int]:
    """Return the numbers of a run's nodes in the order of its ranks, which is Slurm's."""
    names = os.environ.get(files.NODES, "").split()
    with suppress(UserError):
        numbers = {name.rpartition("@")[2]: number for number, name in node_names().items()}
        found = [numbers[name] for name in names if name in numbers]
        if sorted(found) == sorted(place.nodes):
            return found
    return list(place.nodes)

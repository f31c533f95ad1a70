"""Failed repeats that a summary does not wait for, because runs.enough others exist."""

from collections.abc import Iterable
from pathlib import Path

from throughline.console.console import NO_RECORD, failure_cause, log_lines
from throughline.records import stored_run
from throughline.spec import RunSpec
from throughline.study.config import Config


def given_up(config: Config, specs: Iterable[RunSpec], root: Path = Path()) -> dict[str, str]:
    """Map the records of failed repeats to why they failed, for cells with enough other repeats.

    A cell has enough if at least runs.enough of its repeats have a record of the present configuration, and every other
    one was tried and failed. A repeat that was stopped from outside, or not tried yet, can still be made.
    """
    cells: dict[tuple[str, str, str], list[RunSpec]] = {}
    for spec in specs:
        if config.block(spec.benchmark).enough:
            cells.setdefault((spec.cell, spec.framework, str(spec.topology)), []).append(spec)
    found: dict[str, str] = {}
    for runs in cells.values():
        absent = {run.record: _failure(root / run.record) for run in runs if not (root / run.record).is_file()}
        enough = config.block(runs[0].benchmark).enough or 0
        if absent and len(runs) - len(absent) >= enough and all(absent.values()):
            there = [stored_run(root / run.record) for run in runs if run.record not in absent]
            wanted = {run.canonical for run in runs}
            if sum(run is not None and run.spec.canonical in wanted for run in there) >= enough:
                found |= {record: why for record, why in absent.items() if why}
    return found


def _failure(record: Path) -> str | None:
    """Return the first line of the error at the end of a run's log; None if the run did not fail."""
    log = record.with_suffix(".log")
    lines = log_lines(log)
    if [line for line in lines if line.startswith("outcome: ")][-1:] != [NO_RECORD]:
        return None
    why = "no reason is in its log" if lines[-1] == NO_RECORD else failure_cause([log]).splitlines()[0]
    return why.removeprefix(f"{record}: ")

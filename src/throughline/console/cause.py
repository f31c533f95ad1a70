"""Why a job failed, in the words of its logs."""

from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

AT_MOST = 8
"""Lines that are shown; all of them are in the log."""
NO_RECORD = "outcome: failed; no record"
"""What a run's log says before its error."""


def cause(logs: Iterable[str]) -> str:
    """The last error that one of the logs tells, with its why and its next step; else the last lines of them all."""
    lines: list[str] = []
    for log in filter(Path.is_file, map(Path, logs)):
        own = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line]
        begins = [n for n, line in enumerate(own) if line == NO_RECORD or line.startswith(("error: ", "outcome: "))]
        if begins and (said := own[begins[-1] + (own[begins[-1]] == NO_RECORD) :]):
            more = takewhile(lambda line: line.startswith("  "), said[1:])
            return "\n".join([said[0].removeprefix("error: "), *more][:AT_MOST])
        lines += own
    return "\n".join(lines[-AT_MOST:]) or "it wrote no log: it was ended before, or never started"

"""Find out from a job's logs why the job failed."""

from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

AT_MOST = 8
"""How many lines we show. The log has all of them."""
NO_RECORD = "outcome: failed; no record"
"""The line before the error in a run's log."""


def failure_cause(logs: Iterable[str]) -> str:
    """Return the last error in the first log that has one, with its `why` and `next`.

    Without an error in any log, return the last lines of all logs together.
    """
    lines: list[str] = []
    for log in filter(Path.is_file, map(Path, logs)):
        of_log = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line]
        begins = [n for n, line in enumerate(of_log) if line == NO_RECORD or line.startswith(("error: ", "outcome: "))]
        if begins and (error := of_log[begins[-1] + (of_log[begins[-1]] == NO_RECORD) :]):
            more = takewhile(lambda line: line.startswith("  "), error[1:])
            return "\n".join([error[0].removeprefix("error: "), *more][:AT_MOST])
        lines += of_log
    return "\n".join(lines[-AT_MOST:]) or "it wrote no log: it was ended before, or never started"

"""The kinds of logs. A file in this folder has one or several kinds, and a file is enough to add one.

A file's KINDS maps the name of each kind, as in imported.json, to a function that yields the runs in a log: none if the
log is of another kind. The function raises Unusable if the log is of its kind, but gives no figure. Every kind reads
every log, so their order decides nothing. docs/add-a-kind-of-log.md explains each part.
"""

from collections.abc import Callable, Iterable

from throughline.comparables.logs.log import Log
from throughline.records import ImportedRun
from throughline.sources import every_module

Kind = Callable[[Log], Iterable[ImportedRun]]


def find_all() -> dict[str, Kind]:
    """Map the names of all kinds to their functions."""
    return {name: read for module in every_module(__name__) for name, read in module.KINDS.items()}

"""The kinds of logs. Each file in this folder is one kind, and a file is enough to add one.

A file has NAME, the name of its kind in imported.json, and `read`, a function that yields the runs in a log: none if
the log is of another kind. `read` raises Unusable if the log is of its kind, but gives no figure. Every kind reads
every log, so their order decides nothing. docs/add-a-kind-of-log.md explains each part.
"""

from collections.abc import Callable, Iterable

from throughline.comparables.logs.log import Log, Reading
from throughline.sources import every_module

Kind = Callable[[Log], Iterable[Reading]]


def found() -> dict[str, Kind]:
    """Map the names of all kinds to their functions `read`, in the order of the files' names."""
    return {module.NAME: module.read for module in every_module(__name__)}

"""The kinds of logs of other programs: declarations, and the code that reads a log by its declaration.

An import reads finished logs by them, and `throughline bench` the log of a program that runs. No rule of a kind uses a
published figure. docs/contributing/add-a-kind-of-log.md explains the parts of a declaration. No room above is needed.
"""

from throughline.log_kinds.kind import Kind
from throughline.sources import every_module


def find_all() -> list[Kind]:
    """Return all declarations, in the order of their files and of their places in the files."""
    return [kind for module in every_module(__name__) for kind in vars(module).values() if isinstance(kind, Kind)]


def timed() -> dict[str, Kind]:
    """Map the names of the kinds whose lines time steps, such as `nanogpt`, to their declarations."""
    return {kind.name: kind for kind in find_all() if kind.step}

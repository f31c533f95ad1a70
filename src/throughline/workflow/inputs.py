"""Input functions that every rule may use. They look up what the configuration asks for by the wildcards of a job.

If it asks for no such thing, Snakemake ends with the message of that look-up.
"""

from collections.abc import Callable
from typing import Any

from snakemake.io import expand

from throughline.workflow.call import or_exit

InputFunction = Callable[[Any], Any]


def by_wildcards(look_up: Callable[..., Any]) -> InputFunction:
    """Make an input function: it calls `look_up` with the wildcards as keyword arguments."""
    return lambda wildcards: or_exit(look_up, **dict(wildcards.items()))


def checked(check: Callable[..., Any], path: Any) -> InputFunction:
    """Make an input function: it calls `check` like `by_wildcards`, then fills the wildcards into `path`."""

    def filled(wildcards: Any) -> Any:
        or_exit(check, **dict(wildcards.items()))
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def option(name: str) -> Callable[[Any, Any], list[str]]:
    """Make a parameter: the option `--name` with the input of that name, or nothing if the rule has no such input."""
    return lambda wildcards, input: [f"--{name}", str(input.get(name))] if input.get(name) else []

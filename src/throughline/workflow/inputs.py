"""Input functions that every rule may use. They look up what the configuration asks for by the wildcards of a job.

If it asks for no such thing, Snakemake ends with the message of that look-up.
"""

from collections.abc import Callable
from typing import Any

from snakemake.io import expand

from throughline.workflow.call import or_exit

InputFunction = Callable[[Any], Any]


def by_wildcards(look_up: Callable[..., Any], **names: Any) -> InputFunction:
    """Make an input function: it calls `look_up` with the wildcards and with `names` as keyword arguments."""
    return lambda wildcards: or_exit(look_up, **dict(wildcards.items()), **names)


def checked(check: Callable[..., Any], path: Any, **names: Any) -> InputFunction:
    """Make an input function: it calls `check` like `by_wildcards`, then fills the wildcards into `path`."""

    def filled(wildcards: Any) -> Any:
        or_exit(check, **dict(wildcards.items()), **names)
        return expand(path, **dict(wildcards.items()), allow_missing=True)

    return filled


def option(name: str, input_name: str) -> Callable[[Any, Any], list[str]]:
    """Make a parameter: an option of a command line with an input of the rule, or nothing if there is no such input."""

    def words(wildcards: Any, input: Any) -> list[str]:
        value = input.get(input_name)
        return [name, str(value)] if value else []

    return words

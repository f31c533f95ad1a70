"""The directives of the rules: how a rule starts a script of workflow/scripts or a step that makes data (command.py),
and functions for inputs and parameters, which look up what the configuration asks for by the wildcards of a job.

If it asks for no such thing, Snakemake ends with the message of that look-up.
"""

import shlex
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake.io import expand

from throughline import files, sources
from throughline.command import loaded, rule_words
from throughline.command import step as function_of
from throughline.workflow.call import or_exit

InputFunction = Callable[[Any], Any]


@dataclass(frozen=True)
class Commands:
    """root: the folder of the workflow; wildcards: the names of all wildcards of the rules."""

    root: Path
    wildcards: Container[str]

    def step(self, name: str, /, **named: str | None) -> str:
        """Return the command that runs a step which makes data, such as `clicks.shard`.

        An argument of the step has the value of the same name in the rule. `named` has the arguments whose values are
        called otherwise.
        """
        words = rule_words(function_of(name), named=named, wildcards=self.wildcards)
        return f"python {self._started('throughline.command', name)} {words} 2>&1 | tee {{log:q}}"

    def script(self, name: str, /, *ready: str, by: str | None = None, **named: str | None) -> str:
        """Return the command that runs a script of workflow/scripts, with the arguments of its signature.

        A required argument has the value of the same name in the rule: a path is an input (`output`: all outputs),
        another argument a param. `named` has the arguments whose values are called otherwise, and the optional ones
        that the rule sets; None: among the words of `ready`, params that are words of a command line already. `by`: the
        param with the Python that runs it. The output is shown and kept in the rule's log, unless the script has a
        `log` of its own.
        """
        path = self._script(name)
        words = rule_words(loaded(str(path)), ready, named)
        python = f"{{{by}:q}}" if by else "python"
        start = f"{python} {self._started(files.from_here(path))} {words}"
        return start if "--log " in words else f"{start} 2>&1 | tee {{log:q}}"

    def code(self, name: str) -> list[str]:
        """Return the project's own files that a script runs, as inputs of a cheap rule."""
        return [files.from_here(path) for path in sources.closure(self._script(name))]

    def _script(self, name: str) -> Path:
        return self.root / "workflow" / "scripts" / f"{name}.py"

    def _started(self, *words: str) -> str:
        """Return the words after `python`, as a part of a shell command that Snakemake formats."""
        start = files.from_here(self.root / "src" / "start.py")
        return shlex.join([start, *words]).replace("{", "{{").replace("}", "}}")


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

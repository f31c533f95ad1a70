"""The program `throughline`. Each file in this folder is one of its commands.

A command is a function `main`, as in workflow/scripts: its signature is the command line, and the docstring of its file
is the help (command.py). It calls a function of the library.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from throughline import __version__, command, spelling

NAMES = sorted(module.name for module in iter_modules(__path__))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the first word names, with the other words as its arguments."""
    name, *others = list(sys.argv[1:] if words is None else words) or ["--help"]
    if name in ("--help", "-h"):
        print(usage())
    elif name == "--version":
        print(f"throughline {__version__}")
    elif name in NAMES:
        command.run(import_module(f"{__name__}.{name}").main, others, program=f"throughline {name}")
    else:
        next_step = spelling.meant(name, NAMES) or f"throughline --help lists them: {', '.join(NAMES)}"
        sys.exit(f"error: throughline has no command {name}\n  next: {next_step}")


def usage() -> str:
    """Return what --help prints: a line for each command, with what it does."""
    documents = {name: str(import_module(f"{__name__}.{name}").__doc__) for name in NAMES}
    lines = (f"  {name:<12} {document.splitlines()[0]}" for name, document in documents.items())
    return "\n".join(["usage: throughline [--help | --version | COMMAND ...]\n\ncommands:", *lines])

"""Make a command line from a function's signature: for the function's own process, and for the rule that starts it.

    def main(tokens: Path, split: Literal["training", "test"], output: Path, stall_s: float = 900) -> None: ...

    tokens, split, output    --tokens PATH --split {training,test} --output PATH    all three are required
    stall_s                  --stall-s SECONDS                                      optional: it has a default
    a bool                   --lower-case True                                      with a default: only --lower-case
    X | None                 --tokenizer PATH                                       without a value: None
    a list or a sequence     --parts PATH ...                                       several values
    a dict                   --parameters JSON
    before a `/`             a value without the option's name
    *others: str             all other words, in their order, such as arguments for another program; after --, all are

The docstring of the function, or else of its file, is the help text. A line `tokens: what they are` in one of the two
is the help of an argument.

A function in a file `steps.py` is a step that makes data:

    python -m throughline.command clicks.shard --help

Every step of the workflow starts with this module, so it imports the standard library only, and neither `inspect` nor
`dataclasses`, which take longer to load than all the rest.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, NoReturn, cast, get_args, get_origin

from throughline.files import command_line

Main = Callable[..., int | None]
CO_VARARGS = 4
"""The flag of a function with `*others` (`inspect.CO_VARARGS`)."""
OF_RULES = ("output", "log")
"""Arguments that are parts of a rule themselves."""


class Argument(NamedTuple):
    """One argument of a function. `positional`: it stands before a `/` in the signature."""

    name: str
    type: Any
    required: bool
    default: Any
    positional: bool

    @property
    def option(self) -> str:
        """The word before the value on the command line."""
        return "" if self.positional else "--" + self.name.replace("_", "-")

    @property
    def is_path(self) -> bool:
        return Path in (self.type, *get_args(self.type))

    @property
    def kind(self) -> Any:
        """The type of a value that is given: of `X | None` it is X."""
        kinds = [kind for kind in get_args(self.type) if kind is not NoneType]
        return kinds[0] if NoneType in get_args(self.type) else self.type

    def settings(self) -> dict[str, Any]:
        """Return what argparse has to know about this argument."""
        if self.kind is bool:
            return {"type": _truth, "required": True} if self.required else {"action": "store_true"}
        needed: dict[str, Any] = {} if self.positional else {"required": self.required}
        origin, parts = get_origin(self.kind), get_args(self.kind)
        if origin in (list, Sequence):
            several = {"type": parts[0], "nargs": "+" if self.required else "*", "default": list(self.default or ())}
            return needed | several | ({} if self.positional else {"action": "extend"})
        if self.positional and not self.required:
            needed["nargs"] = "?"
        needed["default"] = self.default
        if origin is Literal:
            return needed | {"choices": parts}
        if origin is tuple:
            return needed | {"type": parts[0], "nargs": len(parts)}
        if self.required and self.kind is not self.type:
            needed["nargs"] = "?"
        return needed | {"type": json.loads if origin is dict else self.kind}


def _truth(word: str) -> bool:
    if word not in ("True", "False"):
        raise ValueError
    return word == "True"


def arguments(main: Main) -> Iterator[Argument]:
    """Yield the arguments of a function, in the order of its signature."""
    code, values = main.__code__, main.__defaults__ or ()
    plain, every = code.co_argcount, code.co_argcount + code.co_kwonlyargcount  # `*others` are none of these
    defaults = dict(zip(code.co_varnames[plain - len(values) : plain], values, strict=True))
    defaults |= main.__kwdefaults__ or {}
    for number, name in enumerate(code.co_varnames[:every]):
        positional = number < code.co_posonlyargcount
        yield Argument(name, main.__annotations__[name], name not in defaults, defaults.get(name), positional)


def takes_others(main: Main) -> str | None:
    """Return the name of the argument that gets all other words, or None."""
    code = main.__code__
    name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][:1]
    return name[0] if code.co_flags & CO_VARARGS else None


def parser(main: Main, program: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a function's command line. `program`: its name, if it is not that of the file."""
    about, helps = _described(main.__doc__ or main.__globals__["__doc__"] or "")
    _, shared = _described(main.__globals__["__doc__"] or "")
    others = takes_others(main)
    result = argparse.ArgumentParser(program, description=about, allow_abbrev=others is None)
    for argument in arguments(main):
        name = argument.option or argument.name
        result.add_argument(name, help=helps.pop(argument.name, shared.get(argument.name)), **argument.settings())
    if others:
        result.usage = f"%(prog)s [{others.upper()} ...] [OPTION ...]"
        result.epilog = f"{others.upper()}: {helps.pop(others, 'all other words')}"
    if helps:
        raise ValueError(f"{main.__code__.co_filename} describes {', '.join(helps)}, but no argument has that name")
    return result


def _described(text: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says in general, and what it says about each argument."""
    about, helps = [], {}
    for line in map(str.strip, text.splitlines()):
        described = re.fullmatch(r"([a-z_]+): (.+)", line)
        if described:
            helps[described[1]] = described[2].replace("%", "%%")
        else:
            about.append(line)
    return " ".join(about).strip(), helps


def run(
    main: Main, words: Sequence[str] | None = None, *, single: bool = False, program: str | None = None
) -> NoReturn:
    """Call a function with the arguments of this process (or with `words`), and exit with the status that it returns.

    `single`: see files.command_line.
    """

    def call() -> int | None:
        given_words = list(sys.argv[1:] if words is None else words)
        end = given_words.index("--") if takes_others(main) and "--" in given_words else len(given_words)
        known, others = parser(main, program).parse_known_args(given_words[:end])
        others += given_words[end + 1 :]
        if others and not takes_others(main):
            parser(main, program).error(f"unrecognized arguments: {' '.join(others)}")
        given = vars(known)
        for argument in arguments(main):
            if get_origin(argument.kind) is tuple and given[argument.name]:
                given[argument.name] = tuple(given[argument.name])
        positional = [given.pop(argument.name) for argument in arguments(main) if argument.positional]
        return main(*positional, *others, **given)

    command_line(call, single=single)


@cache
def loaded(path: str) -> Main:
    """Return the function `main` of a script. Scripts import what is large in this function only."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"throughline_script_{Path(path).stem}", path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Main, module.main)


def step(name: str) -> Main:
    """Return a step by its name: `corpus.bpe.shard` is the function `shard` in corpus/bpe/steps.py."""
    package, _, function = name.rpartition(".")
    return cast(Main, getattr(import_module(f"throughline.{package}.steps"), function))


def rule_words(
    main: Main,
    ready: Sequence[str] = (),
    named: Mapping[str, str | None] | None = None,
    wildcards: Container[str] = (),
) -> str:
    """Return the arguments of a rule's command, as Snakemake fills them in: `--tokens {input.tokens:q} ...`.

    A required argument has the value of the same name in the rule: a path is an input (`output` and `log`: the rule's
    outputs and log), a name among `wildcards` is a wildcard, everything else a param. `named` has the optional
    arguments that the rule sets, and other values, such as `articles="output.articles"`. `ready` has values that are
    words of a command line already, such as `params.options`; an argument that is among them has None in `named`.
    """
    named = dict(named or {})
    words = []
    for argument in arguments(main):
        name = argument.name
        place = "input" if argument.is_path else "wildcards" if name in wildcards else "params"
        usual = name if name in OF_RULES else f"{place}.{name}"
        value = named.pop(name, usual if argument.required or name in OF_RULES else None)
        if value is not None:
            words.append(f"{argument.option} {{{value}:q}}".strip())
    if named:
        raise ValueError(f"{main.__code__.co_filename} has no argument {', '.join(named)}")
    return " ".join([*words, *(f"{{{value}:q}}" for value in ready)])


if __name__ == "__main__":
    run(step(sys.argv[1]), sys.argv[2:], single=True, program=sys.argv[1])

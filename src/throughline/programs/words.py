"""The placeholders in a program's command and in `per_step`, and what they become in a run.

`{{` and `}}` are braces. A command is split as a shell splits it, and starts without a shell.
"""

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from throughline.spec import RunSpec
from throughline.spec.options import MOST_TIMED

OF_RUN = ("nodes", "devices", "world", "batch", "precision", "steps", "repeat", "seed")
"""Placeholders that the specification decides. `world` is the number of all devices, `steps` that of all steps."""
OF_NODE = ("node", "master", "port", "hostfile", "output")
"""Placeholders that are known on the node: its number, where the first node listens, and the run's own folder."""
NAMES = (*OF_RUN, *OF_NODE)
PIECE = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def split(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command. Raise ValueError if it has none, or an open quotation mark."""
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    if not words:
        raise ValueError("the command is empty")
    return words


def used(texts: Iterable[str]) -> set[str]:
    """Return the placeholders in these texts. Raise ValueError for an unknown one, and for a single brace."""
    found = set()
    for text in texts:
        for piece in PIECE.finditer(text):
            if piece["name"] is not None and piece["name"] not in NAMES:
                raise ValueError(f"there is no {{{piece['name']}}}; placeholders: {', '.join(NAMES)}; a brace is {{{{")
            if piece[0] in "{}":
                raise ValueError(f"a single {piece[0]} in {text!r}; a brace is written {piece[0] * 2}")
            if piece["name"]:
                found.add(piece["name"])
    return found


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with the values of its placeholders. A placeholder without a value stays as it is."""

    def of_piece(piece: re.Match[str]) -> str:
        name = piece["name"]
        return piece[0][0] if name is None else str(values.get(name, piece[0]))

    return PIECE.sub(of_piece, text)


def of_run(spec: RunSpec) -> dict[str, Any]:
    """Return the values of the placeholders that a specification decides. `steps` is enough for the longest window."""
    topology, steps = spec.topology, spec.steps
    timed = max(steps.timed, MOST_TIMED) if steps.shortest_s("cpu") else steps.timed
    return {
        "nodes": topology.nodes, "devices": topology.devices, "world": topology.world, "batch": spec.batch,
        "precision": (spec.program and spec.program.precision) or spec.precision,
        "steps": steps.warmup + timed + 1, "repeat": spec.repeat, "seed": spec.seed,
    }  # fmt: skip


def shown(words: Iterable[str]) -> str:
    """Return a command for people: as a shell takes it, with its placeholders as they are."""
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./{}-]+", word) else shlex.quote(word) for word in words)


def command(spec: RunSpec) -> list[str]:
    """Return the words of a program's command, with the placeholders that its specification decides."""
    assert spec.program
    return [filled(word, of_run(spec)) for word in spec.program.command]


def number(expression: str | int, values: Mapping[str, Any]) -> int:
    """Return the value of `per_step`. Raise ValueError if it is not a whole number above 0."""
    found = value(expression, values)
    if found < 1:
        raise ValueError(f"{expression!r} is {found} here, and a step has at least 1 unit")
    return found


def value(expression: str | int, values: Mapping[str, Any]) -> int:
    """Return the value of an expression: whole numbers, placeholders, + - * // and brackets.

    Raise ValueError if it is anything else.
    """
    try:
        return _value(ast.parse(filled(str(expression), values), mode="eval").body)
    except (SyntaxError, TypeError, ZeroDivisionError):
        what = f"{expression!r} is no whole number and no product of some, such as {{batch}} * {{world}}"
        raise ValueError(what) from None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as constant) if not isinstance(constant, bool):
            return constant
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return int(OPERATORS[type(op)](_value(left), _value(right)))
    raise TypeError(node)

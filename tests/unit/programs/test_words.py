"""Placeholders of a command and of `per_step`: what they become, and which mistakes are named."""

from __future__ import annotations

from typing import Any

import pytest

import training_fixtures
from throughline.programs import words

VALUES = {"batch": 12, "world": 16, "steps": 120}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --name='a b'", ("python", "train.py", "--name=a b")),
        (["bash", "-c", "exec a | b"], ("bash", "-c", "exec a | b")),
    ],
)
def test_a_command_is_split_as_a_shell_splits_it(command: str | list[str], found: tuple[str, ...]) -> None:
    assert words.split(command) == found


@pytest.mark.parametrize("command", ["", "  ", [], "python 'train.py"])
def test_a_command_without_words_or_with_an_open_quotation_mark(command: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"the command is empty|No closing quotation"):
        words.split(command)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--batch={batch} --ranks={world}", "--batch=12 --ranks=16"),
        ("{{batch}} {{{batch}}}", "{batch} {12}"),
        ("{port}", "{port}"),
        ('{{"lr": {batch}}}', '{"lr": 12}'),
        ("{batch}{world}", "1216"),
    ],
)
def test_placeholders_and_braces(text: str, filled: str) -> None:
    assert words.filled(text, VALUES) == filled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--size={batchsize}", r"there is no \{batchsize\}; placeholders: nodes, devices, world"),
        ("{}", r"there is no \{\}"),
        ('{"a": 1}', "a brace is {{"),
        ("${HOME", r"a single \{ in '\$\{HOME'; a brace is written \{\{"),
        ("a}b", r"a single \} in 'a\}b'"),
    ],
)
def test_an_unknown_placeholder_and_a_single_brace(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        words.used(["{batch}", text])


def test_used_placeholders() -> None:
    assert words.used(["{batch} {{world}}", "{node}:{port}"]) == {"batch", "node", "port"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (512, 512),
        ("{batch} * {world} * 1024", 12 * 16 * 1024),
        ("({steps} - 20) // 3 + 1", 34),
    ],
)
def test_per_step(expression: str | int, value: int) -> None:
    assert words.number(expression, VALUES) == value


@pytest.mark.parametrize(
    "expression",
    ["{batch} / 2", "1.5", "{batch} *", "f({batch})", "2 ** 9", "True", "{batch} // 0", "'7'", "{seed}", "x", "[3]"],
)
def test_per_step_takes_products_of_whole_numbers_only(expression: str) -> None:
    with pytest.raises(ValueError, match="is no whole number and no product of some"):
        words.number(expression, VALUES)


@pytest.mark.parametrize("expression", ["{batch} - 12", "3 - {batch}", 0])
def test_per_step_is_at_least_one(expression: str | int) -> None:
    with pytest.raises(ValueError, match="and a step has at least 1 unit"):
        words.number(expression, VALUES)


def test_what_a_run_decides() -> None:
    asked = ["{nodes}", "{devices}", "{world}", "{batch}", "{precision}", "{steps}", "{repeat}", "{seed}", "{port}"]
    spec = training_fixtures.program_spec({"command": asked}, topology="2n4g", repeat=3, batch=6, precision="bf16")
    assert words.command(spec) == ["2", "4", "8", "6", "bf16", "14", "3", "42", "{port}"]
    named = training_fixtures.program_spec({"command": asked, "precision": "bfloat16"}, precision="bf16", batch=6)
    assert words.command(named)[4] == "bfloat16"


@pytest.mark.parametrize(("steps", "enough"), [({}, "20021"), ({"timed": 7}, "28"), ({"max_total_seconds": 9}, "121")])
def test_steps_are_enough_for_the_longest_window(steps: dict[str, Any], enough: str) -> None:
    assert words.command(training_fixtures.program_spec({"command": ["{steps}"]}, steps=steps)) == [enough]


def test_a_command_for_people_keeps_its_placeholders() -> None:
    command = ["torchrun", "--nnodes={nodes}", "train.py", "--name", "two words", "a;b", "--out={output}"]
    assert words.shown(command) == "torchrun --nnodes={nodes} train.py --name 'two words' 'a;b' --out={output}"

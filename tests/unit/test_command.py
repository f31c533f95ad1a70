"""A script's arguments are written once, in its signature: for argparse, and for the rule that starts it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from throughline import command

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "workflow/scripts").glob("*.py"))
STEPS = [
    f"{'.'.join(path.relative_to(ROOT / 'src/throughline').parts[:-1])}.{name}"
    for path in sorted((ROOT / "src/throughline").rglob("steps.py"))
    for name in re.findall(r"^def (\w+)", path.read_text(), re.MULTILINE)
]
SCRIPT = '''"""Do something.

It takes 100 % of your time.

number: how many
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal


def main(
    curves: list[Path],
    /,
    split: Literal["training", "test"],
    number: int,
    cased: bool,
    tokenizer: Path | None,
    parameters: dict[str, Any],
    output: Path,
    log: Path | None = None,
    kind: Literal["a", "b"] | None = None,
    size: tuple[int, int] | None = None,
    share: float = 0.5,
    extras: Sequence[Path] = (),
    memory_mb: int = 256,
    unpacked: bool = False,
) -> int:
    print(json.dumps({name: value for name, value in locals().items()}, default=str))
    return 3
'''
NEEDED = ["a.json", "b.json", "--split", "test", "--number", "7", "--cased", "False", "--tokenizer"]
NEEDED += ["--parameters", '{"seed": 1}', "--output", "c"]


@pytest.fixture
def script(tmp_path: Path) -> command.Main:
    (tmp_path / "script.py").write_text(SCRIPT)
    return command.loaded(str(tmp_path / "script.py"))


def called(main: command.Main, words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    with pytest.raises(SystemExit) as left:
        command.run(main, words)
    assert left.value.code == 3
    return dict(json.loads(capsys.readouterr().out))


def test_values_have_the_types_of_the_signature(script: command.Main, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = called(script, NEEDED, capsys)
    assert arguments == {
        **{"curves": ["a.json", "b.json"], "split": "test", "number": 7, "cased": False, "tokenizer": None},
        **{"parameters": {"seed": 1}, "output": "c"},
        **{"log": None, "kind": None, "size": None, "share": 0.5, "extras": [], "memory_mb": 256, "unpacked": False},
    }
    more = ["--kind", "b", "--size", "3", "4", "--extras", "d", "--extras=e", "--memory-mb", "1", "--unpacked"]
    arguments = called(script, [*NEEDED, *more], capsys)
    assert (arguments["kind"], arguments["size"], arguments["extras"]) == ("b", [3, 4], ["d", "e"])
    assert (arguments["memory_mb"], arguments["unpacked"]) == (1, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (NEEDED[:-2], "required: --output"),
        (NEEDED[2:], "required: curves"),
        ([*NEEDED, "--split", "other"], "invalid choice: 'other'"),
        ([*NEEDED, "--cased", "no"], "'no'"),
        ([*NEEDED, "--number", "x"], "invalid int value: 'x'"),
        ([*NEEDED, "--size", "3"], "expected 2 arguments"),
        ([*NEEDED, "--other"], "unrecognized arguments: --other"),
    ],
)
def test_a_wrong_command_line_is_refused(
    script: command.Main, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.run(script, words)
    assert left.value.code == 2 and complaint in capsys.readouterr().err


def test_all_other_words_come_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '"""Start.\n\nwords: what\n"""\n\ndef main(*words: str, name: str = "a", many: bool = False) -> int:\n'
    (tmp_path / "others.py").write_text(f"{text}    print(list(words), name, many)\n    return 3\n")
    main = command.loaded(str(tmp_path / "others.py"))
    with pytest.raises(SystemExit) as left:
        command.run(main, ["x", "--other", "y", "--name", "b", "-n", "--man", "z"])
    assert left.value.code == 3
    assert capsys.readouterr().out == "['x', '--other', 'y', '-n', '--man', 'z'] b False\n"
    assert "WORDS: what" in command.parser(main).format_help()


def test_the_help_is_that_of_the_file(script: command.Main) -> None:
    text = command.parser(script).format_help()
    assert "Do something. It takes 100 % of your time." in " ".join(text.split())
    assert text.count("number") == 2 and "how many" in text


def test_a_rule_names_only_what_is_called_otherwise(script: command.Main) -> None:
    named = {"number": "params.of_shard", "parameters": None, "extras": "input.extras"}
    assert command.rule_words(script, ["params.ready"], named, {"split"}) == (
        "{input.curves:q} --split {wildcards.split:q} --number {params.of_shard:q} --cased {params.cased:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q} --log {log:q} --extras {input.extras:q} {params.ready:q}"
    )
    with pytest.raises(ValueError, match="has no argument parts"):
        command.rule_words(script, named={"parts": "input"})


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_explains_its_arguments(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.run(command.loaded(str(path)), ["--help"])
    assert left.value.code == 0 and capsys.readouterr().out.startswith("usage:")


@pytest.mark.parametrize("name", STEPS)
def test_every_step_explains_itself(name: str) -> None:
    main = command.step(name)
    said = " ".join(command.parser(main, name).format_help().split())
    assert main.__doc__ and main.__doc__.splitlines()[0] in said and len(STEPS) > 20


def test_no_script_loads_anything_large_before_it_has_its_arguments() -> None:
    """Snakemake loads all of them, to make the rules' commands."""
    code = (
        "import sys; from throughline import command\n"
        "for name in sys.argv[1:]: command.loaded(name) if '/' in name else command.step(name)\n"
        "print({'inspect', 'numpy', 'pydantic', 'throughline.study', 'throughline.launch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, SCRIPTS), *STEPS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"

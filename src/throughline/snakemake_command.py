"""Which command of Snakemake somebody means who names targets, presets and arguments in any order.

Snakemake itself takes every word after --configfile as another configuration, and answers many mistakes on its command
line with a traceback or with the list of all its options.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from throughline import snakemake_inside, spelling
from throughline.files import UserError
from throughline.study import presets

Values = Mapping[str, str]
"""Option of Snakemake -> how many values it takes: a number, "?" at most one, "+" several."""


@dataclass(frozen=True)
class SnakemakeCommand:
    """A command of Snakemake, and the folder where it works."""

    words: Sequence[str]
    folder: Path

    def __str__(self) -> str:
        """Return what to type in a shell."""
        there = "" if self.folder == Path.cwd() else f"cd {shlex.quote(os.path.relpath(self.folder))} && "
        return there + shlex.join(self.words)

    def execute(self) -> None:
        """Become this command. UserError if this Python has no Snakemake."""
        program = Path(sys.executable).with_name("snakemake")
        if not program.exists():
            raise UserError(
                f"there is no Snakemake beside {sys.executable}",
                next_step="activate the environment of the clone (. .venv/bin/activate); `make` there sets it up",
            )
        os.chdir(self.folder)
        os.execv(program, list(self.words))


@dataclass
class _Sorted:
    """The words of a command line by their kind. others: options of Snakemake with their values."""

    targets: list[str] = field(default_factory=list)
    configurations: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def meant(words: Sequence[str], preset: str | None = None, cores: str | None = None) -> SnakemakeCommand:
    """Return the command that these words mean. UserError, with a suggestion, for a word that means nothing.

    words: targets, files of configurations, and arguments of Snakemake; preset: the name of a preset.
    """
    is_option = any(word.startswith("-") for word in words)
    given = _sort(words, snakemake_inside.options() if is_option else {})
    folder, snakefile = _place(given.others)
    for target in given.targets:
        _check_target(target)
    files = [_found(path) for path in given.configurations]
    if preset is not None:
        name = preset.removeprefix("presets/").removesuffix(".yaml")
        files.insert(0, presets.preset(name).path)  # what the user's own files say wins
    if cores is not None and cores != "all" and not re.fullmatch(r"[1-9]\d*", cores):
        raise UserError(f"--cores {cores} is no number of cores", next_step="write a whole number from 1 on, or all")
    names = [path if path.is_absolute() and folder not in path.parents else _from(folder, path) for path in files]
    return SnakemakeCommand(
        [
            "snakemake",
            *given.targets,
            *snakefile,
            *given.others,
            *(["--cores", cores] if cores else []),
            *(["--configfile", *map(str, names)] if names else []),
        ],
        folder,
    )


def _from(folder: Path, path: Path) -> Path:
    return Path(os.path.relpath(path, folder))


def _sort(words: Sequence[str], options: Values) -> _Sorted:
    given, rest = _Sorted(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            given.targets += rest
            break
        if not word.startswith("-"):
            (given.configurations if _is_configuration(word) else given.targets).append(word)
            continue
        option, attached = _option(word, options)
        values = [] if attached else list(_values(rest, options[option]))
        del rest[: len(values)]
        if option in ("--configfile", "--configfiles"):
            given.configurations += [attached, *values] if attached else values
            continue
        if option in ("--config", "-C"):
            _check_settings([attached, *values] if attached else values)
        given.others += [word, *values]
    return given


def _is_configuration(word: str) -> bool:
    return word.endswith((".yaml", ".yml"))


def _option(word: str, options: Values) -> tuple[str, str]:
    """Return the option in a word, and the value that is attached to it (`--cores=2`, `-c2`), if any."""
    name, _, value = word.partition("=")
    if name in options:
        return name, value
    if not word.startswith("--") and word[:2] in options and f"-{name}" not in options:
        return word[:2], word[2:]
    wanted = f"--{name.lstrip('-')}"
    raise UserError(
        f"Snakemake has no option {name}",
        next_step=f"{spelling.meant(wanted, [*options, '--preset', '--list'], 0.6)} snakemake --help lists all".strip(),
    )


def _values(rest: Sequence[str], count: str) -> Iterator[str]:
    """Yield the words that are values of an option.

    Where an option takes several, a word that looks otherwise than the first one (`a=1 b=2 results/x.json`) ends them.
    """
    if count.isdigit():
        yield from rest[: int(count)]
    elif count == "?":
        yield from (word for word in rest[:1] if re.fullmatch(r"\d+|all|unlimited", word))
    elif count == "+":
        for word in rest:
            is_target = word.startswith(("results/", "data/"))
            if word.startswith("-") or is_target or any("=" in first and "=" not in word for first in rest[:1]):
                return
            yield word


def _check_settings(settings: Sequence[str]) -> None:
    """Raise UserError for a setting of --config that is none."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", key):
            continue
        first, *inner = key.split(".")
        written = f"{': {'.join(inner)}: {value}{'}' * (len(inner) - 1)}"
        example = f"{first}={{{written}}}" if equals and inner else "runs={repeats: 3}"
        raise UserError(
            f"--config {setting} is no setting",
            why="Snakemake takes SECTION=VALUE, and a map as the value",
            next_step=f"write --config {shlex.quote(example)}",
        )


def _found(name: str) -> Path:
    """Return the path of a configuration. UserError if there is no such file."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.stem in (preset.name for preset in presets.presets()):
        next_step = f"it is the name of a preset: throughline run --preset {path.stem}"
    else:
        near = spelling.beside(path)
        next_step = f"did you mean {spelling.listed(near)}?" if near else "check the path; it begins in this folder"
    raise UserError(f"configuration {name} {'is a folder' if path.is_dir() else 'does not exist'}", next_step=next_step)


def _check_target(target: str) -> None:
    """Raise UserError if a target is the name of a preset."""
    if target in (preset.name for preset in presets.presets()):
        raise UserError(f"{target} is no target", next_step=f"it is a preset: throughline run --preset {target}")


def _place(others: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the folder to work in, and the words that name the Snakefile; none if Snakemake finds it itself.

    In the clone and below it we work in the clone. Elsewhere we work in the present folder, with its own Snakefile or
    that of the clone.
    """
    here = Path.cwd()
    named = {"--snakefile", "-s"} & {word.partition("=")[0] for word in others}
    if named or any((here / name).is_file() for name in snakemake_inside.SNAKEFILES):
        return here, []
    snakefile = presets.WORKFLOW / "Snakefile"
    if not snakefile.is_file():
        raise UserError(
            "the workflow was not found: this folder has no Snakefile",
            why="throughline is installed without a clone of its repository",
            next_step="go into a clone, or name its file: throughline run --snakefile CLONE/Snakefile",
        )
    if presets.WORKFLOW in here.parents and "--directory" not in others and "-d" not in others:
        return presets.WORKFLOW, []
    return here, ["--snakefile", str(snakefile)]

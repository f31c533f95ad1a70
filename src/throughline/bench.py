"""Measure commands with one call (`throughline bench`): a configuration, the workflow, the figures and verdicts."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from throughline import files, frameworks, snakemake_command
from throughline.files import UserError
from throughline.numbers import percent, reading, span
from throughline.observe import program_software
from throughline.programs import words
from throughline.records import read_run, read_summary
from throughline.report.analysis import cells, judged_pairs
from throughline.report.analysis.cells import Cell
from throughline.report.analysis.comparison import Pair, places, would_tell
from throughline.spec.run import NAME
from throughline.study import presets
from throughline.study.section import PATTERNS

REPORT = "results/report.html"
LONGEST = 40
"""The most letters of a command's name."""
LOCKS = ".snakemake/locks"
"""Where Snakemake keeps the locks of a call that makes files."""


def programs(commands: Sequence[str], common: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the section `programs` for the words of the command line.

    If every word has a blank, each is a command. Otherwise all words together are one. UserError without any.
    """
    if commands and commands[0].startswith("-"):
        raise UserError(
            f"throughline bench has no option {commands[0]}",
            next_step="throughline bench --help lists them; the command to measure stands after --",
        )
    several = all(" " in word for word in commands)
    listed = [word if several else list(commands) for word in (commands if several else commands[:1])]
    if not listed:
        raise UserError(
            "there is no command to measure",
            next_step="throughline bench --timing KIND --per-step N -- python train.py (throughline bench --help)",
        )
    shared = {key: value for key, value in common.items() if value not in (None, {})}
    try:
        names = _names([words.split(command) for command in listed])
    except ValueError as error:
        raise UserError(f"{' '.join(commands)!r}: {error}", next_step="quote it as a shell needs it") from None
    return {name: {"command": command, **shared} for name, command in zip(names, listed, strict=True)}


def _names(commands: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each command: that of its script or program, with the words that only some of them have.

    `train.py --batch 8` and `train.py --batch 16` are `train-batch-8` and `train-batch-16`. If names would be longer
    than LONGEST, or equal, they are numbered.
    """
    scripts = [next((word for word in command if word.endswith((".py", ".sh"))), command[0]) for command in commands]
    bases = [_slug(Path(script).stem) for script in scripts]
    options = [
        [(before if before.startswith("-") else "", word) for before, word in pairwise(command) if word != script]
        for command, script in zip(commands, scripts, strict=True)
    ]
    names: list[str] = []
    for base, mine in zip(bases, options, strict=True):
        alike = [others for others, other in zip(options, bases, strict=True) if other == base]
        differ = [word for pair in mine if any(pair not in others for others in alike) for word in pair]
        long = "-".join(filter(None, [base, *map(_slug, differ)]))
        name = long if len(long) <= LONGEST else base
        name = name if re.match("[a-z]", name) and name not in frameworks.NAMES else f"program-{name}".strip("-")
        names.append(next(free for n in count(1) if (free := name if n == 1 else f"{name}-{n}") not in names))
    return names


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def variables(assignments: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of words such as `OMP_NUM_THREADS=8`. UserError for another form."""
    if wrong := [word for word in assignments if not re.match(r"\w+=", word)]:
        raise UserError(f"--variables {wrong[0]}: it is no NAME=VALUE", next_step="write --variables NAME=VALUE")
    return dict(word.split("=", 1) for word in assignments)


@dataclass(frozen=True)
class Bench:
    """Commands to measure: the benchmark's name, the section `programs`, and the keys of the benchmark's block."""

    name: str
    programs: Mapping[str, Mapping[str, Any]]
    block: Mapping[str, Any]

    def run(self, setup: str | None, exports: Mapping[str, Path], dry_run: bool) -> int:
        """Measure, print the figures and verdicts, and return the exit status of Snakemake."""
        if not re.fullmatch(NAME, self.name):
            raise UserError(f"--name {self.name}: {PATTERNS[f'^{NAME}$']}", next_step="choose another name")
        if setup and not dry_run and (status := subprocess.run(["bash", "-c", setup], check=False).returncode):
            raise UserError(f"--setup ended with status {status}", next_step=f"try it alone: {setup}")
        workflow = presets.WORKFLOW
        in_clone = workflow in (Path.cwd(), *Path.cwd().parents)
        folder = (workflow if in_clone else Path.cwd()) / "results" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        asked = [str(folder / "config.yaml"), "--cores", "all", *(["--dry-run"] if dry_run else [])]
        ours = workflow / "Snakefile"  # a Snakefile in the folder of the program is another one
        command = snakemake_command.command([*asked, *(["-s", str(ours)] if not in_clone and ours.exists() else [])])
        print(command, file=sys.__stdout__, flush=True)
        if any((command.folder / LOCKS).glob("*")):
            raise UserError(
                f"{command.folder} is locked",
                why="another call of bench or Snakemake works there, or one was killed",
                next_step=f"wait until it has ended; if there is none: {command} --unlock",
            )
        self._write(folder / "config.yaml")
        (precision, (batch,)), *_ = self.block["batch"].items()
        summary = folder / f"bz{batch}_{precision}.json"
        self._remove_outdated(folder, summary, dry_run)
        status = command.call(begins="The plan:" if dry_run else "")
        if status or dry_run:
            return status
        plot = folder / "plots" / f"{summary.stem}_throughput.svg"
        made = {"plot": plot, "report": command.folder / REPORT}
        ends = [f"{what}: {os.path.relpath(path)}" for what, path in made.items() if path.exists()]
        print("\n".join([*self.commands(), *outcome(summary), *ends]))
        for source, path in exports.items():
            shutil.copyfile(summary if source == ".json" else folder / source, path)
        return 0

    def commands(self) -> list[str]:
        """Return a line for each of several commands: the name that the figures and verdicts have, and its words."""
        shown = {name: words.shown(words.split(program["command"])) for name, program in self.programs.items()}
        return [f"{name}: {command}" for name, command in shown.items()] if len(shown) > 1 else []

    def _remove_outdated(self, folder: Path, summary: Path, dry_run: bool) -> None:
        """Print and remove earlier runs if the code of a program has changed since: all are measured side by side."""
        commands = {name: words.split(program["command"]) for name, program in self.programs.items()}
        code = {name: program_software.code(Path.cwd(), [], command) for name, command in commands.items()}
        runs = {path: path.parents[1].name for path in folder.glob("bz*/*/*/run*.json")}
        earlier = {path: name for path, name in runs.items() if name in code}
        measured = {path: read_run(path).environment["framework"] for path in earlier}
        if changed := {name for path, name in earlier.items() if measured[path] != {name: code[name]}}:
            what = "would be" if dry_run else "are"
            print(f"The code of {' and '.join(sorted(changed))} has changed: the runs in {folder} {what} made again.")
            for line in outcome(summary) if summary.exists() else ():
                print(f"  before the change: {line}")
            for path in earlier if not dry_run else ():
                path.unlink()

    def _write(self, path: Path) -> None:
        steps = {key: value for key, value in self.block["steps"].items() if value is not None}
        block = {**self.block, "programs": list(self.programs), "steps": steps}
        yaml = YAML()
        yaml.width = 10**6
        with files.atomic(path) as partial, partial.open("w") as file:
            yaml.dump({"programs": dict(self.programs), "benchmarks": {self.name: block}}, file)


def outcome(summary: Path) -> list[str]:
    """Return the lines about a summary: each cell, and the verdict of each pair of programs."""
    groups = cells.groups([read_summary(summary)])
    lines = [line for group in groups for cell in group.cells for line in _cell(cell)]
    pairs = [pair for pair in judged_pairs.judge(groups) if pair.base.framework != pair.other.framework]
    return [*lines, *map(verdict, pairs)]


def _cell(cell: Cell) -> list[str]:
    record = cell.record
    if not cell.ok:
        return [f"{cell.framework} {cell.topology}: {cell.label}: {'; '.join(record.reasons)}"]
    low, high = min(cell.repeats), max(cell.repeats)
    line = (
        f"{cell.framework} {cell.topology}: {reading(cell.median)} {cell.group.unit}, median of {len(cell.repeats)}, "
        f"{reading(low)} to {reading(high)} ({percent((high - low) / cell.median, 1)} apart)"
    )
    return [line, *(f"  warning: {warning}" for warning in record.warnings)]


def verdict(pair: Pair) -> str:
    """Return the verdict of a pair in words: which is how many times as fast, that neither is, or what would tell."""
    first, second, tested = pair.other.framework, pair.base.framework, pair.tested
    where = f" ({pair.where})" if len(pair.other.group.cells) > 2 else ""
    match pair.verdict:
        case "faster" if tested:
            ratio = f"{tested.ratio:.{places(tested)}f}"
            return f"{first} is {ratio} times as fast as {second} ({pair.interval}){where}"
        case "slower" if tested and (ends := pair.corrected):
            ratio, interval = f"{1 / tested.ratio:.{places(tested)}f}", span((1 / ends[1], 1 / ends[0]), places(tested))
            return f"{second} is {ratio} times as fast as {first} ({interval}){where}"
        case "inconclusive" if more := would_tell([pair]):
            repeats = more[2] - min(len(pair.before), len(pair.after))
            tells = f"about {repeats} more repeats would tell a difference of {percent(more[0])}"
            return f"{first} and {second}: inconclusive: {tells}{where}"
    return f"{first} and {second}: {pair.verdict}: {pair.reason}{where}"

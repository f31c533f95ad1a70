"""The command of Snakemake that `throughline run` starts: its own words, with a preset and the right folder."""

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from throughline.files import UserError
from throughline.study import presets
from throughline.workflow.inside import SNAKEFILES


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
        words = self._in_this_python()
        os.chdir(self.folder)
        os.execv(words[0], words)

    def call(self, begins: str = "") -> int:
        """Run this command to its end, and return its exit status. UserError if this Python has no Snakemake.

        begins: if the command ends well, only its output from these words on is printed.
        """
        out, err = (subprocess.PIPE, subprocess.STDOUT) if begins else (None, None)
        words = self._in_this_python()
        done = subprocess.run(words, cwd=self.folder, check=False, text=True, stdout=out, stderr=err)
        if begins:
            _, found, rest = done.stdout.partition(begins)
            print(found + rest if found and not done.returncode else done.stdout, end="")
        return done.returncode

    def _in_this_python(self) -> list[str]:
        """Return the words that start this Python's Snakemake. No module in the folder replaces another (`-P`)."""
        if importlib.util.find_spec("snakemake") is None:
            raise UserError(
                f"{sys.executable} has no Snakemake",
                next_step="activate the environment of the clone (. .venv/bin/activate); `make` there sets it up",
            )
        return [sys.executable, "-P", "-m", *self.words]


def command(words: Sequence[str], preset: str | None = None) -> SnakemakeCommand:
    """Return the command for these words: targets, configurations (files that end in .yaml), options of Snakemake.

    The configurations come last, because Snakemake takes every word after --configfile as another one. What the user's
    own files say wins over the preset. UserError if there is no such preset.
    """
    ours = ("--configfile", "--configfiles", "--")
    words = [word.removeprefix("--configfile=") for word in words if word not in ours]
    files = [Path(word) for word in words if word.endswith((".yaml", ".yml"))]
    others = [word for word in words if not word.endswith((".yaml", ".yml"))]
    if preset is not None:
        files.insert(0, presets.preset(preset.removeprefix("presets/").removesuffix(".yaml")).path)
    folder, snakefile = _place(others)
    outside = [path for path in files if path.is_absolute() and folder not in path.parents]
    names = [str(path) if path in outside else os.path.relpath(path, folder) for path in files]
    configuration = ["--configfile", *names] if names else []
    return SnakemakeCommand(["snakemake", *others, *snakefile, *configuration], folder)


def _place(words: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the folder to work in, and the words that name the Snakefile; none if Snakemake finds it itself.

    In the clone and below it this is the clone. Elsewhere it is the present folder, with its Snakefile or the clone's.
    """
    here, options = Path.cwd(), {word.partition("=")[0] for word in words}
    if options & {"--snakefile", "-s"} or any((here / name).is_file() for name in SNAKEFILES):
        return here, []
    snakefile = presets.WORKFLOW / "Snakefile"
    if not snakefile.is_file():
        raise UserError(
            "the workflow was not found: this folder has no Snakefile",
            why="throughline is installed without a clone of its repository",
            next_step="go into a clone, or name its file: throughline run --snakefile CLONE/Snakefile",
        )
    if presets.WORKFLOW in here.parents and not options & {"--directory", "-d"}:
        return presets.WORKFLOW, []
    return here, ["--snakefile", str(snakefile)]

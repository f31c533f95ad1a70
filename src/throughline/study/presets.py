"""The presets of the workflow: what they are for, and which of them asks for a file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from throughline import spelling
from throughline.files import UserError
from throughline.study import runs
from throughline.study.config import load
from throughline.study.section import ConfigPaths

WORKFLOW = Path(__file__).parents[3]
"""The folder of the workflow, if this library lies in a clone."""


@dataclass(frozen=True)
class Preset:
    """A whole configuration that comes with the workflow. about: the first sentence of its file."""

    name: str
    path: Path
    about: str


def presets(workflow: Path = WORKFLOW) -> list[Preset]:
    """Return the presets in the order of their files."""
    paths = sorted((workflow / "presets").glob("*.yaml"))
    return [Preset(path.stem, path, _first_sentence(path.read_text(encoding="utf-8"))) for path in paths]


def preset(name: str, workflow: Path = WORKFLOW) -> Preset:
    """Return the preset of that name. UserError, with the most similar names, if there is none."""
    every = {preset.name: preset for preset in presets(workflow)}
    if name not in every:
        raise UserError(
            f"there is no preset {name}",
            next_step=f"{spelling.meant(name, every, 0.3)} throughline run --list shows all {len(every)}".strip(),
        )
    return every[name]


def asking_for(target: str, workflow: Path = WORKFLOW) -> list[Path]:
    """Return the files of the presets that ask for a file under results/."""
    return [preset.path for preset in presets(workflow) if target in set(_files(preset.path, workflow))]


def _files(path: Path, workflow: Path) -> Iterator[str]:
    """Yield the records and summaries that a configuration asks for; nothing if it is wrong."""
    try:
        specs = runs.expand(load([path], config_paths=ConfigPaths(workflow)))
    except UserError:
        return
    for spec in specs:
        yield spec.record
        yield spec.summary


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment that a file begins with."""
    lines = [line.removeprefix("#").strip() for line in re.match(r"(?:#.*\n?)*", text)[0].splitlines()]  # type: ignore[index]
    sentence = re.match(r".*?[.:](?= |$)|.*", " ".join(lines))
    return sentence[0].rstrip(".:") if sentence else ""

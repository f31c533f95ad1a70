"""The presets of the workflow: what they are for, and which of them asks for a file."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from throughline import files, spelling
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


def presets() -> list[Preset]:
    """Return the presets in the order of their files."""
    paths = sorted((WORKFLOW / "presets").glob("*.yaml"))
    return [Preset(path.stem, path, _first_sentence(path.read_text(encoding="utf-8"))) for path in paths]


def preset(name: str) -> Preset:
    """Return the preset of that name. UserError, with the most similar names, if there is none."""
    by_name = {preset.name: preset for preset in presets()}
    if name not in by_name:
        raise UserError(
            f"there is no preset {name}",
            next_step=f"{spelling.meant(name, by_name, 0.3)} throughline run --list shows all {len(by_name)}".strip(),
        )
    return by_name[name]


def of_a_preset(target: str) -> str | None:
    """Return what to type if presets ask for a file under results/, or None."""
    if not target.startswith("results/"):
        return None
    asking = [preset.path for preset in presets() if target in _files(preset.path)]
    if not asking:
        return None
    several = f", as do {len(asking) - 1} other presets" if len(asking) > 1 else ""
    path = shlex.quote(files.from_here(asking[0]))
    return f"{asking[0].name} asks for it{several}: snakemake {target} --configfile {path}"


def _files(path: Path) -> Iterator[str]:
    """Yield the records and summaries that a configuration asks for; nothing if it is wrong."""
    try:
        specs = runs.expand(load([path], config_paths=ConfigPaths(WORKFLOW)))
    except UserError:
        return
    yield from (file for spec in specs for file in (spec.record, spec.summary))


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment that a file begins with."""
    lines = [line.removeprefix("#").strip() for line in re.match(r"(?:#.*\n?)*", text)[0].splitlines()]  # type: ignore[index]
    sentence = re.match(r".*?[.:](?= |$)|.*", " ".join(lines))
    return sentence[0].rstrip(".:") if sentence else ""

"""The parts of the reference that the code states: commands, presets, files of results, statuses, tested faults.

`python -m throughline.reference_pages` writes them into their pages, each between `<!-- name -->` and `<!-- end -->`.
A test fails if one of them is out of date.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from throughline import commands, sources
from throughline.files import write_text
from throughline.frameworks.reference import filled, table
from throughline.records import checks, imported, run, summary
from throughline.records.entry import Entry, TrainingFile
from throughline.study.config import load
from throughline.study.presets import Preset, presets

ROOT = sources.ROOT.parents[1]
PAGES = ROOT / "docs" / "reference"
FILES: dict[str, tuple[type[Entry], ...]] = {
    "the record": (run.RunRecord, TrainingFile, run.NodeTelemetry, run.DeviceTelemetry, run.Memory, run.Work,
                   run.StartUp),
    "the summary": (summary.Summary, summary.CellRecord, summary.Use, summary.Cost, summary.Goal),
}  # fmt: skip
"""The classes of the two files that people read most, each with the parts that need an explanation."""
FAULTS = ("faults/test_*_faults.py", "faults/test_p*.py", "slurm/test_faults.py")
"""The tests whose names say what a fault leads to."""


def places() -> dict[Path, dict[str, str]]:
    """Map each page to its places, and each place to the text that belongs there."""
    return {
        PAGES / "commands.md": {"help": f"```text\n{commands.usage()}\n```\n"},
        PAGES / "presets.md": {"presets": table(["preset", "device", "what it measures"], map(_preset, presets()))},
        PAGES / "records.md": {name: "\n".join(map(_class, entries)) for name, entries in FILES.items()},
        PAGES / "warnings.md": {
            "runs": _meanings(run.STATUSES),
            "equivalence": _meanings(checks.CHECK_VERDICTS),
            "imports": _meanings(imported.OUTCOMES),
        },
        PAGES / "faults.md": {"faults": "\n".join(_faults())},
    }


def _preset(preset: Preset) -> list[str]:
    config = load([preset.path])
    kinds = {block.device for block in config.benchmarks.values()} or {config.accept.device}
    star = " *" if "corpus.contact" in preset.path.read_text(encoding="utf-8") else ""
    words = {"auto": "any", "cuda": "GPU", "cpu": "CPU"}
    return [f"`{preset.name}`{star}", ", ".join(sorted(words[kind] for kind in kinds)), preset.about]


def _class(entry: type[Entry]) -> str:
    """Return what a class says, and its keys."""
    about = " ".join(re.sub(r"results/\S+: ", "", entry.__doc__ or "", count=1).split())
    names = (name.rstrip("_") for name in entry.__annotations__ if name != "model_config")
    text = f"**{entry.__name__}**: {about} Keys: {', '.join(map('`{}`'.format, names))}.".replace(" None", " null")
    return textwrap.fill(text, 98, break_on_hyphens=False, break_long_words=False) + "\n"


def _meanings(meanings: Mapping[Any, str]) -> str:
    return table(["status", "meaning"], ([f"`{status}`", text] for status, text in meanings.items()))


def _faults() -> Iterator[str]:
    """Yield for each file of tests how its docstring begins, and the names of its tests as a sentence."""
    for path in (path for pattern in FAULTS for path in sorted((ROOT / "tests").glob(pattern))):
        module = ast.parse(path.read_text(encoding="utf-8"))
        names = [part.name for part in module.body if isinstance(part, ast.FunctionDef) if part.name[:5] == "test_"]
        tried = "; ".join(name.removeprefix("test_").replace("_", " ") for name in names)
        about = re.split(r"[:.]", " ".join((ast.get_docstring(module) or "").split()))[0]
        yield textwrap.fill(f"**{about}** (`{path.name}`): {tried}.", 98, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    for page, texts in places().items():
        write_text(page, filled(page, texts))

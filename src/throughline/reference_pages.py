"""The parts of the reference that the code states: commands, presets, files of results, warnings, tested faults.

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
from throughline.launch.outcome import LEAST_WINDOW_S
from throughline.numbers import percent
from throughline.observe.telemetry_record import STEAL
from throughline.records import checks, imported, run, summary
from throughline.records.entry import Entry, TrainingFile
from throughline.report.analysis import advice
from throughline.spec.options import SETTLED_S
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
WARNINGS = {
    "the repeats lie ... apart": f"highest - lowest > {percent(advice.SPREAD)} of the median",
    "the first repeat is ... slower": f"> {percent(advice.FIRST)}; the others agree",
    "steps get ... within the window": f"medians of first and last third differ by over {percent(advice.DRIFT)} (rank "
    f"test, p < {percent(advice.SURE_DRIFT)}, from 50 steps on)",
    "the steps' times have two modes": f"over {percent(advice.APART)} apart, each with {percent(advice.LEAST_SHARE)} "
    f"of the steps (dip test, p < {percent(advice.SURE_DRIFT)}, from 50 steps on)",
    "the ... of GPU ... ran at": f"clocks of two repeats differ by over {percent(advice.SLOWER)}: a lock, a power cap "
    "or heat",
    "other processes": "too few cores are left for the ranks",
    "its host took": f"over {percent(STEAL)} of the processors' time (steal)",
    "is not like node 0": "nodes differ in system, processor, driver or GPUs",
    "the repeats will not be pooled": "machine or data changed since the latest repeat",
    "ran in another environment than": "digests of environments differ",
    "steps were timed": "`max_total_seconds` cut the window",
    "the window of": f"it is below {SETTLED_S:.0f} s on a GPU, {LEAST_WINDOW_S:g} s anywhere",
    "were ready before it began": "the window has fewer than twice the batches that are read ahead",
    "devices can give": "a speedup's whole range is above the number of devices, or it has one repeat",
    "would compare unlike things": "cell and baseline ran in different environments",
    "they do not do the same work": "two frameworks state different settings",
    "the others do": "`equivalence.json` says why; tables mark it `(unequal)` or `(unchecked)`",
    "trains otherwise": "your own program: a repeat's or topology's loss is outside the range of the others",
}
"""Map words of each warning to what it means. A test looks for the words in the code."""
FAULTS = ("faults/test_*_faults.py", "faults/test_p*.py", "slurm/test_faults.py")
"""The tests whose names say what a fault leads to."""


def places() -> dict[Path, dict[str, str]]:
    """Map each page to its places, and each place to the text that belongs there."""
    return {
        PAGES / "commands.md": {"help": f"```text\n{commands.usage()}\n```\n"},
        PAGES / "presets.md": {"presets": table(["preset", "device", "what it measures"], map(_preset, presets(ROOT)))},
        PAGES / "records.md": {name: "\n".join(map(_class, entries)) for name, entries in FILES.items()},
        PAGES / "warnings.md": {
            "warnings": table(["words of the warning", "when"], ([*row] for row in WARNINGS.items())),
            "runs": _meanings(run.STATUSES),
            "equivalence": _meanings(checks.PROOF_VERDICTS),
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

"""Write results/archive.zip: the results of one configuration, with everything that a stranger needs to check them.

The same results give the same bytes: the files are sorted, and have neither dates nor owners. Records and logs hold no
names of machines, because every run masks them when it writes them. Before a text is packed, names that this process
knows are searched for again.
"""

import fnmatch
import hashlib
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

from throughline import __version__, records
from throughline.archive import accepted
from throughline.archive.contents import FORMATS, NAME, Contents, Held, Made, rules
from throughline.files import NODES, UserError, atomic, json_text, read_json, scrub, snakemake
from throughline.report.render.page import Results, render
from throughline.report.topics import checks

PAGE = "results/report.html"
LIBRARY: str = matplotlib.__version__
"""The version of what draws the plots. Another version may draw the same plot otherwise."""
KINDS = {".json", ".csv", ".log", ".md", ".tex", ".svg", ".png", ".html"}
DRAWN = {".svg", ".png", ".html"}
"""Files that are drawn from the others, and so have no name that the others lack."""
LOCAL = ".local.json"
"""The end of the names of files that hold real names of machines. They are never packed."""
WITHOUT = {"curve.checkpoints", "last"}
"""Folders with weights, which are large."""
ABSOLUTE = r"(?<=[\s'\"=(:])/(?:[\w.+-]+/)+([\w.+-]*)"
"""An absolute path in a log: its folders stay at home."""
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a ZIP file can state


def write(
    output: Path,
    report: Path,
    manifests: Sequence[Path],
    made: Mapping[str, Any],
    imports: Sequence[Path],
    acceptance: Path | None = None,
) -> None:
    """Write the archive. made: a value of `contents.Made` for every benchmark; all paths are below this directory.

    acceptance: results/acceptance.json, if there is one.
    """
    benchmarks = {name: Made.model_validate(value) for name, value in made.items()}
    roots = [report.parent / name for name in benchmarks] + [path.parent for path in imports]
    stale = {report.parent / name / "predictions.json" for name, made_of in benchmarks.items() if not made_of.predict}
    others = [*manifests, *(accepted.files(acceptance) if acceptance else ())]
    paths = sorted({report, *others, *(path for root in roots for path in _files(root))} - stale)
    with (
        _masked(accepted.names() if acceptance else ""),
        atomic(output) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive,
    ):
        held = {path.as_posix(): _content(path) for path in paths}
        held[report.as_posix()] = page(Path(), benchmarks, held).encode()
        runs = (read_json(path) for path in paths if path.match("bz*_*/*/*/run*.json"))
        contents = Contents(
            formats=FORMATS,
            version=__version__,
            rules=rules(),
            drawn_with=LIBRARY,
            configuration=latest((run["started"], run.get("configuration")) for run in runs),
            benchmarks=benchmarks,
            files={
                name: Held(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
                for name, content in held.items()
            },
        )
        for name, content in {NAME: json_text(contents.model_dump()).encode(), **held}.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(entry, content)


@contextmanager
def _masked(nodes: str) -> Iterator[None]:
    """Mask these names of nodes as well, as files.scrub takes them from the environment."""
    before = os.environ.get(NODES)
    os.environ[NODES] = " ".join(filter(None, [nodes, before]))
    try:
        yield
    finally:
        os.environ.pop(NODES)
        os.environ |= {} if before is None else {NODES: before}


def page(folder: Path, benchmarks: Mapping[str, Made], names: Iterable[str]) -> str:
    """Return the page of an archive. It shows what is in the archive, and nothing else, so a check can draw it again.

    folder: where the archive's files lie; names: those of all files in it.
    """
    there = sorted(names)

    def read(pattern: str, reader: Callable[[Path], Any]) -> list[Any]:
        inner = (name for name in there if fnmatch.fnmatch(name, pattern) and name.count("/") == pattern.count("/"))
        return [reader(folder / name) for name in inner]

    summaries = [folder / name for made in benchmarks.values() for name in made.summaries]
    predicted = [folder / f"results/{name}/predictions.json" for name, made in benchmarks.items() if made.predict]
    results = Results(
        present={path: records.read_summary(path) for path in summaries},
        largest=read("results/*/max_*_*.json", records.read_max_batch),
        checks=read("results/*/convergence_*.json", checks.read),
        imports=read("results/*/imported.json", records.read_imported),
        predictions=[records.read_predictions(path) for path in predicted],
    )
    manifests = [folder / name for name in there if name.startswith("data/")]
    return render(results, manifests, None, folder / PAGE)


def latest(runs: Iterable[tuple[str, dict[str, Any] | None]]) -> dict[str, Any] | None:
    """Return the configuration of the latest run that has one. runs: the start and the configuration of each.

    It is the merged configuration: records keep it without names of hosts and without paths.
    """
    return max((run for run in runs if run[1]), key=lambda run: run[0], default=("", None))[1]


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of a benchmark that belong in an archive."""
    for path in root.rglob("*"):
        inner = path.relative_to(root).parts
        hidden = any(part.startswith(".") or part in WITHOUT for part in inner)
        is_kind = path.suffix in KINDS or inner[0] == "tables"  # Paddle's index has no suffix
        if is_kind and not hidden and not path.name.endswith(LOCAL) and path.is_file():
            yield path


def _content(path: Path) -> bytes:
    """Return a file's content. UserError if it has a name that must not leave this machine."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", next_step=f"make it: {snakemake(str(path))}") from None
    if path.suffix == ".log":  # names that were not known on the machine of the run
        return re.sub(ABSOLUTE, r".../\1", scrub(content.decode(errors="replace"))).encode()
    if path.suffix not in DRAWN:
        text = content.decode(errors="replace")
        if scrub(text) != text:  # only then line by line, because scrub takes its time
            named = next((line for line in text.splitlines() if scrub(line) != line), text)
            raise UserError(
                f"{path} has a name or an address of this machine: {scrub(named).strip()[:120]}",
                why="an archive goes to strangers",
                next_step=f"make it again: {snakemake('--force', str(path))}",
            )
    return content

"""Make docs/demo-report.html: a report of real runs, to look at without running anything.

docs/demo/runs.jsonl holds one record per line, docs/demo/equivalence.jsonl one numerical equivalence check per line.
The page is made from them in the same way as from any results folder.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from throughline.files import write_text
from throughline.report.analysis import summary
from throughline.report.render import page
from throughline.study.config import block_name

FILES = ("runs.jsonl", "equivalence.jsonl")
NOTE = (
    "This is an example of a report. Every figure is from a real run, measured on {date} on two virtual CPU cores "
    "without a GPU. The models are small, the runs are short, and other machines share the processor, so the repeats "
    "lie far apart. The page shows what a report tells, and how. It does not say how fast a framework is on your "
    "hardware: measure that there. The "
    "command make demo-report makes this page from the records in docs/demo/ (digest {digest})."
)


def keep(benchmarks: Iterable[Path], kept: Path) -> None:
    """Write the records and equivalence checks of these folders, such as results/bert, into `kept`, one per line.

    Records keep the order in which they were measured, which is that of the configuration. Only the first record of a
    benchmark keeps the merged configuration, because the page reads it there.
    """
    runs, checks, told = [], [], set()
    for root in benchmarks:
        records = [json.loads(path.read_text(encoding="utf-8")) for path in root.glob("bz*_*/*/*/run*.json")]
        for record in sorted(records, key=lambda record: str(record["started"])):
            name = record["spec"]["benchmark"]
            if name in told:
                record.pop("configuration", None)
            told.add(name)
            runs.append(record)
        checks += [json.loads(path.read_text(encoding="utf-8")) for path in root.glob("equivalence.json")]
    for name, lines in zip(FILES, (runs, checks), strict=True):
        write_text(kept / name, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def summaries(kept: Path, results: Path) -> list[Path]:
    """Lay out the kept records below `results`, summarize them, and return the paths in the order of the records."""
    cells: dict[Path, list[Path]] = {}
    terms: dict[str, summary.Terms] = {}
    for line in (kept / FILES[0]).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        run, configuration = record["spec"], record.get("configuration")
        if configuration:
            terms[run["benchmark"]] = _terms(run["benchmark"], configuration)
        cell = results / run["benchmark"] / f"bz{run['batch']}_{run['precision']}"
        path = cell / run["framework"] / run["topology"] / f"run{run['repeat']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line, encoding="utf-8")
        cells.setdefault(cell.with_name(f"{cell.name}.json"), []).append(path)
    for line in (kept / FILES[1]).read_text(encoding="utf-8").splitlines():
        (results / json.loads(line)["benchmark"] / "equivalence.json").write_text(line, encoding="utf-8")
    for path, paths in cells.items():
        check = path.with_name("equivalence.json")
        repeats = max(int(path.stem.removeprefix("run")) for path in paths)
        named = terms.get(path.parent.name)
        summary.write(paths, path, repeats, equivalence=check if check.exists() else None, terms=named)
    return [*cells]


def _terms(benchmark: str, configuration: Mapping[str, Any]) -> summary.Terms:
    """Return the prices and the task of a benchmark."""
    return summary.Terms(
        prices=configuration["prices"],
        total_samples=configuration["benchmarks"][block_name(benchmark)]["total_samples"],
    )


def note(kept: Path) -> str:
    """Return what the top of the page says about its figures."""
    records = (json.loads(line) for line in (kept / FILES[0]).read_text(encoding="utf-8").splitlines())
    days = sorted({record["started"][:10] for record in records})
    return NOTE.format(date=" and ".join(dict.fromkeys((days[0], days[-1]))), digest=digest(kept))


def digest(kept: Path) -> str:
    """Return a digest of the kept records."""
    return hashlib.sha256(b"".join((kept / name).read_bytes() for name in FILES)).hexdigest()[:12]


def write(kept: Path, output: Path) -> None:
    """Write the page of the kept records to `output`."""
    with tempfile.TemporaryDirectory(prefix="throughline-") as folder:
        results = Path(folder)
        page.write(results, summaries(kept, results), [], None, output, note=note(kept))

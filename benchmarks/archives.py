"""Compare results with many archives: the seconds, and the size of the page.

    python benchmarks/archives.py                           50 archives of 40 cells with 5 repeats each
    python benchmarks/archives.py --archives 3

The results are synthetic: ten frameworks on two topologies in two precisions, with the log and the telemetry of every
run. Each archive is a little slower than the one before, and the driver changes with every seventh. The real command
compares, in a process of its own.
"""

import hashlib
import json
import random
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import harness

from report_fixture import jitter, write_series
from throughline.archive import contents

FRAMEWORKS = ("torch", *(f"torch@v{number}" for number in range(1, 10)))
TOPOLOGIES = {"1n1g": 100.0, "1n2g": 190.0}
PRECISIONS = {"fp32": 1.0, "bf16": 1.7}
REPEATS = 5
LOG = "a line of a log, as a run prints it: step 12, loss 9.8712\n" * 100
TELEMETRY = "node,at_s,in_window,machine_cpu_share\n" + "".join(f"0,{k}.5,1,0.{k:03}\n" for k in range(120))


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--archives", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="throughline-") as temporary:
        folder = Path(temporary)
        results = folder / "results"
        summaries = [measured(results, precision) for precision in PRECISIONS]
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in results.rglob("*.*")}
        archives = [packed(folder, number, summaries, files) for number in range(given.archives)]
        size = archives[0].stat().st_size / 1e6
        print(f"{len(archives)} archives of {len(files) + 1} files, {size:.2f} MB each")
        outputs = {name: folder / f"compare.{name}" for name in ("json", "html", "csv")}
        page = outputs["html"]
        words = {"output": outputs["json"], "page": page, "table": outputs["csv"], "places": folder / "places.csv"}
        spent = harness.script("compare", **words, summaries=summaries, archives=archives)
        cells = len(FRAMEWORKS) * len(TOPOLOGIES) * len(PRECISIONS)
        print(
            f"{cells} cells with {len(archives)} archives: {spent.seconds:.1f} s, {spent.cpu_seconds:.1f} CPU-seconds, "
            f"{spent.memory_mb:.0f} MB of memory; page {page.stat().st_size / 1e6:.2f} MB"
        )


def measured(results: Path, precision: str) -> Path:
    """Write records, logs, telemetry and the summary of all cells with this precision, and return the summary."""
    records: list[Path] = []
    for number, framework in enumerate(FRAMEWORKS):
        series = {
            topology: jitter(speed * PRECISIONS[precision] * (1 + number / 100))
            for topology, speed in TOPOLOGIES.items()
        }
        records += write_series(results, series, framework=framework, precision=precision)
    for record in records:
        record.with_suffix(".log").write_text(LOG)
        record.with_suffix(".telemetry.csv").write_text(TELEMETRY)
    summary = results / f"bert/bz32_{precision}.json"
    harness.script("summarize", *records, asked=REPEATS, output=summary)
    return summary


def packed(folder: Path, number: int, summaries: list[Path], files: dict[str, bytes]) -> Path:
    """Write an archive whose speeds and driver are those of another time."""
    random.seed(number)
    names = [path.relative_to(folder).as_posix() for path in summaries]
    older = files | {name: json.dumps(_earlier(json.loads(files[name]), number)).encode() for name in names}
    made = contents.Made(repeats=REPEATS, terms={}, remarks=None, summaries=names, compared=[], equivalence=False)
    told = contents.Contents(
        formats=contents.FORMATS,
        version="0.3.0",
        rules="",
        drawn_with="",
        configuration=None,
        benchmarks={"bert": made},
        files={
            name: contents.Held(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in older.items()
        },
    )
    path = folder / f"archive{number:02}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(contents.NAME, told.model_dump_json())
        for name, content in older.items():
            archive.writestr(name, content)
    return path


def _earlier(summary: Any, number: int) -> Any:
    for series in summary["frameworks"].values():
        for cell in series.values():
            cell["values"] = [value * (1 - number / 500) * random.gauss(1, 0.004) for value in cell["values"]]
            cell["median_speed"] = sorted(cell["values"])[len(cell["values"]) // 2]
            cell["started"] = f"2026-{1 + number // 25:02}-{1 + number % 25:02}T12:00:00Z"
    for environment in summary["environment"].values():
        environment["framework"] |= {"driver": f"5{number // 7}0.10"}
    return summary


if __name__ == "__main__":
    main()

"""Measure the CPU-seconds of the report's page over many cells, and those of the summaries that it shows.

    python benchmarks/report_page.py                        200 cells: 5 frameworks, 8 topologies, 5 batches, 5 repeats
    python benchmarks/report_page.py --batches 1 --rounds 5

The records are synthetic. The real commands make each summary and then the page, each in a process of its own. The
CPU-seconds are those of a process and of all that it started (user and system).
"""

import tempfile
from pathlib import Path
from statistics import median

import harness

from report_fixture import jitter, write_series

FRAMEWORKS = ("torch", "torch-horovod", "mxnet-horovod", "jax", "tensorflow")
TOPOLOGIES = ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g", "8n8g", "16n8g")
BATCHES = (16, 32, 64, 96, 128)


def main() -> None:
    parser = harness.options(__doc__, rounds=3)
    parser.add_argument("--batches", type=int, default=len(BATCHES), help="40 cells each")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="throughline-") as temporary:
        results = Path(temporary) / "results"
        summaries, seconds = zip(*(summarized(results, batch) for batch in BATCHES[: given.batches]), strict=True)
        cells = given.batches * len(FRAMEWORKS) * len(TOPOLOGIES)
        print(f"{len(summaries)} summaries of {cells} cells: {sum(seconds):.2f} CPU-seconds")
        page = {"results": results, "summaries": [*summaries], "output": results / "report.html"}
        pages = [harness.script("report", **page).cpu_seconds for _ in range(given.rounds)]
        print(f"page of {cells} cells, median of {len(pages)}: {median(pages):.2f} CPU-seconds")
        harness.write(given.json, {"summaries": seconds, "page": pages})


def summarized(results: Path, batch: int) -> tuple[Path, float]:
    """Write the records of all cells with this batch, summarize them; return the summary and its CPU-seconds."""
    records = []
    for number, framework in enumerate(FRAMEWORKS):
        for power, topology in enumerate(TOPOLOGIES):
            speed = (100 + 7 * number) * (1 + batch / 256) * 1.9**power
            versions = {framework: "1.0", "cuda": "13.0"}
            settings = {"framework": framework, "batch": batch, "framework_versions": versions}
            records += write_series(results, {topology: jitter(speed)}, complete=True, **settings)
    summary = results / f"bert/bz{batch}_fp32.json"
    return summary, harness.script("summarize", *records, asked=5, output=summary).cpu_seconds


if __name__ == "__main__":
    main()

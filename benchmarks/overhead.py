"""Measure what the workflow itself costs: planning thousands of runs, starting with nothing to do, time between runs.

    python benchmarks/overhead.py                 all of it, about three minutes
    python benchmarks/overhead.py --repeats 3

Every figure is compared with a bare Snakefile that has the same graph (the same files, no library, no configuration).
The two take turns, and their ratio says what Throughline adds to Snakemake. Nothing is trained: the graph is only
planned. The time between two runs is read from finished records (--records results/bert/bz32_fp32).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
TOPOLOGIES, REPEATS = 10, 10

BARE = """
CELLS = [f"results/wide/bz{b}_fp32" for b in range(1, N + 1)]
TOPOLOGIES = [f"1n{d}g" for d in range(1, 11)]
RECORDS = {c: [f"{c}/torch/{t}/run{k}.json" for t in TOPOLOGIES for k in range(1, 11)] for c in CELLS}
rule all:
    input: "results/report.html", sum(RECORDS.values(), [])
rule run:
    output: "results/wide/{cell}/torch/{topology}/run{repeat}.json"
    log: "results/wide/{cell}/torch/{topology}/run{repeat}.log"
    priority: lambda w: 1000 - int(w.repeat)
    shell: "touch {output}"
rule summary:
    input: lambda w: RECORDS[f"results/wide/{w.cell}"]
    output: "results/wide/{cell}.json"
    wildcard_constraints: cell="[^/]+"
    shell: "touch {output}"
rule report:
    input: [f"{c}.json" for c in CELLS]
    output: "results/report.html"
    shell: "touch {output}"
"""


def configuration(runs: int) -> str:
    """Return a configuration of `runs` runs that read no corpus: batch sizes x 10 topologies x 10 repeats."""
    batches = list(range(1, runs // (TOPOLOGIES * REPEATS) + 1))
    topologies = [f"1n{devices}g" for devices in range(1, TOPOLOGIES + 1)]
    return json.dumps(
        {
            "corpus": {"sequences": {"32": 5}, "shards": {"training": 1, "test": 0}, "parts": 1},
            "runs": {"repeats": REPEATS, "device": "cpu"},
            "benchmarks": {
                "wide": {
                    "sequence": 32,
                    "topologies": topologies,
                    "batch": {"fp32": batches},
                    "options": {"data": "synthetic"},
                }
            },
        }
    )


def clone(folder: Path, runs: int) -> tuple[Path, Path]:
    """Make a copy of the workflow with the grid as its configuration, and a bare Snakefile with the same graph; return
    their folders."""
    ours, bare = folder / f"ours_{runs}", folder / f"bare_{runs}"
    for name in ("rules", "src", "workflow", "envs", "profiles", "resources"):
        shutil.copytree(ROOT / name, ours / name)
    shutil.copy(ROOT / "Snakefile", ours)
    # A key in JSON is always a string. Without quotation marks, YAML reads it as a number.
    (ours / "config.yaml").write_text(configuration(runs).replace('"32":', "32:"))
    shutil.copytree(ROOT / "profiles", bare / "profiles")
    (bare / "Snakefile").write_text(BARE.replace("N + 1", f"{runs // (TOPOLOGIES * REPEATS)} + 1"))
    return ours, bare


def seconds(folder: Path, *arguments: str) -> float:
    """Return the wall-clock seconds of one Snakemake call. The script ends if the call fails."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"snakemake {' '.join(arguments)} failed in {folder}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - start


def compare(what: str, ours: Path, bare: Path, arguments: list[str], repeats: int) -> None:
    """Print medians of interleaved calls, and their ratio with its range over the pairs."""
    pairs = [(seconds(ours, *arguments), seconds(bare, *arguments)) for _ in range(repeats)]
    ratios = sorted(mine / theirs for mine, theirs in pairs)
    mine, theirs = (median(pair[side] for pair in pairs) for side in (0, 1))
    spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    print(f"| {what} | {mine:.2f} | {theirs:.2f} | {spread} |", flush=True)


def between_windows(records: Path) -> None:
    """Print how long a run takes beyond its timed window, to start, warm up and end, as finished records say."""
    runs = [json.loads(path.read_text()) for path in records.glob("*/*/run*.json")]
    beyond = [_span(run["started"], run["ended"]) - run["window_s"] for run in runs if run["window_s"]]
    if beyond:
        print(f"\nA run takes {median(beyond):.1f} s beyond its window (median of {len(beyond)} records).")


def _span(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="interleaved pairs per figure")
    finished = ROOT / "results" / "bert" / "bz32_fp32"
    parser.add_argument("--records", type=Path, default=finished, help="finished records of one configuration")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("| what | throughline, s | bare Snakefile, s | ratio (range) |\n|---|--:|--:|--:|", flush=True)
        for runs in (1000, 10000):
            ours, bare = clone(Path(folder), runs)
            compare(f"dry run of {runs:,} runs", ours, bare, ["--dry-run", "--quiet", "all"], arguments.repeats)
        target = "results/wide/bz7_fp32/torch/1n3g/run5.json"
        one = ["--dry-run", "--quiet", "all", "--", target]
        compare("one target of 10,000 runs", ours, bare, one, arguments.repeats)
        ours, bare = clone(Path(folder) / "done", 1000)
        for place in (ours, bare):
            _pretend(place)
        compare("1,000 runs, nothing to do", ours, bare, ["--quiet", "all"], arguments.repeats)
    between_windows(arguments.records)


def _pretend(folder: Path) -> None:
    """Mark every file of the graph as made."""
    listed = subprocess.run(
        [sys.executable, "-m", "snakemake", "--summary"], cwd=folder, capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines()[1:]:
        path = folder / line.split("\t")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.touch()
        else:
            path.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "snakemake", "--touch", "--quiet", "all"], cwd=folder, check=True)


if __name__ == "__main__":
    main()
